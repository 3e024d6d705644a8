"""Steps of several conversations: on the CPU each gets the bits that it gets alone, whoever shares its steps; on MLX nearly so."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_encoders import writers
from tiny_models import tiny_model

from edgellm import arch
from edgellm.backends import find
from edgellm.backends.base import BackendOptions, Executable, State, StepBatch
from edgellm.backends.cpu.kv_cache import _pages
from edgellm.backends.cpu.state import CpuState
from edgellm.engine import conversation
from edgellm.formats.gguf import open_gguf
from edgellm.memory.layout import MemoryClass, plan_memory
from edgellm.memory.pages import PageTable, n_pages
from edgellm.memory.sequence import Sequence as TokenSequence
from edgellm.passes import optimise
from edgellm.weights import WeightStore

Logits = npt.NDArray[np.float32]
CONTEXT, CHUNK = 300, 64  # rings of 512 slots wrap within 600 tokens


@contextmanager
def ready(
    path: Path, *, kv_type: str = "f16", threads: int = 2, backend: str = "cpu", context: int = CONTEXT
) -> Iterator[Executable]:
    gguf = open_gguf(path)
    _, graph = arch.load_graph(gguf, context)
    weights = WeightStore(gguf)
    layout = plan_memory(graph.states, context=context, sinks=4, chunk=CHUNK)
    executable = find(backend).prepare(optimise(graph, layout.with_sinks), weights, layout, BackendOptions(kv_type, threads))
    try:
        yield executable
    finally:
        executable.close()
        weights.close()


class Conversation:
    """One conversation's tokens, state and the logits of all its steps' last rows."""

    def __init__(self, executable: Executable, seed: int, state: State | None = None) -> None:
        self.state = executable.new_state() if state is None else state
        self.sequence = TokenSequence(executable.layout)
        self.rng = np.random.default_rng(seed)
        self.logits: list[Logits] = []

    def next(self, n: int) -> StepBatch:
        self.tokens = self.rng.integers(3, 90, n).astype(np.int32)
        return self.step(self.tokens, np.array([n - 1], np.int32))

    def step(self, ids: npt.NDArray[np.int32], output_rows: npt.NDArray[np.int32]) -> StepBatch:
        return conversation.Conversation(self.sequence, self.state).step(ids, output_rows)

    def took(self, logits: Logits) -> None:
        self.logits.append(logits.copy())
        self.sequence.extend(self.tokens)


def run(executable: Executable, conversations: Sequence[Conversation], steps: Sequence[Sequence[int]]) -> None:
    """Steps in which conversation i has `steps[.][i]` tokens, 0 for none."""
    for sizes in steps:
        taking = [(one, n) for one, n in zip(conversations, sizes, strict=True) if n]
        logits = executable.submit(StepBatch.joined([one.next(n) for one, n in taking])).wait()["logits"]
        for (one, _), row in zip(taking, logits, strict=True):
            one.took(row)


def mixed(n: int, rounds: int, longest: int) -> list[list[int]]:
    """Pieces of prompts beside single tokens, late joiners, and some that pause; no step above the chunk."""
    rng, steps = np.random.default_rng(n), []
    for index in range(rounds):
        sizes = [1 if index >= i and rng.random() < 0.8 else 0 for i in range(n)]
        sizes[index % n] = int(rng.integers(1, min(longest, CHUNK - n) + 1))
        steps.append(sizes)
    return steps


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize(
    ("name", "quant", "kv_type"),
    [
        ("llama", "Q4_0", "f16"),
        ("gemma3", "F32", "f16"),
        ("qwen3", "Q4_K", "q8_0"),
        ("lfm2", "Q4_0", "f16"),
        ("deepseek2", "Q8_0", "q8_0"),
        ("llama", "F32", "q4_0"),
        ("rwkv7", "Q4_0", "f16"),
        ("rwkv6", "Q4_0", "f16"),
        ("mamba2", "Q4_0", "f16"),
        ("gemma4", "F32", "f16"),
    ],
)
def test_together_as_alone(tmp_path: Path, name: str, quant: str, kv_type: str, n: int) -> None:
    path = tiny_model(tmp_path / "m.gguf", name, quant, window=24)
    hold_together_to_alone(path, kv_type, n, mixed(n, 20, 40))


@pytest.mark.slow
@pytest.mark.parametrize("name", writers())
def test_together_as_alone_in_every_architecture(tmp_path: Path, name: str) -> None:
    hold_together_to_alone(tiny_model(tmp_path / "m.gguf", name, "Q8_0"), "f16", 2, mixed(2, 8, 20))


def hold_together_to_alone(path: Path, kv_type: str, n: int, steps: Sequence[Sequence[int]]) -> None:
    with ready(path, kv_type=kv_type) as executable, ready(path, kv_type=kv_type, threads=1) as other:
        together = [Conversation(executable, i) for i in range(n)]
        run(executable, together, steps)
        for i, one in enumerate(together):
            alone = Conversation(other, i)
            run(other, [alone], [[sizes[i]] for sizes in steps if sizes[i]])
            assert len(alone.logits) == len(one.logits) > 0
            assert all(np.array_equal(a, b) for a, b in zip(alone.logits, one.logits, strict=True)), i


@pytest.mark.parametrize(
    ("backend", "name", "quant"),
    [
        ("cpu", "llama", "Q4_0"),
        ("cpu", "gemma4", "F32"),
        ("cpu", "gemma3n", "Q4_0"),
        ("cpu", "qwen3moe", "Q8_0"),
        ("cpu", "deepseek2", "Q8_0"),
        ("cpu", "bloom", "F32"),
        ("mlx", "gemma4", "F32"),
        ("mlx", "bloom", "F32"),
    ],
)
@pytest.mark.usefixtures("mlx_products")
def test_wanted_rows_are_as_if_all_were_wanted(tmp_path: Path, backend: str, name: str, quant: str) -> None:
    """Values that no state depends on are computed for wanted rows alone: some amid a step, the last, one by itself, or none."""
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")
    path = tiny_model(tmp_path / "m.gguf", name, quant, window=24)
    steps = [(32, [3, 4, 17, 30]), (32, [31]), (1, []), (1, [0]), (20, [])] + [(32, [0, 31])] * (20 if name != "bloom" else 2)
    with ready(path, backend=backend) as executable:
        some, whole = ([Conversation(executable, seed) for seed in (1, 2)] for _ in range(2))
        for n, rows in steps:
            wanted = np.array(rows, np.int32)
            batches = [one.next(n) for one in some]
            found = executable.submit(StepBatch.joined([replace(batch, output_rows=wanted) for batch in batches])).wait()["logits"]
            found = found.copy()
            for i, (one, batch) in enumerate(zip(whole, batches, strict=True)):
                again = replace(one.next(n), output_rows=np.arange(n, dtype=np.int32))
                assert np.array_equal(again.tokens, batch.tokens)
                logits = executable.submit(again).wait()["logits"][rows]
                mine = found[i * len(rows) : (i + 1) * len(rows)]
                assert np.array_equal(mine, logits) if backend == "cpu" else not rows or np.abs(mine - logits).max() <= 1e-4
            for one, batch in zip([*some, *whole], batches * 2, strict=True):
                one.sequence.extend(batch.tokens)


def test_long_beside_short_and_wrapped(tmp_path: Path) -> None:
    """One conversation goes round its ring more than once while others begin: what it sees is shared out chunk by chunk."""
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q8_0")
    steps = [[58, 1, 1]] * 12 + [[1, 1, 1]] * 40
    with ready(path) as executable:
        together = [Conversation(executable, i) for i in range(3)]
        run(executable, together, steps)
        assert len(together[0].sequence) > 600 + 100 and len(together[1].sequence) == 52
        for i, one in enumerate(together):
            alone = Conversation(executable, i)
            run(executable, [alone], [[sizes[i]] for sizes in steps])
            assert all(np.array_equal(a, b) for a, b in zip(alone.logits, one.logits, strict=True)), i


@pytest.mark.parametrize(("before", "kv_type"), [(100, "f16"), (290, "f16"), (900, "f16"), (290, "q4_0")])
def test_forks_continue_independently(tmp_path: Path, before: int, kv_type: str) -> None:
    """After a fork both go on as if nobody else were there, also when the ring comes round to pages that they share."""
    path = tiny_model(tmp_path / "m.gguf", "gemma3", window=24)
    prompt = [[50]] * (before // 50) + [[before % 50 or 1]]
    with ready(path, kv_type=kv_type) as executable:
        first = Conversation(executable, 1)
        run(executable, [first], prompt)
        second = Conversation(executable, 2, first.state.fork())
        second.sequence = first.sequence.fork() if hasattr(first.sequence, "fork") else _copied(first.sequence)
        own = second.state.kv.own_bytes
        assert own == 0, "nothing is copied before somebody writes"
        run(executable, [first, second], [[20, 20]] * 15 + [[1, 1]] * 5)
        for seed, one in ((1, first), (2, second)):
            alone = Conversation(executable, 1)
            run(executable, [alone], prompt)
            if seed == 2:
                alone.rng, alone.logits = np.random.default_rng(2), []
            run(executable, [alone], [[20]] * 15 + [[1]] * 5)
            assert all(np.array_equal(a, b) for a, b in zip(alone.logits, one.logits, strict=True))


def _copied(sequence: TokenSequence) -> TokenSequence:
    other = TokenSequence(sequence.layout)
    for first in range(0, len(sequence), CHUNK):
        tokens = np.array(sequence.ids[first : first + CHUNK], np.int32)
        other.place(len(tokens))
        other.extend(tokens)
    return other


def test_forks_share_what_they_do_not_write(tmp_path: Path) -> None:
    """Eight forks of a long conversation that write ten tokens each take the pages they wrote, not eight copies."""
    path = tiny_model(tmp_path / "m.gguf", "llama")
    with ready(path, context=4200) as executable:
        first = Conversation(executable, 1)
        run(executable, [first], [[64]] * 62)
        whole = first.state.nbytes
        forks = [Conversation(executable, i, first.state.fork()) for i in range(8)]
        for fork in forks:
            fork.sequence = _copied(first.sequence)
        run(executable, forks, [[1] * 8] * 10)
        assert sum(fork.state.kv.own_bytes for fork in forks) <= 0.15 * 8 * whole
        del forks, fork
        run(executable, [first], [[1]])  # the threads hold what the last step wrote to
        assert first.state.kv.own_bytes == whole


@pytest.mark.parametrize(("backend", "kv_type"), [("cpu", "f16"), ("cpu", "q4_0"), ("mlx", "f16")])
def test_saved_states_continue(tmp_path: Path, backend: str, kv_type: str) -> None:
    if backend == "mlx":
        pytest.importorskip("mlx.core")
    path = tiny_model(tmp_path / "m.gguf", "gemma3", window=24)
    with ready(path, backend=backend, kv_type=kv_type) as executable:
        one = Conversation(executable, 1)
        run(executable, [one], [[60]] * 7 + [[1]] * 3)
        file = io.BytesIO()
        one.state.save(file)
        data = file.getvalue()
        again = Conversation(executable, 1, executable.load_state(io.BytesIO(data)))
        again.rng, again.sequence = np.random.default_rng(5), _copied(one.sequence)
        one.rng, one.logits = np.random.default_rng(5), []
        run(executable, [one], [[3], [1], [20], [1]])
        run(executable, [again], [[3], [1], [20], [1]])
        assert all(np.array_equal(a, b) for a, b in zip(one.logits, again.logits, strict=True))
        for cut in (0, 5, 8, 100, len(data) // 2, len(data) - 1):
            with pytest.raises(ValueError):
                executable.load_state(io.BytesIO(data[:cut]))


@pytest.mark.usefixtures("mlx_products")
def test_mlx_takes_segments_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    path, steps = tiny_model(tmp_path / "m.gguf", "llama"), mixed(3, 8, 20)
    with ready(path, backend="mlx") as executable:
        together = [Conversation(executable, i) for i in range(3)]
        run(executable, together, steps)
        for i, one in enumerate(together):
            alone = Conversation(executable, i)
            run(executable, [alone], [[sizes[i]] for sizes in steps if sizes[i]])
            assert np.abs(np.array(alone.logits) - np.array(one.logits)).max() < 1e-4


def test_pages_are_counted_and_copied_once() -> None:
    memory = MemoryClass(4, 500, 768)
    slots = np.array([0, 3, 4, 259, 260, 771], np.int32)
    assert n_pages(memory) == 4 and _pages(memory, slots).tolist() == [0, 0, 1, 1, 2, 3]
    made: list[list[int]] = []

    def make() -> list[int]:
        made.append([])
        return made[-1]

    first: PageTable[list[int]] = PageTable(n_pages(memory))
    first.own(1, make, list).append(7)
    assert list(first) == [None, [7], None, None] and first.is_own(1)
    second = first.fork()
    assert not first.is_own(1) and not second.is_own(1) and second.at(1) is first.at(1)
    second.own(1, make, list).append(8)
    assert first.at(1) == [7] and second.at(1) == [7, 8] and first.is_own(1) and second.is_own(1) and len(made) == 1
    third = second.fork()
    third.release()
    assert second.is_own(1) and third.at(1) is None


def test_caches_of_another_layout_are_refused(tmp_path: Path) -> None:
    path, file = tiny_model(tmp_path / "m.gguf", "llama"), io.BytesIO()
    with ready(path) as executable, ready(path, context=CHUNK) as small:
        one = Conversation(executable, 1)
        run(executable, [one], [[60]] * 8)
        assert isinstance(one.state, CpuState)
        one.state.save(file)
        with pytest.raises(ValueError):
            small.load_state(io.BytesIO(file.getvalue()))
