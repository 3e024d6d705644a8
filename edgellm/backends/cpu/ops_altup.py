"""How the ops of Gemma 3n become records."""

from __future__ import annotations

from typing import cast

from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.emitters import count_word, emitter, float_word
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.words_altup import MIX, RESCALE, SPARSE_RELU
from edgellm.graph import Node


@emitter("mix")
def mix(plan: PlanBuilder, index: int, node: Node) -> None:
    base, x, *rest = (plan.values[value] for value in node.inputs)
    out, parts = plan.output(index, replicated=True), cast(int, node.attrs["parts"])
    plan.add(
        "altup:mix",
        MIX(
            base=base.at,
            base_stride=base.stride,
            x=x.at,
            x_stride=x.stride,
            coefficients=rest[0].at if rest else 0,
            coefficients_stride=rest[0].stride if rest else 0,
            out=out.at,
            out_stride=out.stride,
            parts=parts,
            added=x.n * parts // node.n,
            n=node.n // parts,
            offset=float_word(cast(float, node.attrs["offset"])),
            first=cast(int, node.attrs["first"]),
            count=count_word(node),
        ),
        reads=(base, x, *rest),
        writes=(out,),
        pieces=REPLICATED if out.replicated else None,
        by_rows=node.rows == "T",
    )


@emitter("rescale")
def rescale(plan: PlanBuilder, index: int, node: Node) -> None:
    x, like = (plan.values[value] for value in node.inputs)
    out, groups = plan.output(index, replicated=True), cast(int, node.attrs["groups"])
    plan.add(
        "altup:rescale",
        RESCALE(
            x=x.at,
            x_stride=x.stride,
            like=like.at,
            like_stride=like.stride,
            n_like=like.n,
            out=out.at,
            out_stride=out.stride,
            n=node.n // groups,
            groups=groups,
            floor=float_word(cast(float, node.attrs["floor"])),
            count=count_word(node),
        ),
        reads=(x, like),
        writes=(out,),
        pieces=REPLICATED if out.replicated else None,
        by_rows=node.rows == "T",
    )


@emitter("sparse_relu")
def sparse_relu(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    plan.add(
        "altup:sparse_relu",
        SPARSE_RELU(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            n=node.n,
            deviations=float_word(cast(float, node.attrs["deviations"])),
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=REPLICATED if out.replicated else None,
        by_rows=node.rows == "T",
    )
