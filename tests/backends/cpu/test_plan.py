"""The CPU plan's structure: how often threads meet in a layer, and that kernels cut rows as the plan thinks they do."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_families import FIRST
from tiny_models import tiny_model

import edgellm
from edgellm import arch
from edgellm.backends.cpu import abi, jit, system
from edgellm.backends.cpu import plan as plans
from edgellm.backends.cpu.barriers import REPLICATED, Barriers, Use, partition_of_one
from edgellm.backends.cpu.buffers import Mode, Value
from edgellm.backends.cpu.executable import EXECUTOR, CpuExecutable, build_plan
from edgellm.backends.cpu.ops.dense import MATMUL
from edgellm.backends.cpu.plan import PlanBuilder, Record, _chunks_of
from edgellm.backends.cpu.pool import Pool, Program
from edgellm.backends.cpu.traits import TRAITS, q8_row_bytes, scratch_bytes
from edgellm.formats.gguf import open_gguf
from edgellm.memory.layout import plan_memory
from edgellm.passes import optimise
from edgellm.weights import WeightStore

HEADS, KV_HEADS = 8, 4
SCRATCH = MATMUL.at("scratch") // 8  # a word of a product's record: an address that is each thread's own


def plan_of(folder: Path, name: str, threads: int, n_layers: int, quant: str = "Q8_0") -> PlanBuilder:
    path = tiny_model(
        folder / f"{n_layers}.gguf",
        name,
        quant,
        n_layers=n_layers,
        n_heads=HEADS,
        n_kv_heads=KV_HEADS,
        head_dim=32,
        n_embd=256,
        n_ff=512,
    )
    gguf = open_gguf(path)
    _, graph = arch.load_graph(gguf, 64)
    layout = plan_memory(graph.states, context=64, sinks=4, chunk=8)
    return build_plan(optimise(graph, layout.with_sinks), WeightStore(gguf), layout, kv_type="f16", threads=threads)


def barriers_of_a_layer(folder: Path, name: str, threads: int) -> tuple[int, int]:
    """In steps of one token, and of several."""
    short, long = (plan_of(folder, name, threads, n_layers) for n_layers in (2, 3))
    modes: tuple[Mode, ...] = "decode", "batch"
    decode, batch = (sum(long.barriers[mode].before) - sum(short.barriers[mode].before) for mode in modes)
    return decode, batch


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_heads_that_threads_share_evenly_need_no_barrier_of_their_own(tmp_path: Path, name: str) -> None:
    assert barriers_of_a_layer(tmp_path, name, 2)[0] == 4  # before the attention's output, gate and up, down, the next layer
    assert barriers_of_a_layer(tmp_path, name, 3)[0] == 7


def test_activations_are_rounded_once_for_each_input(tmp_path: Path) -> None:
    kernels = [record.kernel for record in plan_of(tmp_path, "llama", 2, 3).records]
    assert kernels.count("quantise:q8") == 3 * 4 + 2  # q k v, output, gate up, down; the last queries, and the logits
    assert kernels.count("matmul:Q8_0") == 3 * 7 + 1


def test_both_programs_end_with_a_barrier_and_differ_in_their_own_places(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "llama", 3, 2)
    addresses = {record.kernel: 1 for record in plan.records}
    decode, batch = plan.program(addresses, "decode"), plan.program(addresses, "batch")
    assert decode.barriers == sum(plan.barriers["decode"].before) + 1 and batch.barriers == sum(plan.barriers["batch"].before) + 1
    assert (batch.table[..., :SCRATCH] == batch.table[:1, :, :SCRATCH]).all() and not batch.table[..., abi.REPLICATED].any()
    replicated = decode.table[0, :, abi.REPLICATED] == 1
    assert (decode.table[0, replicated] != decode.table[1, replicated]).any(axis=1).all()  # each has its own place for the result
    assert (decode.table[0, ~replicated, : abi.FIRST_ARGUMENT] == decode.table[1, ~replicated, : abi.FIRST_ARGUMENT]).all()


@pytest.mark.parametrize("name", FIRST)
def test_chunks_go_to_whoever_comes_first_and_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Most products are in chunks, but those cut by few heads; prompts and single tokens give the same bits as one thread's."""
    monkeypatch.setattr(system, "cores_differ", lambda: True)
    monkeypatch.setattr(plans, "CHUNK_BYTES", 1)
    monkeypatch.setattr(plans, "PANEL_ROWS", 1)
    monkeypatch.setattr("edgellm.loading.load.SMALL_MODEL", 0)
    path = tiny_model(tmp_path / "m.gguf", name, "Q4_0", n_layers=2)
    answers = []
    for threads in (1, 2, 3):
        with edgellm.load(path, backend="cpu", threads=threads, context=64) as model:
            executable = model.engine.check()
            assert isinstance(executable, CpuExecutable)
            for program, single in ((executable._programs["decode"], True), (executable._programs["batch"], False)):
                shared = products_in_chunks(program.table[0], executable._plan.records, single)
                assert executable.threads == threads
                assert 2 * sum(shared) > len(shared) if threads > 1 else not any(shared)
            answers.append(
                [model.logits(list(range(1, 41))), *(model.generate([5], max_tokens=20, temperature=0).token_ids for _ in range(2))]
            )
    for other in answers[1:]:
        assert np.array_equal(answers[0][0], other[0]) and answers[0][1:] == other[1:]


def test_equal_cores_share_a_single_token_equally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "CHUNK_BYTES", 1)
    monkeypatch.setattr(plans, "PANEL_ROWS", 1)
    plan = plan_of(tmp_path, "llama", 2, 2)
    addresses = {record.kernel: 1 for record in plan.records}
    for differ in (False, True):
        monkeypatch.setattr(system, "cores_differ", lambda differ=differ: differ)
        assert plan.program(addresses, "decode").table[..., abi.CHUNKS].any() == differ
        assert plan.program(addresses, "batch").table[..., abi.CHUNKS].any()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_wait_prefetch_their_next_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Each its own rows of the product that comes after the barrier, unless something else is read from memory before."""
    monkeypatch.setattr(plans, "AHEAD_BYTES", 700)
    plan = plan_of(tmp_path, "qwen3moe", threads, 2)
    table, records = plan.program({record.kernel: 1 for record in plan.records}, "decode").table, plan.records
    weights, row_bytes, n = (MATMUL.at(name) // 8 for name in ("weights", "row_bytes", "n"))
    found = list[int]()
    for place in np.flatnonzero(table[0, :, abi.BARRIER_AFTER]).tolist():
        later = [*range(place + 1, len(records)), *range(place + 1)]  # after the last record come those of the next step
        following = next(other for other in later if records[other].weight_bytes or records[other].key_bytes)
        for ith, words in enumerate(table[:, place]):
            if not records[following].kernel.startswith("matmul:"):
                assert words[abi.AHEAD] == 0 and words[abi.AHEAD_BYTES] == 0
                continue
            product = table[ith, following]
            first, end = (int(product[n]) * share // threads for share in (ith, ith + 1))
            assert words[abi.AHEAD] == product[weights] + first * product[row_bytes]
            assert words[abi.AHEAD_BYTES] == min(700, (end - first) * product[row_bytes])
            found.append(following)
    assert len(found) >= 2 * threads and {records[place].kernel for place in found} == {"matmul:Q8_0"}
    assert len(found) < threads * table[0, :, abi.BARRIER_AFTER].sum()  # attention and experts come first after others
    assert not table[:, table[0, :, abi.BARRIER_AFTER] == 0, abi.AHEAD].any()
    for differ, mode in ((True, "decode"), (False, "batch")):  # who takes which chunk is not known
        monkeypatch.setattr(system, "cores_differ", lambda differ=differ: differ)
        other = plan.program({record.kernel: 1 for record in plan.records}, mode)
        assert not other.table[..., abi.AHEAD].any()


def products_in_chunks(table: npt.NDArray[np.int64], records: Sequence[Record], single: bool) -> list[bool]:
    """Of each product of a table: whether threads take chunks of it."""
    found, inside = [], False
    mode = "decode" if single else "batch"
    for words, record in zip(table, (record for record in records if mode in record.modes), strict=True):
        inside = inside or bool(words[abi.CHUNKS])
        if record.weight_bytes:
            found.append(inside)
        if words[abi.BARRIER_AFTER]:
            inside = False
    return found


def test_chunks_of_records() -> None:
    """As many as the bytes are worth, and only where all cuts of a row stay the same for chunks as they are for threads."""
    product = Record("matmul", (), writes=("out",), pieces=4096, weight_bytes=64 << 20)
    gate = replace(product, kernel="glu", weight_bytes=0)
    assert _chunks_of([product], 2, True) == 32 and _chunks_of([product, product, gate], 6, True) == 48
    assert _chunks_of([replace(product, weight_bytes=1 << 20)], 2, True) == 8
    assert _chunks_of([replace(product, weight_bytes=1 << 18)], 2, True) == 0, "less than 128 KiB a chunk"
    heads = replace(gate, kernel="rope", pieces=8)
    assert _chunks_of([product, heads], 2, True) == 8 and _chunks_of([product, heads], 3, True) == 0
    key = replace(product, pieces=512, writes=("k",))
    assert _chunks_of([product, key], 3, True) == 6, "nothing in common"
    assert _chunks_of([product, heads], 3, False) == 48, "rows of several tokens are nobody's pieces"
    square = replace(product, pieces=2048, weight_rows=None, weight_bytes=2048 * 2048 * 9 // 16)
    assert _chunks_of([square], 16, True) == 0 and _chunks_of([square], 16, False) == 64, "many threads wait less for small chunks"
    assert _chunks_of([square], 4, False) == 16
    assert _chunks_of([product, replace(gate, by_thread=True)], 2, True) == _chunks_of([gate], 2, True) == 0
    assert _chunks_of([product, replace(gate, pieces=REPLICATED)], 2, True) == 0


def test_a_thread_that_is_held_up_leaves_its_chunks_to_others() -> None:
    """Two threads, of which one sleeps in its first chunk: the other takes all the rest, each chunk once, and both meet."""
    taken: list[tuple[int, int, int]] = []

    def kernel(record: int, chunk: int, of: int) -> None:
        taken.append((threading.get_ident(), chunk, of))
        if threading.current_thread() is not threading.main_thread():
            released.wait(10)
        if len(taken) == 16:
            released.set()

    released, linker = threading.Event(), jit.Linker()
    called = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(kernel)
    table = np.zeros((2, 1, abi.RECORD_WORDS), np.int64)
    table[..., abi.KERNEL], table[..., abi.CHUNKS] = ctypes.cast(called, ctypes.c_void_p).value, 16
    table[..., abi.BARRIER_AFTER] = 1
    addresses = jit.kernel_addresses(EXECUTOR, "generic", linker)
    pool = Pool(2, *(addresses[name] for name in EXECUTOR), code=linker)
    try:
        for _ in range(3):
            taken.clear()
            released.clear()
            pool.run(Program(table))
            assert sorted(chunk for _, chunk, _ in taken) == list(range(16)) and {of for _, _, of in taken} == {16}
            own = [chunk for thread, chunk, _ in taken if thread == threading.get_ident()]
            assert own == sorted(own) and own[:8] == list(range(8)), "its own share first, whose rows follow each other"
            slow = [thread for thread, _, _ in taken if thread != threading.get_ident()]
            assert len(slow) <= 1 or (len(set(slow)) == 1 and released.is_set())
    finally:
        pool.close()


def test_barriers() -> None:
    barriers = Barriers()
    assert not barriers.add([Use("a", ("decode", 1), True)])
    assert not barriers.add([Use("a", ("decode", 1), False), Use("b", None, True)])  # the same part of a
    assert barriers.produced_locally(Use("a", ("decode", 1), False))
    assert not barriers.produced_locally(Use("a", ("decode", 2), False))
    assert barriers.add([Use("a", ("decode", 2), False)])
    assert not barriers.add([Use("a", None, False)])  # readers never wait for readers
    assert barriers.add([Use("a", ("decode", 2), True)])
    assert barriers.add([Use("a", None, True)]) and barriers.add([Use("a", None, True)])


def test_even_cuts_are_equal_whatever_the_pieces() -> None:
    row, view = Value(64, 4096, 1024, 0), Value(128, 4096, 512, 0)
    assert partition_of_one(row, 8, 4) == partition_of_one(row, 1024, 4) != partition_of_one(row, 6, 4)
    assert partition_of_one(row, 8, 4) != partition_of_one(view, 8, 4)
    assert partition_of_one(row, None, 4) is None


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
    scratch = np.zeros(scratch_bytes(name, k) + 64, np.uint8)
    for ith in range(threads):
        out = np.full(n, np.nan, np.float32)
        record = MATMUL.record(
            step=step.ctypes.data,
            weights=weights.ctypes.data,
            row_bytes=weights.strides[0],
            n=n,
            k=k,
            x=x.ctypes.data,
            x_stride=len(x),
            out=out.ctypes.data,
            out_stride=out.nbytes,
            scratch=scratch.ctypes.data,
        )
        kernel(record.ctypes.data, ith, threads)
        written = np.flatnonzero(~np.isnan(out))
        np.testing.assert_array_equal(written, np.arange(n * ith // threads, n * (ith + 1) // threads))
