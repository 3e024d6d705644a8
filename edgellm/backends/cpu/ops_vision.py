"""Emitters of image encoders: pixels and positions that a step brings, the patch convolution, merged rows."""

from __future__ import annotations

from typing import cast

import numpy as np

from edgellm.backends.cpu.buffers import PerThread
from edgellm.backends.cpu.emitters import count_word, emitter, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import scratch_bytes
from edgellm.backends.cpu.words import MATMUL
from edgellm.backends.cpu.words_vision import MERGE
from edgellm.errors import Unsupported
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import Node
from edgellm.ops.vision import grid_rows


@emitter("pixels")
def pixels(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.brought(index, lambda patches: patches.pixels)


@emitter("grid_embed")
def grid_embed(plan: PlanBuilder, index: int, node: Node) -> None:
    table, resize = plan.weights[node.weights[0]].array().astype(np.float32), cast(str, node.attrs["resize"])
    plan.brought(index, lambda patches: grid_rows(table, patches, resize))


@emitter("patch_conv")
def patch_conv(plan: PlanBuilder, index: int, node: Node) -> None:
    """A product: the kernel of an output channel is a row."""
    weight, x = plan.weights[node.weights[0]], plan.values[node.inputs[0]]
    traits = traits_of(weight)
    if traits.quantise:
        raise Unsupported(
            f"is a patch convolution in {weight.type.name}; it must be F32, F16 or BF16", file=weight.file, field=weight.name
        )
    out, per_thread = plan.output(index), scratch_bytes(weight.type.name, x.n)
    scratch = PerThread(plan.scratch(plan.most_threads * per_thread), per_thread, always=True) if per_thread else 0
    plan.add(
        traits.matmul,
        MATMUL(
            weights=weight.address,
            row_bytes=row_bytes(weight.type, x.n),
            n=node.n,
            k=x.n,
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            bias=plan.vector(node.weights[1]) if len(node.weights) > 1 else 0,
            residual=0,
            residual_stride=0,
            act=0,
            count=count_word(node),
            scratch=scratch,
            whole_tiles=0,
        ),
        whole=(x,),
        writes=(out,),
        pieces=node.n,
        by_columns=traits.matmul.partition(":")[0],
        weight_rows=node.n,
        weight_bytes=node.n * row_bytes(weight.type, x.n),
        weights=weight.address,
    )


@emitter("merge_rows")
def merge_rows(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    plan.add(
        f"merge:{node.attrs['by']}",
        MERGE(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            first=plan.step.output_rows.ctypes.data,
            rows=cast(int, node.attrs["count"]),
            n=x.n,
        ),
        whole=(x,),
        writes=(out,),
    )
