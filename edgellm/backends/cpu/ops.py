"""How each graph op becomes records: one emitter per op, found by its name. No arithmetic here, only addresses and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import (
    abi,
    ops_adapters,
    ops_altup,
    ops_heads,
    ops_kda,
    ops_moe,
    ops_recurrent,
    ops_rwkv,
    ops_vision,
    system,
)
from edgellm.backends.cpu.barriers import REPLICATED
from edgellm.backends.cpu.buffers import Mode, PerThread, Value
from edgellm.backends.cpu.emitters import EMITTERS, INTERLEAVED, count_word, emitter, float_word, matmul_of, traits_of
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.relative import RELATIVE_FIRST, RELATIVE_ROW
from edgellm.backends.cpu.traits import BLOCK, q8_row_bytes, scratch_bytes
from edgellm.backends.cpu.words import ATTENTION, COLUMNS, ELEMENTWISE, EMBED, KV_STORE, MATMUL, NORM, POOL, QUANTISE, SELECT
from edgellm.backends.cpu.words_rope import ROPE_ROWS
from edgellm.errors import BackendError
from edgellm.formats.ggml_types import row_bytes
from edgellm.graph import KVSpec, Node, RopeSpec
from edgellm.memory.kv_types import BLOCK as PIECE
from edgellm.memory.kv_types import QUANTISED
from edgellm.memory.pages import sink_slots
from edgellm.memory.sizes import token_bytes
from edgellm.ops.attention import REACH, alibi_slopes, relative_biases
from edgellm.ops.dense import GATES_OF_PRODUCTS, xielu_numbers

__all__ = ["EMITTERS", "INTERLEAVED"]
LARGEST_GROUP = 64  # queries that read keys together: 10 % faster than 16 after 4096 tokens, on Zen 3
GROUPS_OF_THREAD = 8  # at least: later ones see more keys, and threads shall end together
assert (
    ops_adapters and ops_altup and ops_heads and ops_kda and ops_moe and ops_recurrent and ops_rwkv and ops_vision
)  # add their own


@emitter("embed", interleaved=lambda node: ())  # single rows
def embed(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = plan.weights[node.weights[0]]
    ids = plan.step.ids(cast(str, node.attrs["source"]))
    out = plan.output(index)
    kernel = f"embed_interleaved:{weight.type.name}" if weight.interleaved else traits_of(weight).embed
    plan.add(
        kernel,
        EMBED(
            table=weight.address,
            row_bytes=row_bytes(weight.type, node.n),
            n=node.n,
            ids=ids.ctypes.data,
            out=out.at,
            out_stride=out.stride,
        ),
        writes=(out,),
    )


@emitter("rms_norm", "layer_norm")
def norm(plan: PlanBuilder, index: int, node: Node) -> None:
    groups = cast(int, node.attrs.get("groups", 1))
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=groups == 1)
    scale, bias = [*(plan.vector(name) for name in node.weights), 0, 0][:2]
    if node.attrs.get("own") == "one":
        scale = plan.keep(np.repeat(plan.weights[node.weights[0]].array().astype(np.float32), node.n // groups))
    replicated = groups > 1 and (node.op == "layer_norm" or node.attrs["own"])  # a weight for each group
    scale_stride = node.n // groups * 4 if replicated and node.weights else 0
    plan.add(
        f"norm:{node.op}",
        NORM(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            scale=scale,
            scale_stride=scale_stride,
            bias=bias,
            n=node.n // groups,
            groups=groups,
            eps=float_word(cast(float, node.attrs["eps"])),
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=REPLICATED if out.replicated else groups,
        by_rows=node.rows == "T",
    )


@emitter("matmul", "matmul_glu", interleaved=lambda node: (0, node.n))
def matmul(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = plan.weights[node.weights[0]]
    traits, kernel = traits_of(weight), matmul_of(weight)
    columns = weight.shape[-1]
    x = plan.values[node.inputs[0]]
    if traits.quantise:
        x = _quantised(plan, node.inputs[0], columns, traits.quantise)
    residual, act, gate = plan.values[node.inputs[1]] if len(node.inputs) > 1 else None, 0, None
    if "act" in node.attrs and traits.quantise:
        act = 1 + GATES_OF_PRODUCTS.index(cast(str, node.attrs["act"]))  # of the gate in the residual's place
    elif "act" in node.attrs:  # afterwards: single tokens of F16 took 3 % longer where it was applied at once
        residual, gate = None, residual
    out = (plan.in_place(index, node.inputs[1]) if act else None) or plan.output(index)
    per_thread = scratch_bytes(weight.type.name, columns)
    scratch = PerThread(plan.scratch(plan.most_threads * per_thread), per_thread, always=True) if per_thread else 0
    plan.add(
        kernel,
        MATMUL(
            weights=weight.address,
            row_bytes=row_bytes(weight.type, columns),
            n=node.n,
            k=columns,
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            bias=plan.vector(node.weights[1]) if len(node.weights) > 1 else 0,
            residual=residual.at if residual else 0,
            residual_stride=residual.stride if residual else 0,
            act=act,
            count=count_word(node),
            scratch=scratch,
            whole_tiles=0,
        ),
        reads=(residual,) if residual else (),
        whole=(x,),
        writes=(out,),
        pieces=node.n // (weight.interleaved or 1),
        by_columns=kernel.partition(":")[0],
        weight_rows=node.n,
        weight_bytes=node.n * row_bytes(weight.type, columns),
        weights=weight.address,
    )
    if gate:
        plan.add(
            f"elementwise:glu_{node.attrs['act']}",
            ELEMENTWISE(
                a=gate.at,
                a_stride=gate.stride,
                b=out.at,
                b_stride=out.stride,
                out=out.at,
                out_stride=out.stride,
                n=node.n,
                value=0,
                count=count_word(node),
            ),
            reads=(gate, out),
            writes=(out,),
            pieces=node.n,
            by_rows=node.rows == "T",
        )


def _quantised(plan: PlanBuilder, source: int, columns: int, kernel: str) -> Value:
    """The quantised copy of a node's rows that this kernel makes; made once, however many matmuls read it.

    Of a single row each thread makes all of it, unless it has just computed the part that it would round.
    """
    ready = plan.derived(source, kernel)
    if ready is not None:
        return ready
    x, node = plan.values[source], plan.graph.nodes[source]
    replicated = x.replicated or not plan.produced_locally(x, columns // BLOCK)
    out = plan.derive(source, kernel, q8_row_bytes(columns), replicated=replicated)
    plan.add(
        kernel,
        QUANTISE(x=x.at, x_stride=x.stride, k=columns, out=out.at, out_stride=out.stride, count=count_word(node)),
        reads=(x,),
        writes=(out,),
        pieces=REPLICATED if replicated else columns // BLOCK,
        by_rows=node.rows == "T",
    )
    return out


@emitter("rope")
def rope(plan: PlanBuilder, index: int, node: Node) -> None:
    spec = cast(RopeSpec, node.attrs["rope"])
    factors = plan.weights[spec.factors].array() if spec.factors else None
    cos, sin = plan.step.rope_table(spec, cast(str, node.attrs["positions"]), factors).of(node.rows)
    x, out = plan.values[node.inputs[0]], plan.output(index)
    heads = cast(int, node.attrs["heads"])
    plan.add(
        f"rope:{spec.style}",
        ROPE_ROWS(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            cos=cos.ctypes.data,
            sin=sin.ctypes.data,
            heads=heads,
            dim=node.n // heads,
            n_rot=spec.n_rot,
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=heads,
        by_rows=node.rows == "T",
    )


@emitter("kv_write")
def kv_write(plan: PlanBuilder, index: int, node: Node) -> None:
    state = cast(int, node.attrs["state"])
    shape, memory_class = plan.layout.kv_spec(state), plan.layout.layer_class[state]
    k, v = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]  # the same where keys hold their values
    if plan.kv_type in QUANTISED and shape.v_is_k_prefix and shape.dim_v % PIECE:
        raise BackendError(
            f"kv_type={plan.kv_type!r} rotates {PIECE} numbers together, and values of {shape.dim_v} within keys do "
            "not come in such pieces; choose f16 or f32."
        )
    plan.add(
        f"kv_store:{plan.kv_type}",
        KV_STORE(
            k=k.at,
            k_stride=k.stride,
            v=v.at,
            v_stride=v.stride,
            targets=plan.step.targets[memory_class].ctypes.data,
            keys_at=plan.kv.keys[state],
            values_at=plan.kv.values[state],
            n_kv=shape.n_kv_heads,
            dim_k=shape.dim_k,
            dim_v=shape.dim_v,
        ),
        reads=(k, v),
        writes=(plan.kept_in(state),),
        pieces=shape.n_kv_heads,
        by_rows=True,
    )


@emitter("attend")
def attend(plan: PlanBuilder, index: int, node: Node) -> None:
    state = cast(int, node.attrs["state"])
    shape, memory_class = plan.layout.kv_spec(state), plan.layout.layer_class[state]
    slots, n_heads, softcap = plan.layout.classes[memory_class], cast(int, node.attrs["n_heads"]), node.attrs.get("softcap")
    q, q_sink = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]
    n_kv, queries = _shared_out(n_heads, shape)
    group = _group(queries, plan.rows(index) * n_kv // plan.threads_batch)
    by_chunks = n_kv % plan.threads > 0, n_kv % plan.threads_batch > 0
    work = plan.step.attention_work(memory_class, group, node.rows, by_chunks)
    partial_bytes = _partial_bytes(group * queries, shape.dim_v)
    scratch_bytes = 2 * partial_bytes + _work_bytes(group * queries, shape, plan.kv_type)
    out, max_bias, buckets = plan.output(index), cast(float, node.attrs["max_bias"]), cast(int, node.attrs["buckets"])
    sinks = () if buckets else node.weights
    arguments = ATTENTION(
        q=q.at,
        q_stride=q.stride,
        q_sink=q_sink.at,
        q_sink_stride=q_sink.stride,
        out=out.at,
        out_stride=out.stride,
        spans=plan.step.spans_of(memory_class, node.rows).ctypes.data,
        work=work.address,
        n_kv=n_kv,
        queries=queries,
        dim_k=shape.dim_k,
        dim_v=shape.dim_v,
        scale=float_word(cast(float, node.attrs["scale"])),
        softcap=float_word(cast(float, softcap or 0.0)),
        slopes=plan.keep(_biases(plan, node, n_heads)) if max_bias or buckets else 0,
        ring=slots.ring,
        sinks=slots.sinks,
        sink_slots=sink_slots(slots),
        keys_at=plan.kv.keys[state],
        values_at=plan.kv.values[state],
        partials=plan.scratch(n_kv * work.max_partials * partial_bytes),
        partial_bytes=partial_bytes,
        scratch=plan.scratch(plan.most_threads * scratch_bytes),
        scratch_bytes=scratch_bytes,
        learned=plan.vector(sinks[0]) if sinks else 0,
    )
    variant = "_softcap" * bool(softcap) + "_alibi" * bool(max_bias) + "_relative" * bool(buckets)
    learned = "_learned" * bool(sinks)
    merge = "merge" + "_rotated" * (plan.kv_type in QUANTISED) + learned
    # Whether a thread reads only queries and keys that it has written itself. Cores that differ take the product before in chunks,
    # which a record by threads must not follow without a barrier.
    local = not (by_chunks[0] or shape.v_is_k_prefix or plan.layout.documents or system.cores_differ())
    read = (q, q_sink, plan.kept_in(state))
    plan.add(
        f"attention:{plan.kv_type}{variant}{learned}",
        arguments,
        reads=read if local else (),
        whole=() if local else read,
        writes=(out, "partials"),
        pieces=n_kv if local else None,
        by_thread=True,
        key_bytes=token_bytes(shape, plan.kv_type),
        memory_class=memory_class,
    )
    merging: Mapping[Mode, bool] = {"decode": by_chunks[0], "ragged": by_chunks[1]}
    if any(by_chunks):
        plan.add(
            f"attention_partial:{merge}",
            arguments,
            whole=("partials",),
            writes=(out,),
            pieces=n_kv,
            by_thread=True,
            modes=tuple(mode for mode, needed in merging.items() if needed),
        )


def _biases(plan: PlanBuilder, node: Node, n_heads: int) -> npt.NDArray[np.float32]:
    """Of scores, for each head: its slope by distance, or a bias for each distance, as kernels/attention_block.py reads them."""
    if not node.attrs["buckets"]:
        return alibi_slopes(n_heads, cast(float, node.attrs["max_bias"]))
    away = np.clip(np.arange(RELATIVE_ROW) - RELATIVE_FIRST, -REACH, REACH)
    return np.ascontiguousarray(relative_biases(plan.weights[node.weights[0]].array(), away).T, np.float32)


def _shared_out(n_heads: int, shape: KVSpec) -> tuple[int, int]:
    """Groups of queries that threads share, and queries of a group. One key for all heads serves groups of a few."""
    if not shape.v_is_k_prefix:
        return shape.n_kv_heads, n_heads // shape.n_kv_heads
    queries = next(n for n in (8, 6, 4, 7, 5, 3, 2, 1) if n_heads % n == 0)
    return n_heads // queries, queries


def _group(queries: int, share: int) -> int:
    """How many tokens go together, each with so many queries of a key head. `share`: a thread's part of the tokens of all heads."""
    return max(1, abi.ATTENTION_GROUP // queries, min(LARGEST_GROUP // queries, share // GROUPS_OF_THREAD))


def _partial_bytes(queries: int, head_dim: int) -> int:
    """Of the layout in kernels/attention_partial.py, to whole cache lines."""
    return -(-(queries + 1) * (head_dim + 16) * 4 // 64) * 64


def _work_bytes(queries: int, shape: KVSpec, kv_type: str) -> int:
    """Of the scores and the table in kernels/attention_block.py, to whole cache lines; where keys and values are not f32 also of a
    block of them that are, and of rotated queries for quants.
    """
    wide = abi.ATTENTION_BLOCK * (shape.dim_k + shape.dim_v) * 4 if kv_type != "f32" else 0
    wide += (queries + 1) * shape.dim_k * 4 if kv_type in QUANTISED else 0
    return -(-(abi.ATTENTION_SCORES + (queries + 1) * abi.ATTENTION_ENTRY + wide) // 64) * 64


@emitter("head_columns")
def head_columns(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out, pieces = plan.values[node.inputs[0]], plan.output(index), cast(int, node.attrs["heads"])
    plan.add(
        "columns:copy",
        COLUMNS(
            x=x.at,
            x_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            pieces=pieces,
            width=x.n // pieces,
            first=cast(int, node.attrs["start"]),
            n=node.n // pieces,
            count=count_word(node),
        ),
        reads=(x,),
        writes=(out,),
        pieces=pieces,
        by_rows=node.rows == "T",
    )


@emitter("glu")
def glu(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, f"elementwise:glu_{node.attrs['act']}", replicated=False)


@emitter("add", "mul", "silu", "gelu", "gelu_erf", "gelu_quick", "relu", "relu_squared", "tanh", "sigmoid", "softplus")
def elementwise(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, f"elementwise:{node.op}", replicated=node.op in ("add", "mul"))


CONSTANTS = {"scale": "value", "clamp": "limit", "softcap": "cap", "glu_clamped": "limit"}  # the attribute that is a constant


@emitter(*CONSTANTS)
def with_constant(plan: PlanBuilder, index: int, node: Node) -> None:
    value = float_word(cast(float, node.attrs[CONSTANTS[node.op]]))
    _elementwise(plan, index, node, f"elementwise:{node.op}", value, replicated=node.op == "scale")


@emitter("scaled_by")
def scaled_by(plan: PlanBuilder, index: int, node: Node) -> None:
    weight = node.weights[0]
    if node.attrs["one"]:
        _elementwise(plan, index, node, "elementwise:scale", float_word(float(plan.weights[weight].array()[0])), replicated=True)
    else:
        _elementwise(plan, index, node, "elementwise:mul", replicated=True, vector=plan.vector(weight))


@emitter("add_bias")
def add_bias(plan: PlanBuilder, index: int, node: Node) -> None:
    _elementwise(plan, index, node, "elementwise:add", replicated=True, vector=plan.vector(node.weights[0]))


@emitter("xielu")
def xielu(plan: PlanBuilder, index: int, node: Node) -> None:
    numbers = plan.keep(np.array(xielu_numbers(node), np.float32))
    _elementwise(plan, index, node, "elementwise:xielu", numbers, replicated=False)


def _elementwise(
    plan: PlanBuilder, index: int, node: Node, kernel: str, value: int = 0, *, replicated: bool, vector: int = 0
) -> None:
    """`value`: the constant's word. `replicated`: of a single row each thread computes all, as what comes after it needs all.

    `vector`: the address of the second operand, where it is the same for all rows.
    """
    a, b = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]
    out = (None if replicated else plan.in_place(index, node.inputs[0])) or plan.output(index, replicated=replicated)
    plan.add(
        kernel,
        ELEMENTWISE(
            a=a.at,
            a_stride=a.stride,
            b=vector or b.at,
            b_stride=0 if vector else b.stride,
            out=out.at,
            out_stride=out.stride,
            n=node.n,
            value=value,
            count=count_word(node),
        ),
        reads=(a, b),
        writes=(out,),
        pieces=REPLICATED if out.replicated else node.n,
        by_rows=node.rows == "T",
    )


@emitter("slice")
def take_columns(plan: PlanBuilder, index: int, node: Node) -> None:
    plan.view(index, node.inputs[0], cast(int, node.attrs["start"]))


@emitter("select")
def select(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index, replicated=True)
    plan.add(
        "select:rows",
        SELECT(x=x.at, x_stride=x.stride, out=out.at, out_stride=out.stride, wanted=plan.step.output_rows.ctypes.data, n=node.n),
        whole=(x,),
        writes=(out,),
        pieces=REPLICATED if out.replicated else None,
    )


@emitter("pool")
def pool(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    plan.add(
        f"pool:{node.attrs['rows']}",
        POOL(x=x.at, x_stride=x.stride, out=out.at, out_stride=out.stride, segments=plan.step.segments.ctypes.data, n=node.n),
        whole=(x,),
        writes=(out,),
    )


@emitter("softmax")
def softmax(plan: PlanBuilder, index: int, node: Node) -> None:
    x, out = plan.values[node.inputs[0]], plan.output(index)
    plan.add(
        "softmax:rows",
        ELEMENTWISE(
            a=x.at,
            a_stride=x.stride,
            b=x.at,
            b_stride=x.stride,
            out=out.at,
            out_stride=out.stride,
            n=node.n,
            value=0,
            count=count_word(node),
        ),
        whole=(x,),
        writes=(out,),
    )
