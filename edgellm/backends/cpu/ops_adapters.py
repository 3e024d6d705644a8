"""How the products of adapters become records."""

from __future__ import annotations

from edgellm.backends.cpu.emitters import count_word, emitter
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.words_adapters import LOW_RANK
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node


@emitter("low_rank_add")
def low_rank_add(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = plan.weights[node.weights[0]]
    low, base = (plan.values[value] for value in node.inputs)
    out = plan.in_place(index, node.inputs[1]) or plan.output(index)
    one_row = row_bytes(weight.type, node.n)
    plan.add(
        f"low_rank:{weight.type.name}",
        LOW_RANK(
            weights=weight.address,
            row_bytes=one_row,
            n=node.n,
            ranks=low.n,
            low=low.at,
            low_stride=low.stride,
            base=base.at,
            base_stride=base.stride,
            out=out.at,
            out_stride=out.stride,
            count=count_word(node),
        ),
        reads=(base,),
        whole=(low,),
        writes=(out,),
        pieces=node.n,
        weight_bytes=low.n * one_row,
    )
