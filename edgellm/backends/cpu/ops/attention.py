"""Rotary embeddings, keys and values written to the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from edgellm.backends.cpu import abi, system
from edgellm.backends.cpu.buffers import Mode
from edgellm.backends.cpu.ops._table import count_word, emitter, float_of, float_word, integer
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.record import Record, Signature
from edgellm.errors import BackendError, OptionValue
from edgellm.graph import KVSpec, Node, RopeSpec
from edgellm.memory.kv_types import BLOCK, QUANTISED
from edgellm.memory.pages import sink_slots
from edgellm.memory.sizes import token_bytes
from edgellm.ops.attention import REACH, alibi_slopes, relative_biases

ROPE = Signature("x x_stride out out_stride cos sin heads dim n_rot count")
KV_STORE = Signature("k k_stride v v_stride targets keys_at values_at n_kv dim_k dim_v")
ATTENTION = Signature(
    "q q_stride q_sink q_sink_stride out out_stride spans work n_kv queries dim_k dim_v scale softcap slopes ring "
    "sinks sink_slots keys_at values_at partials partial_bytes scratch scratch_bytes learned"
)
# Biases of scores by distance: a row for each head, from keys long before a query to keys long after it.
RELATIVE_FIRST: Final = 144  # where the bias of distance 0 is: 128 before it differ, 16 more are the first's
RELATIVE_ROW: Final = 2 * RELATIVE_FIRST  # biases of a row, so that 16 keys from any distance on have theirs in one piece
LARGEST_GROUP = 64  # queries that read keys together: 10 % faster than 16 after 4096 tokens, on Zen 3
GROUPS_OF_THREAD = 8  # at least: later groups see more keys, and threads should end together


@emitter("rope")
def rope(plan: PlanBuilder, index: int, node: Node) -> None:
    spec, heads = cast(RopeSpec, node.attrs["rope"]), integer(node, "heads")
    factors = plan.weights[spec.factors].array() if spec.factors else None
    cos, sin = plan.step.rope_table(spec, cast(str, node.attrs["positions"]), factors).of(node.rows)
    x, out = plan.values[node.inputs[0]], plan.output(index)
    parts = 2 if spec.style == "axial" else 1  # of a head, each rotated as one
    plan.add(
        Record(
            f"rope:{spec.style}",
            ROPE(
                x=x,
                out=out,
                cos=cos.ctypes.data,
                sin=sin.ctypes.data,
                heads=heads * parts,
                dim=node.n // heads // parts,
                n_rot=spec.n_rot // parts,
                count=count_word(node),
            ),
            reads=(x,),
            writes=(out,),
            pieces=heads,
            by_rows=node.rows == "T",
        )
    )


@emitter("kv_write")
def kv_write(plan: PlanBuilder, index: int, node: Node) -> None:
    state = integer(node, "state")
    shape, memory_class = plan.layout.kv_spec(state), plan.layout.layer_class[state]
    k, v = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]  # the same where keys hold their values
    if plan.kv_type in QUANTISED and shape.v_is_k_prefix and shape.dim_v % BLOCK:
        raise BackendError(
            OptionValue("kv_type", plan.kv_type),
            f" rotates {BLOCK} numbers together, and values of {shape.dim_v} within keys do not come in such pieces; "
            "choose f16 or f32.",
        )
    plan.add(
        Record(
            f"kv_store:{plan.kv_type}",
            KV_STORE(
                k=k,
                v=v,
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
    )


@emitter("attend")
def attend(plan: PlanBuilder, index: int, node: Node) -> None:
    state = integer(node, "state")
    shape, memory_class = plan.layout.kv_spec(state), plan.layout.layer_class[state]
    slots, n_heads, softcap = plan.layout.classes[memory_class], integer(node, "n_heads"), node.attrs.get("softcap")
    q, q_sink = plan.values[node.inputs[0]], plan.values[node.inputs[-1]]
    n_kv, queries = _shared_out(n_heads, shape)
    group = _group(queries, plan.rows(index) * n_kv // plan.threads_batch)
    by_chunks = n_kv % plan.threads > 0, n_kv % plan.threads_batch > 0
    work = plan.step.attention_work(memory_class, group, node.rows, by_chunks)
    partial_bytes = _partial_bytes(group * queries, shape.dim_v)
    scratch_bytes = 2 * partial_bytes + _work_bytes(group * queries, shape, plan.kv_type)
    out, max_bias, buckets = plan.output(index), cast(float, node.attrs["max_bias"]), integer(node, "buckets")
    sinks = () if buckets else node.weights
    arguments = ATTENTION(
        q=q,
        q_sink=q_sink,
        out=out,
        spans=plan.step.spans_of(memory_class, node.rows).ctypes.data,
        work=work.address,
        n_kv=n_kv,
        queries=queries,
        dim_k=shape.dim_k,
        dim_v=shape.dim_v,
        scale=float_of(node, "scale"),
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
    # A thread reads only queries and keys that it has written itself. Unequal cores take the product before in chunks, which a
    # record by threads must not follow without a barrier.
    local = not (by_chunks[0] or shape.v_is_k_prefix or plan.layout.documents or system.cores_differ())
    read = (q, q_sink, plan.kept_in(state))
    plan.add(
        Record(
            f"attention:{plan.kv_type}{variant}{learned}",
            arguments,
            reads=read if local else (),
            reads_all=() if local else read,
            writes=(out, "partials"),
            pieces=n_kv if local else None,
            by_thread=True,
            key_bytes=token_bytes(shape, plan.kv_type),
            memory_class=memory_class,
        )
    )
    merging: Mapping[Mode, bool] = {"decode": by_chunks[0], "ragged": by_chunks[1]}
    if any(by_chunks):
        plan.add(
            Record(
                "attention_partial:merge" + "_rotated" * (plan.kv_type in QUANTISED) + learned,
                arguments,
                reads_all=("partials",),
                writes=(out,),
                pieces=n_kv,
                by_thread=True,
                modes=tuple(mode for mode, needed in merging.items() if needed),
            )
        )


def _biases(plan: PlanBuilder, node: Node, n_heads: int) -> npt.NDArray[np.float32]:
    """Of scores, for each head: its slope by distance, or a bias for each distance, as attention_block.py reads them."""
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
    """Tokens of a group, each with so many queries of a key head. `share`: a thread's part of the tokens of all heads."""
    return max(1, abi.ATTENTION_GROUP // queries, min(LARGEST_GROUP // queries, share // GROUPS_OF_THREAD))


def _partial_bytes(queries: int, head_dim: int) -> int:
    """Of the layout in kernels/attention/attention_partial.py, rounded up to cache lines."""
    return -(-(queries + 1) * (head_dim + 16) * 4 // 64) * 64


def _work_bytes(queries: int, shape: KVSpec, kv_type: str) -> int:
    """Of the scores and the table in attention_block.py, rounded up to cache lines, and of a block of keys converted to f32 or
    transposed; where keys and values are not f32, also of a block of values, and of rotated queries for quants.
    """
    wide = abi.ATTENTION_BLOCK * (shape.dim_k + (shape.dim_v if kv_type != "f32" else 0)) * 4
    wide += (queries + 1) * shape.dim_k * 4 if kv_type in QUANTISED else 0
    return -(-(abi.ATTENTION_SCORES + (queries + 1) * abi.ATTENTION_ENTRY + wide) // 64) * 64
