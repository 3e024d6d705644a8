"""Convolutions and scans of recurrent layers: Mamba, Gated DeltaNet, Kimi Delta Attention."""

from __future__ import annotations

import math
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.errors import Unsupported
from edgellm.graph import Node

# `targets`: addresses of a token's pages of states, before it and after it; `state_at`: byte offset of a layer's state there.
CONV = Signature("x x_stride out out_stride weights bias n size targets state_at segments")
DELTA_NET = Signature(
    "x x_stride alpha alpha_stride beta beta_stride out out_stride a dt k_heads v_heads dim_k dim_v grouped eps "
    "targets state_at segments"
)
SSM_SCAN = Signature(
    "x x_stride dt dt_stride b b_stride c c_stride out out_stride a d bias heads n d_state groups targets state_at segments"
)
DECAYS = Signature("x x_stride out out_stride rates steps n count")  # rates to base 2
KDA = Signature(
    "q q_stride k k_stride v v_stride decay decay_stride beta beta_stride out out_stride heads dim eps targets state_at segments"
)
# Columns of a scan's state that lie together: a row of them for each number of a column's state.
OF_COLUMNS: Final = 16  # where every column decays in its own way
OF_HEADS: Final = 32  # where those of a head decay alike


@emitter("causal_conv")
def causal_conv(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    taps = plan.weights[node.weights[0]].array().reshape(node.n, -1).T  # a row of weights for each input row
    plan.add(
        Record(
            "conv:causal",
            CONV(
                x=x,
                out=out,
                weights=plan.keep(np.ascontiguousarray(taps, np.float32)),
                bias=plan.vector(node.weights[1]) if len(node.weights) > 1 else 0,
                n=node.n,
                size=integer(node, "size"),
                **plan.state_words(integer(node, "state")),
            ),
            reads=(x,),
            writes=(out,),
            pieces=node.n,
        )
    )


@emitter("delta_net")
def delta_net(plan: PlanBuilder, index: int, node: Node) -> None:
    x, alpha, beta = inputs = tuple(plan.values[i] for i in node.inputs)
    a, dt = (plan.vector(name) for name in node.weights)
    v_heads, dim_k, dim_v = (integer(node, name) for name in ("v_heads", "dim_k", "dim_v"))
    if dim_k % 8 or dim_v % 8:
        raise Unsupported(
            f"heads of {dim_k} by {dim_v} cannot be run; both must be multiples of 8",
            file=plan.weights[node.weights[0]].file,
            field=node.weights[0],
        )
    width, out = 32 if dim_v % 32 == 0 else 8, plan.output(index)
    plan.add(
        Record(
            f"delta_net:{'wide' if width == 32 else 'narrow'}",
            DELTA_NET(
                x=x,
                alpha=alpha,
                beta=beta,
                out=out,
                a=a,
                dt=dt,
                k_heads=integer(node, "k_heads"),
                v_heads=v_heads,
                dim_k=dim_k,
                dim_v=dim_v,
                grouped=int(cast(bool, node.attrs["grouped"])),
                eps=float_of(node, "eps"),
                **plan.state_words(integer(node, "state")),
            ),
            reads_all=inputs,
            writes=(out,),
            pieces=v_heads * dim_v // width,
        )
    )


@emitter("ssm_scan")
def ssm_scan(plan: PlanBuilder, index: int, node: Node) -> None:
    x, dt, b, c = (plan.values[i] for i in node.inputs)
    heads, d_state, out = integer(node, "heads"), integer(node, "d_state"), plan.output(index)
    groups, by_column = b.n // d_state, heads == node.n
    a, d, *bias = (plan.vector(name) for name in node.weights)
    if by_column:
        a = plan.keep(rates_by_blocks(plan.weights[node.weights[0]].array(), groups))
    together, width = (node.n // groups, OF_COLUMNS) if by_column else (node.n // heads, OF_HEADS)
    even = together % width == 0  # then threads that share blocks have the columns that they wrote
    plan.add(
        Record(
            f"ssm_scan:{'columns' if by_column else 'heads'}",
            SSM_SCAN(
                x=x,
                dt=dt,
                b=b,
                c=c,
                out=out,
                a=a,
                d=d,
                bias=bias[0] if bias else 0,
                heads=heads,
                n=node.n,
                d_state=d_state,
                groups=groups,
                **plan.state_words(integer(node, "state")),
            ),
            reads=(x,) if even else (),
            reads_all=(dt, b, c) if even else (x, dt, b, c),
            writes=(out,),
            pieces=node.n // width if even else None,
        )
    )


def rates_by_blocks(a: npt.NDArray[np.float32], groups: int) -> npt.NDArray[np.float32]:
    """Rates (n, d_state) to base 2, as ssm_scan.py reads them: those of a block for a number of its states side by side."""
    rates = (np.asarray(a, np.float32) * np.float32(math.log2(math.e))).reshape(groups, -1, a.shape[-1])
    wide = rates.shape[1] // OF_COLUMNS * OF_COLUMNS
    blocks = rates[:, :wide].reshape(groups, -1, OF_COLUMNS, a.shape[-1]).swapaxes(2, 3)
    return np.ascontiguousarray(np.concatenate([blocks.reshape(groups, -1), rates[:, wide:].reshape(groups, -1)], axis=1))


@emitter("decays")
def decays(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, heads = plan.values[node.inputs[0]], plan.output(index), integer(node, "heads")
    rates = np.repeat(plan.weights[node.weights[0]].array().reshape(heads), node.n // heads) * math.log2(math.e)
    kept, steps = plan.keep(rates.astype(np.float32)), plan.vector(node.weights[1])
    plan.add(
        Record(
            "kda:decays",
            DECAYS(x=x, out=out, rates=kept, steps=steps, n=node.n, count=count_word(node)),
            reads=(x,),
            writes=(out,),
            pieces=node.n,
            by_rows=node.rows == "T",
        )
    )


@emitter("kda")
def kda(plan: PlanBuilder, index: int, node: Node) -> None:
    q, k, v, decay, beta = inputs = tuple(plan.values[i] for i in node.inputs)
    heads, out = integer(node, "heads"), plan.output(index)
    dim = node.n // heads
    width = 32 if dim % 32 == 0 else 8
    plan.add(
        Record(
            f"kda:{'wide' if width == 32 else 'narrow'}",
            KDA(
                q=q,
                k=k,
                v=v,
                decay=decay,
                beta=beta,
                out=out,
                heads=heads,
                dim=dim,
                eps=float_of(node, "eps"),
                **plan.state_words(integer(node, "state")),
            ),
            reads_all=inputs,
            writes=(out,),
            pieces=node.n // width,
        )
    )
