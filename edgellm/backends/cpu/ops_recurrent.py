"""How the ops of recurrent layers become records."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu.emitters import emitter, float_word
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.scan_blocks import OF_COLUMNS, OF_HEADS
from edgellm.backends.cpu.words import CONV, DELTA_NET, SSM_SCAN
from edgellm.errors import Unsupported
from edgellm.graph import Node


@emitter("causal_conv")
def causal_conv(plan: PlanBuilder, index: int, node: Node) -> None:
    x, state, out = plan.values[node.inputs[0]], cast(int, node.attrs["state"]), plan.output(index)
    taps = plan.weights[node.weights[0]].array().reshape(node.n, -1).T  # a row of weights for each input row
    plan.add(
        "conv:causal",
        CONV(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            weights=plan.keep(np.ascontiguousarray(taps, np.float32)),
            bias=plan.vector(node.weights[1]) if len(node.weights) > 1 else 0,
            n=node.n,
            size=cast(int, node.attrs["size"]),
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[state],
            segments=plan.step.segments.ctypes.data,
        ),
        reads=(x,),
        writes=(out,),
        pieces=node.n,
    )


@emitter("delta_net")
def delta_net(plan: PlanBuilder, index: int, node: Node) -> None:
    x, alpha, beta = (plan.values[i] for i in node.inputs)
    a, dt = (plan.vector(name) for name in node.weights)
    v_heads, dim_k, dim_v = (cast(int, node.attrs[name]) for name in ("v_heads", "dim_k", "dim_v"))
    if dim_k % 8 or dim_v % 8:
        raise Unsupported(
            f"heads of {dim_k} by {dim_v} cannot be run; both must be multiples of 8",
            file=plan.weights[node.weights[0]].file,
            field=node.weights[0],
        )
    width, out, state = 32 if dim_v % 32 == 0 else 8, plan.output(index), cast(int, node.attrs["state"])
    plan.add(
        f"delta_net:{'wide' if width == 32 else 'narrow'}",
        DELTA_NET(
            x=x.at,
            x_stride=x.stride,
            alpha=alpha.at,
            alpha_stride=alpha.stride,
            beta=beta.at,
            beta_stride=beta.stride,
            out=out.at,
            out_stride=out.stride,
            a=a,
            dt=dt,
            k_heads=cast(int, node.attrs["k_heads"]),
            v_heads=v_heads,
            dim_k=dim_k,
            dim_v=dim_v,
            grouped=int(cast(bool, node.attrs["grouped"])),
            eps=float_word(cast(float, node.attrs["eps"])),
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[state],
            segments=plan.step.segments.ctypes.data,
        ),
        whole=(x, alpha, beta),
        writes=(out,),
        pieces=v_heads * dim_v // width,
    )


@emitter("ssm_scan")
def ssm_scan(plan: PlanBuilder, index: int, node: Node) -> None:
    x, dt, b, c = (plan.values[i] for i in node.inputs)
    heads, d_state, out = cast(int, node.attrs["heads"]), cast(int, node.attrs["d_state"]), plan.output(index)
    groups, by_column = b.n // d_state, heads == node.n
    a, d, *bias = (plan.vector(name) for name in node.weights)
    if by_column:
        a = plan.keep(rates_by_blocks(plan.weights[node.weights[0]].array(), groups))
    together, width = (node.n // groups, OF_COLUMNS) if by_column else (node.n // heads, OF_HEADS)
    even = together % width == 0  # then threads that share blocks have the columns that they wrote
    plan.add(
        f"ssm_scan:{'columns' if by_column else 'heads'}",
        SSM_SCAN(
            x=x.at,
            x_stride=x.stride,
            dt=dt.at,
            dt_stride=dt.stride,
            b=b.at,
            b_stride=b.stride,
            c=c.at,
            c_stride=c.stride,
            out=out.at,
            out_stride=out.stride,
            a=a,
            d=d,
            bias=bias[0] if bias else 0,
            heads=heads,
            n=node.n,
            d_state=d_state,
            groups=groups,
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[cast(int, node.attrs["state"])],
            segments=plan.step.segments.ctypes.data,
        ),
        reads=(x,) if even else (),
        whole=(dt, b, c) if even else (x, dt, b, c),
        writes=(out,),
        pieces=node.n // width if even else None,
    )


def rates_by_blocks(a: npt.NDArray[np.float32], groups: int) -> npt.NDArray[np.float32]:
    """Rates (n, d_state) to base 2, as kernels/ssm_scan.py reads them: those of a block for a number of its states side by side."""
    rates = (np.asarray(a, np.float32) * np.float32(math.log2(math.e))).reshape(groups, -1, a.shape[-1])
    wide = rates.shape[1] // OF_COLUMNS * OF_COLUMNS
    blocks = rates[:, :wide].reshape(groups, -1, OF_COLUMNS, a.shape[-1]).swapaxes(2, 3)
    return np.ascontiguousarray(np.concatenate([blocks.reshape(groups, -1), rates[:, wide:].reshape(groups, -1)], axis=1))
