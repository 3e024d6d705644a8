"""How the ops of Kimi Delta Attention become records."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from edgellm.backends.cpu.emitters import count_word, emitter, float_word
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.words_kda import DECAYS, KDA
from edgellm.graph import Node


@emitter("decays")
def decays(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, heads = plan.values[node.inputs[0]], plan.output(index), cast(int, node.attrs["heads"])
    rates = np.repeat(plan.weights[node.weights[0]].array().reshape(heads), node.n // heads) * math.log2(math.e)
    plan.add(
        "kda:decays",
        DECAYS(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            rates=plan.keep(rates.astype(np.float32)),
            steps=plan.vector(node.weights[1]),
            n=node.n,
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=node.n,
        by_rows=node.rows == "T",
    )


@emitter("kda")
def kda(plan: PlanBuilder, index: int, node: Node) -> None:
    q, k, v, decay, beta = inputs = tuple(plan.values[i] for i in node.inputs)
    heads, out, state = cast(int, node.attrs["heads"]), plan.output(index), cast(int, node.attrs["state"])
    dim = node.n // heads
    width = 32 if dim % 32 == 0 else 8
    plan.add(
        f"kda:{'wide' if width == 32 else 'narrow'}",
        KDA(
            q=q.at,
            q_stride=q.stride,
            k=k.at,
            k_stride=k.stride,
            v=v.at,
            v_stride=v.stride,
            decay=decay.at,
            decay_stride=decay.stride,
            beta=beta.at,
            beta_stride=beta.stride,
            out=out.at,
            out_stride=out.stride,
            heads=heads,
            dim=dim,
            eps=float_word(cast(float, node.attrs["eps"])),
            targets=plan.step.state_targets.ctypes.data,
            state_at=plan.recurrent.at[state],
            segments=plan.step.segments.ctypes.data,
        ),
        whole=inputs,
        writes=(out,),
        pieces=node.n // width,
    )
