"""Rows of weights interleaved in memory: the same values, the same bits of every product, the same answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import BEST, ISA_LEVELS
from test_matmul_kernels import Kernels, activations, compiled, embeds_as_the_codec, product, weights
from tiny_models import tiny_model

import edgellm
from edgellm.backends.cpu import interleaving, jit, system
from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.traits import TRAITS
from edgellm.formats.gguf import open_gguf
from edgellm.formats.interleave import FILE, PACKED, UNITS, Move, deinterleaved, interleave, places, repacked
from edgellm.graph import Graph, Node
from edgellm.weights import WeightStore

Array = npt.NDArray[Any]
KERNELS = pytest.mark.skipif(not LEVELS[BEST].interleaved_rows, reason="this processor has no kernels for interleaved rows")
GREEDY = {"max_tokens": 10, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("name", UNITS)
def test_rows_move_to_their_places_and_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group, blocks, block_bytes = 16, 3, TRAITS[name].block_bytes
    rows = np.random.default_rng(0).integers(0, 256, (5 * group, blocks * block_bytes), np.uint8)
    moved = rows.copy()
    monkeypatch.setattr("edgellm.formats.interleave.PIECE", 2 * group * rows.shape[1])  # the last piece is smaller
    interleave(name, moved, group)
    assert np.array_equal(deinterleaved(name, moved, group), rows)
    if name in PACKED:  # their bits move before
        rows = repacked(rows.reshape(-1, block_bytes), FILE[name], PACKED[name]).reshape(rows.shape)
    flat = moved.reshape(5, -1)
    assert sorted(offset + i for offset, (size, _) in places(name).items() for i in range(size)) == [*range(block_bytes)]
    for g, row, block in ((0, 0, 0), (1, 7, 1), (4, 15, 2)):
        for offset, (size, place) in places(name).items():
            at = (block * block_bytes + place) * group + row * size
            first = block * block_bytes + offset
            assert np.array_equal(flat[g, at : at + size], rows[g * group + row, first : first + size])


@pytest.fixture(scope="module", params=[level for level in ISA_LEVELS if LEVELS[str(level.values[0])].interleaved_rows])
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    linker = jit.Linker()
    yield compiled(request.param, linker)
    assert linker  # the code lives as long as it does


@pytest.mark.parametrize("name", PACKED)
def test_the_kernel_moves_as_numpy_does(kernels: Kernels, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mover, group = interleaving.Mover([name], kernels.level.name), kernels.level.tile_rows
    rows = np.random.default_rng(0).integers(0, 256, (3 * group, 5 * TRAITS[name].block_bytes), np.uint8)
    expected = rows.copy()
    interleave(name, expected, group)
    monkeypatch.setattr("edgellm.formats.interleave.PIECE", 2 * group * rows.shape[1])
    mover.move(name, rows, group)
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize("name", PACKED)
def test_every_bit_has_a_place_of_its_own(name: str) -> None:
    for fields in (FILE[name], PACKED[name]):
        bits = [(field.at, field.shift + i) for block in fields for field in block for i in range(field.n)]
        assert len(bits) == len({*bits}) and max(bit for _, bit in bits) < 8
        assert all(sorted(field.bit + i for field in block for i in range(field.n)) == [*range(len(bits) // 8)] for block in fields)


@pytest.mark.parametrize("name", UNITS)
def test_products_have_the_same_bits(kernels: Kernels, name: str) -> None:
    """Of one to four columns at a time, of rest ones, of tiles; of whole superblocks and a row's end; by any number of threads."""
    rng = np.random.default_rng(1)
    for k in (1024, 256) if TRAITS[name].block == 256 else (512, 32, 480, 864):
        for n, columns in ((48, 1), (16, 2), (32, 3), (80, 4), (32, 5), (16, 6), (32, 15), (48, 16), (32, 33), (16, 39)):
            raw, _ = weights(name, n, k)
            x, _ = activations(kernels, name, columns, k)
            more = {"bias": rng.standard_normal(n, np.float32), "residual": rng.standard_normal((columns, n), np.float32)}
            expected, moved = product(kernels, name, raw, k, x, **more), raw.copy()
            interleave(name, moved, kernels.level.tile_rows)
            for threads in (1, 2, 3):
                got = product(kernels, name, moved, k, x, threads=threads, kernel=f"matmul_interleaved:{name}", **more)
                assert np.array_equal(got, expected, equal_nan=True), (k, n, columns, threads)
            gated = {"gate": rng.standard_normal((columns, n), np.float32), "act": "silu"}
            got = product(kernels, name, moved, k, x, threads=2, kernel=f"matmul_interleaved:{name}", **gated)
            assert np.array_equal(got, product(kernels, name, raw, k, x, **gated), equal_nan=True), (k, n, columns)


@pytest.mark.parametrize("name", UNITS)
def test_embeddings_have_the_same_bits(kernels: Kernels, name: str) -> None:
    rows = kernels.level.tile_rows
    embeds_as_the_codec(kernels, f"embed_interleaved:{name}", name, 512, 48, lambda table: interleave(name, table, rows))


@KERNELS
@pytest.mark.parametrize(
    ("arch", "quant", "sizes"),
    [
        ("llama", "Q8_0", {}),
        ("llama", "Q4_K", {"tied": True}),
        ("qwen3moe", "Q6_K", {}),
        ("gpt-oss", "MXFP4", {}),
        ("qwen3moe", "Q5_0", {"n_vocab": 97}),
    ],
)
def test_models_answer_alike(tmp_path: Path, arch: str, quant: str, sizes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Read into memory or mapped: logits of prompts, tokens, and sessions that one saves and the other resumes."""
    monkeypatch.setattr("edgellm.loading.load.SMALL_MODEL", 0)  # several threads
    monkeypatch.setattr(interleaving, "gains", lambda name, parallel: True)
    path, told = tiny_model(tmp_path / "m.gguf", arch, quant, **sizes), list[tuple[str, int, int]]()
    with (
        edgellm.load(path, threads=3) as mapped,
        edgellm.load(path, threads=3, mmap=False, progress=lambda what, done, of: told.append((what, done, of))) as copied,
    ):
        moved = [(done, of) for what, done, of in told if what == interleaving.WHAT]
        assert moved and moved[-1][0] == moved[-1][1] and moved == sorted(moved)
        for n in (1, 2, 3, 5, 16, 37):
            assert np.array_equal(mapped.logits([*range(1, n + 1)]), copied.logits([*range(1, n + 1)]))
        tokens = mapped.generate([1, 2, 3], **GREEDY).token_ids
        assert copied.generate([1, 2, 3], **GREEDY).token_ids == tokens
        with mapped.session() as session:
            session.generate([1, 2, 3], **GREEDY)
            session.save(tmp_path / "s")
        with copied.resume(tmp_path / "s") as session:
            assert session.n_tokens


def test_weights_that_are_interleaved_keep_their_values(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q4_K")
    with open_gguf(path) as plain:
        store = WeightStore(plain)
        assert not store.copied and not store.interleave("output.weight", 16)
        values, last = store["output.weight"].array(), store["output.weight"].data[-1].tobytes()
    gguf = open_gguf(path)
    for file in gguf.files:
        file.copy()
    store = WeightStore(gguf)
    assert store.copied and store.interleave("output.weight", 16) and store.interleave("output.weight", 16)
    weight = store["output.weight"]
    assert weight.interleaved == 16 and weight.data[-1].tobytes() != last and not weight.data.flags.writeable
    assert np.array_equal(weight.array(), values)
    n = len(weight.data)
    assert weight.rows(n - 1).tobytes() == last and np.array_equal(weight.rows(3, 40), weight.rows()[3:40])
    store.close()


@KERNELS
def test_ctrl_c_does_not_wait_for_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[str]()

    def interrupted(store: WeightStore, name: str, group: int, move: Move) -> bool:
        started.append(name)
        time.sleep(0.05)  # while others wait
        raise KeyboardInterrupt

    monkeypatch.setattr(WeightStore, "interleave", interrupted)
    monkeypatch.setattr(system, "usable_cores", lambda: 2)
    monkeypatch.setattr(interleaving, "gains", lambda name, parallel: True)
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0")
    with pytest.raises(KeyboardInterrupt):
        edgellm.load(path, mmap=False)
    assert 1 <= len(started) <= 4  # of fourteen and the output


@pytest.mark.parametrize(
    ("generation", "parallel", "gaining"), [(0, 1, "Q2_K Q4_K"), (4, 1, "Q2_K Q4_K"), (5, 1, "Q2_K"), (5, 2, "Q2_K Q4_K")]
)
def test_types_that_gain(monkeypatch: pytest.MonkeyPatch, generation: int, parallel: int, gaining: str) -> None:
    monkeypatch.setattr(system, "zen", lambda: generation)
    assert [name for name in ("Q2_K", "Q4_K") if interleaving.gains(name, parallel)] == gaining.split()


def test_weights_that_something_else_reads_stay() -> None:
    """Also those of which a product reads a part that is not made of whole groups."""

    def node(op: str, *weights: str, n: int = 32, **attrs: int) -> Node:
        return Node(op, (), "T", n, weights, attrs)

    nodes = (
        node("embed", "both", n=8),
        node("embed", "table"),
        node("matmul", "both"),
        node("matmul", "w", "bias"),
        node("matmul", "also"),
        node("other", "also"),
        node("add"),
        node("matmul", "odd", n=40),
        node("expert_matmul", "experts", k=2, start=0),
        node("expert_sum", "sum", k=2),
        node("expert_matmul", "two", k=2, start=0),
        node("expert_matmul", "two", k=2, start=16),
        node("expert_matmul", "shifted", k=2, start=0),
        node("expert_matmul", "shifted", k=2, start=8),
    )
    assert interleaving.candidates(Graph(nodes, (), {}), 16) == ["both", "w", "experts", "sum", "two"]
