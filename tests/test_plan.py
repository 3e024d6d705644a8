"""The CPU plan's structure: how often threads meet in a layer, and that kernels cut rows as the plan thinks they do."""
from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from edgellm import arch
from edgellm.backends.cpu import control, jit
from edgellm.backends.cpu.buffers import Value
from edgellm.backends.cpu.executable import build_plan
from edgellm.backends.cpu.meetings import Meetings, Use, cut_of_one
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.traits import TRAITS, q8_row_bytes, scratch_bytes
from edgellm.formats.gguf import open_gguf
from edgellm.memory.layout import plan_memory
from edgellm.passes import optimise
from edgellm.weights import WeightStore

HEADS, KV_HEADS = 8, 4


def plan_of(folder: Path, name: str, threads: int, n_layers: int, quant: str = "Q8_0") -> PlanBuilder:
    path = tiny_model(folder / f"{n_layers}.gguf", name, quant, n_layers=n_layers, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=32,
                      n_embd=256, n_ff=512)
    gguf = open_gguf(path)
    _, graph = arch.load_graph(gguf, 64)
    layout = plan_memory(graph.memory, context=64, sinks=4, chunk=8)
    return build_plan(optimise(graph), WeightStore(gguf), layout, kv_type="f16", threads=threads)


def barriers_of_a_layer(folder: Path, name: str, threads: int) -> tuple[int, int]:
    """In steps of one token, and of several."""
    short, long = (plan_of(folder, name, threads, n_layers) for n_layers in (2, 3))
    one, many = (sum(b.before) - sum(a.before) for a, b in ((short.one, long.one), (short.many, long.many)))
    return one, many


@pytest.mark.parametrize("name", arch.names())
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_layer_has_few_barriers(tmp_path: Path, name: str, threads: int) -> None:
    one, many = barriers_of_a_layer(tmp_path, name, threads)
    assert one <= 8 and many <= 10


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_heads_that_threads_share_evenly_need_no_barrier_of_their_own(tmp_path: Path, name: str) -> None:
    assert barriers_of_a_layer(tmp_path, name, 2)[0] == 6
    assert barriers_of_a_layer(tmp_path, name, 3)[0] == 7


def test_activations_are_rounded_once_for_each_input(tmp_path: Path) -> None:
    kernels = [record.kernel for record in plan_of(tmp_path, "llama", 2, 3).records]
    assert kernels.count("quantise:q8") == 3 * 4 + 1         # q k v, output, gate up, down; and the logits
    assert kernels.count("matmul:Q8_0") == 3 * 7 + 1


def test_both_programs_end_with_a_barrier_and_differ_in_their_own_places(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "llama", 3, 2)
    addresses = {record.kernel: 1 for record in plan.records}
    one, many = plan.program(addresses, one=True), plan.program(addresses, one=False)
    assert one.barriers == sum(plan.one.before) + 1 and many.barriers == sum(plan.many.before) + 1
    assert (many.table == many.table[:1]).all() and not many.table[..., control.WHOLE].any()
    alone = one.table[0, :, control.WHOLE] == 1
    assert (one.table[0, alone] != one.table[1, alone]).any(axis=1).all()             # each has its own place for the result
    assert (one.table[0, ~alone, : control.FIRST_ARGUMENT] == one.table[1, ~alone, : control.FIRST_ARGUMENT]).all()


def test_meetings() -> None:
    meetings = Meetings()
    assert not meetings.add([Use("a", ("one", 1), True)])
    assert not meetings.add([Use("a", ("one", 1), False), Use("b", None, True)])      # the same part of a
    assert meetings.made_here(Use("a", ("one", 1), False)) and not meetings.made_here(Use("a", ("one", 2), False))
    assert meetings.add([Use("a", ("one", 2), False)])
    assert not meetings.add([Use("a", None, False)])                                  # readers never wait for readers
    assert meetings.add([Use("a", ("one", 2), True)])
    assert meetings.add([Use("a", None, True)]) and meetings.add([Use("a", None, True)])


def test_even_cuts_are_equal_whatever_the_pieces() -> None:
    row, view = Value(64, 4096, 1024, 0), Value(128, 4096, 512, 0)
    assert cut_of_one(row, 8, 4) == cut_of_one(row, 1024, 4) != cut_of_one(row, 6, 4)
    assert cut_of_one(row, 8, 4) != cut_of_one(view, 8, 4)
    assert cut_of_one(row, None, 4) is None


@pytest.mark.parametrize("name", ["F32", "F16", "Q4_0", "Q6_K", "MXFP4"])
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_products_cut_a_row_as_the_plan_thinks(name: str, threads: int) -> None:
    """Thread i of one column's product writes rows n * i // threads to n * (i + 1) // threads, and no others: records that follow
    without a barrier rely on it.
    """
    n, k = 46, 256
    traits, linker = TRAITS[name], jit.Linker()
    address = jit.kernel_addresses([traits.matmul], "generic", linker)[traits.matmul]
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
    weights = np.zeros((n, k // traits.block * traits.block_bytes), np.uint8)
    x, step = np.zeros(max(q8_row_bytes(k), 4 * k), np.uint8), np.ones(2, np.int64)
    scratch = np.zeros(threads * max(scratch_bytes(name, k), 1) + 64, np.uint8)
    for ith in range(threads):
        out, record = np.full(n, np.nan, np.float32), np.zeros(control.RECORD_WORDS, np.int64)
        record[1:10] = (step.ctypes.data, weights.ctypes.data, weights.strides[0], n, k, x.ctypes.data, len(x), out.ctypes.data,
                        out.nbytes)
        record[14:16] = scratch.ctypes.data, scratch_bytes(name, k)
        kernel(record.ctypes.data, ith, threads)
        written = np.flatnonzero(~np.isnan(out))
        np.testing.assert_array_equal(written, np.arange(n * ith // threads, n * (ith + 1) // threads))
