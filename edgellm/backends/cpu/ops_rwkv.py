"""How RWKV's ops become records."""
from __future__ import annotations

from typing import cast

import numpy as np

from edgellm.backends.cpu.buffers import PerThread
from edgellm.backends.cpu.emitters import emitter, float_word
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.words_rwkv import TOKEN_SHIFT, WKV7
from edgellm.errors import Unsupported
from edgellm.graph import Node

SCRATCH_ROWS = 18                                # of a head's dims: what kernels/wkv7.py makes of its inputs


@emitter("token_shift")
def token_shift(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, parts = plan.values[node.inputs[0]], plan.output(index), cast(int, node.attrs["parts"])
    plan.add("token_shift:rows", TOKEN_SHIFT(
        x=x.at, x_stride=x.stride, out=out.at, out_stride=out.stride, mix=plan.vector(node.weights[0]), n=x.n, parts=parts,
        targets=plan.step.state_targets.ctypes.data, state_at=plan.recurrent.at[cast(int, node.attrs["state"])],
        segments=plan.step.segments.ctypes.data), reads=(x,) if parts == 1 else (), whole=(x,) if parts > 1 else (), writes=(out,),
        pieces=node.n if parts == 1 else None)


@emitter("wkv7")
def wkv7(plan: PlanBuilder, index: int, node: Node) -> None:
    r, w, k, v, a, *more = (plan.values[i] for i in node.inputs)
    heads, out = cast(int, node.attrs["heads"]), plan.output(index)
    dim = node.n // heads
    if dim % 8:
        raise Unsupported(f"heads of {dim} cannot be run; they must be multiples of 8", file=plan.weights[node.weights[0]].file,
                          field=node.weights[0])
    weights = np.stack([np.asarray(plan.weights[name].array(), np.float32) for name in node.weights])
    first, gate = more or (None, None)
    scratch = SCRATCH_ROWS * dim * 4
    plan.add(f"wkv7:{'wide' if dim % 16 == 0 else 'narrow'}", WKV7(
        r=r.at, r_stride=r.stride, w=w.at, w_stride=w.stride, k=k.at, k_stride=k.stride, v=v.at, v_stride=v.stride, a=a.at,
        a_stride=a.stride, first=first.at if first else 0, first_stride=first.stride if first else 0, gate=gate.at if gate else 0,
        gate_stride=gate.stride if gate else 0, out=out.at, out_stride=out.stride, weights=plan.keep(weights), heads=heads, dim=dim,
        eps=float_word(cast(float, node.attrs["eps"])), targets=plan.step.state_targets.ctypes.data,
        state_at=plan.recurrent.at[cast(int, node.attrs["state"])], segments=plan.step.segments.ctypes.data,
        scratch=PerThread(plan.scratch(plan.most_threads * scratch), scratch, always=True)),
        reads=(r, w, k, v, a, *more), writes=(out,), pieces=heads)
