"""How RWKV's ops become records."""

from __future__ import annotations

from typing import cast

import numpy as np

from edgellm.backends.cpu.buffers import PerThread
from edgellm.backends.cpu.emitters import emitter, float_word
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.words_rwkv import TOKEN_SHIFT, WKV6, WKV7
from edgellm.errors import Unsupported
from edgellm.graph import Node

SCRATCH_ROWS = 18  # of a head's dims: what kernels/wkv7.py makes of its inputs
SCRATCH_ROWS_6 = 3  # kernels/wkv6.py


@emitter("token_shift")
def token_shift(plan: PlanBuilder, index: int, node: Node) -> None:
    (x, *added), out, parts = (plan.values[i] for i in node.inputs), plan.output(index), cast(int, node.attrs["parts"])
    more, alone = added[0] if added else None, parts == 1
    mix = np.concatenate([np.asarray(plan.weights[name].array(), np.float32).reshape(-1) for name in node.weights])
    plan.add(
        "token_shift:rows",
        TOKEN_SHIFT(
            x=x.at,
            x_stride=x.stride,
            more=more.at if more else 0,
            more_stride=more.stride if more else 0,
            out=out.at,
            out_stride=out.stride,
            mix=plan.vector(node.weights[0]) if len(node.weights) == 1 else plan.keep(mix),
            n=x.n,
            parts=parts,
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[cast(int, node.attrs["state"])],
            segments=plan.step.segments.ctypes.data,
        ),
        reads=(x, *added) if alone else (),
        whole=() if alone else (x, *added),
        writes=(out,),
        pieces=node.n if alone else None,
    )


def _head_dim(plan: PlanBuilder, node: Node) -> int:
    """Raises Unsupported where kernels have no vectors for it."""
    dim = node.n // cast(int, node.attrs["heads"])
    if dim % 8:
        table = plan.weights["token_embd.weight"]
        raise Unsupported(f"heads of {dim} cannot be run; they must be multiples of 8", file=table.file, field="wkv.head_size")
    return dim


@emitter("wkv6")
def wkv6(plan: PlanBuilder, index: int, node: Node) -> None:
    r, w, k, v = inputs = tuple(plan.values[i] for i in node.inputs)
    heads, out, dim = cast(int, node.attrs["heads"]), plan.output(index), _head_dim(plan, node)
    scratch = SCRATCH_ROWS_6 * dim * 4
    plan.add(
        f"wkv6:{'wide' if dim % 16 == 0 else 'narrow'}",
        WKV6(
            r=r.at,
            r_stride=r.stride,
            w=w.at,
            w_stride=w.stride,
            k=k.at,
            k_stride=k.stride,
            v=v.at,
            v_stride=v.stride,
            first=plan.vector(node.weights[0]) if node.weights else 0,
            out=out.at,
            out_stride=out.stride,
            heads=heads,
            kv_heads=k.n // dim,
            dim=dim,
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[cast(int, node.attrs["state"])],
            segments=plan.step.segments.ctypes.data,
            scratch=PerThread(plan.scratch(plan.most_threads * scratch), scratch, always=True),
        ),
        reads=inputs if k.n == r.n else (r, w),
        whole=() if k.n == r.n else (k, v),
        writes=(out,),
        pieces=heads,
    )


@emitter("wkv7")
def wkv7(plan: PlanBuilder, index: int, node: Node) -> None:
    r, w, k, v, a, *more = (plan.values[i] for i in node.inputs)
    heads, out, dim = cast(int, node.attrs["heads"]), plan.output(index), _head_dim(plan, node)
    weights = np.stack([np.asarray(plan.weights[name].array(), np.float32) for name in node.weights])
    first, gate = more or (None, None)
    scratch = SCRATCH_ROWS * dim * 4
    plan.add(
        f"wkv7:{'wide' if dim % 16 == 0 else 'narrow'}",
        WKV7(
            r=r.at,
            r_stride=r.stride,
            w=w.at,
            w_stride=w.stride,
            k=k.at,
            k_stride=k.stride,
            v=v.at,
            v_stride=v.stride,
            a=a.at,
            a_stride=a.stride,
            first=first.at if first else 0,
            first_stride=first.stride if first else 0,
            gate=gate.at if gate else 0,
            gate_stride=gate.stride if gate else 0,
            out=out.at,
            out_stride=out.stride,
            weights=plan.keep(weights),
            normal=int(len(weights) == 5),
            heads=heads,
            dim=dim,
            eps=float_word(cast(float, node.attrs["eps"])),
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[cast(int, node.attrs["state"])],
            segments=plan.step.segments.ctypes.data,
            scratch=PerThread(plan.scratch(plan.most_threads * scratch), scratch, always=True),
        ),
        reads=(r, w, k, v, a, *more),
        writes=(out,),
        pieces=heads,
    )
