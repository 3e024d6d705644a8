"""RWKV's token shift and its scans."""

from __future__ import annotations

import numpy as np

from edgellm.backends.cpu.ops._table import emitter, float_of, integer, scratch_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.errors import Unsupported
from edgellm.graph import Node

TOKEN_SHIFT = Signature("x x_stride more more_stride out out_stride mix n parts targets state_at segments")
# `first`: u by head, or 0 for the form without it.
WKV6 = Signature(
    "r r_stride w w_stride k k_stride v v_stride first out out_stride heads kv_heads dim targets state_at segments scratch"
)
# `weights`: k_k, k_a, r_k, then weight and bias of the norm, one row each; `normal`: whether there is one; `first` and `gate` are 0
# in the first layer.
WKV7 = Signature(
    "r r_stride w w_stride k k_stride v v_stride a a_stride first first_stride gate gate_stride out out_stride weights "
    "normal heads dim eps targets state_at segments scratch"
)
SCRATCH_ROWS = 18  # of a head's dims: what kernels/recurrent/wkv7.py makes of its inputs
SCRATCH_ROWS_6 = 3  # kernels/recurrent/wkv6.py


@emitter("token_shift")
def token_shift(plan: PlanBuilder, index: int, node: Node) -> None:
    (x, *added), out, parts = (plan.values[i] for i in node.inputs), plan.output(index), integer(node, "parts")
    alone = parts == 1
    mix = np.concatenate([np.asarray(plan.weights[name].array(), np.float32).reshape(-1) for name in node.weights])
    plan.add(
        Record(
            "token_shift:rows",
            TOKEN_SHIFT(
                x=x,
                more=added[0] if added else None,
                out=out,
                mix=plan.vector(node.weights[0]) if len(node.weights) == 1 else plan.keep(mix),
                n=x.n,
                parts=parts,
                **plan.state_words(integer(node, "state")),
            ),
            reads=(x, *added) if alone else (),
            reads_all=() if alone else (x, *added),
            writes=(out,),
            pieces=node.n if alone else None,
        )
    )


def _head_dim(plan: PlanBuilder, node: Node) -> int:
    """Raises Unsupported where kernels have no vectors for it."""
    dim = node.n // integer(node, "heads")
    if dim % 8:
        table = plan.weights["token_embd.weight"]
        raise Unsupported(f"heads of {dim} cannot be run; they must be multiples of 8", file=table.file, field="wkv.head_size")
    return dim


@emitter("wkv6")
def wkv6(plan: PlanBuilder, index: int, node: Node) -> None:
    r, w, k, v = inputs = tuple(plan.values[i] for i in node.inputs)
    heads, out, dim = integer(node, "heads"), plan.output(index), _head_dim(plan, node)
    plan.add(
        Record(
            f"wkv6:{'wide' if dim % 16 == 0 else 'narrow'}",
            WKV6(
                r=r,
                w=w,
                k=k,
                v=v,
                first=plan.vector(node.weights[0]) if node.weights else 0,
                out=out,
                heads=heads,
                kv_heads=k.n // dim,
                dim=dim,
                **plan.state_words(integer(node, "state")),
                scratch=scratch_of(plan, SCRATCH_ROWS_6 * dim * 4),
            ),
            reads=inputs if k.n == r.n else (r, w),
            reads_all=() if k.n == r.n else (k, v),
            writes=(out,),
            pieces=heads,
        )
    )


@emitter("wkv7")
def wkv7(plan: PlanBuilder, index: int, node: Node) -> None:
    r, w, k, v, a, *more = inputs = [plan.values[i] for i in node.inputs]
    heads, out, dim = integer(node, "heads"), plan.output(index), _head_dim(plan, node)
    weights = np.stack([np.asarray(plan.weights[name].array(), np.float32) for name in node.weights])
    first, gate = more or (None, None)
    plan.add(
        Record(
            f"wkv7:{'wide' if dim % 16 == 0 else 'narrow'}",
            WKV7(
                r=r,
                w=w,
                k=k,
                v=v,
                a=a,
                first=first,
                gate=gate,
                out=out,
                weights=plan.keep(weights),
                normal=int(len(weights) == 5),
                heads=heads,
                dim=dim,
                eps=float_of(node, "eps"),
                **plan.state_words(integer(node, "state")),
                scratch=scratch_of(plan, SCRATCH_ROWS * dim * 4),
            ),
            reads=tuple(inputs),
            writes=(out,),
            pieces=heads,
        )
    )
