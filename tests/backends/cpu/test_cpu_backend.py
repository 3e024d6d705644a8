"""The CPU back end against the reference interpreter: every architecture, type, ISA level, thread count and step size."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence as Tokens
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from isa_levels import FLOAT_LEVELS
from tiny_encoders import writers
from tiny_families import FIRST
from tiny_models import QUANTS, tiny_model
from variants import CONTEXT, GOLD, ROWS, VARIANTS
from variants import tokens as variant_tokens

from edgellm import arch
from edgellm.backends.base import SMALLEST_STEP, StepSize, StepStopped
from edgellm.backends.cpu import executable as cpu
from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.executable import CpuExecutable, prepare
from edgellm.backends.cpu.ops import attention
from edgellm.engine.conversation import Conversation
from edgellm.errors import BackendError, OptionError
from edgellm.formats.gguf import open_gguf
from edgellm.memory.layout import plan_memory
from edgellm.memory.sequence import Sequence
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.weights import WeightStore

Logits = npt.NDArray[np.float32]
TOKENS = [1, 17, 3, 90, 44, 2, 61, 61, 8, 33, 70, 12, 5, 28, 9, 80, 3, 14, 15, 92, 65]


@contextmanager
def ready(
    path: Path,
    *,
    threads: int = 2,
    threads_batch: int | None = None,
    chunk: int = 8,
    context: int = 64,
    sinks: int = 4,
    kv_type: str = "f32",
) -> Iterator[tuple[CpuExecutable, Reference]]:
    gguf = open_gguf(path)
    _, graph = arch.load_graph(gguf, context)
    weights = WeightStore(gguf)
    layout = plan_memory(graph.states, context=context, sinks=sinks, chunk=chunk)
    executable = prepare(
        optimise(graph, layout.with_sinks), weights, layout, kv_type=kv_type, threads=threads, threads_batch=threads_batch
    )
    try:
        yield executable, Reference(graph, weights)
    finally:
        executable.close()
        weights.close()


def logits(executable: CpuExecutable, tokens: Tokens[int], chunk: int | None = None) -> Logits:
    """Logits of every token from a fresh state, `chunk` tokens a step."""
    state, sequence, rows = executable.new_state(), Sequence(executable.layout), []
    size = chunk or executable.max_tokens
    for first in range(0, len(tokens), size):
        part = np.array(tokens[first : first + size], np.int32)
        step = Conversation(sequence, state).step(part, np.arange(len(part), dtype=np.int32))
        rows.append(executable.submit(step).wait()["logits"].copy())
        sequence.extend(part)
    return np.concatenate(rows)


def relative(a: Logits, b: Logits) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("name", writers())
def test_float_models_equal_the_reference(tmp_path: Path, name: str) -> None:
    """Float32 sums in another order: 1e-5 of the largest logit is ten times what was seen. The same bits in pieces of any size."""
    with ready(tiny_model(tmp_path / "m.gguf", name), chunk=32) as (executable, reference):
        whole = logits(executable, TOKENS)
        assert relative(whole, reference.logits(TOKENS)) < 1e-5
        for chunk in (7, 1):
            np.testing.assert_array_equal(logits(executable, TOKENS, chunk), whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_agree_with_transformers(tmp_path: Path, name: str) -> None:
    """1e-4 of the largest logit, as for every float32 file; windows, biases by distance and scalings are past their first reach."""
    variant, gold = VARIANTS[name], np.load(GOLD / f"{name}.npz")
    context = min(CONTEXT, variant.sizes.get("context", 128))
    with ready(variant.write(tmp_path / "m.gguf"), chunk=32, context=context) as (executable, reference):
        ids = variant_tokens(reference.graph.nodes[-1].n).tolist()
        got = logits(executable, ids)
        assert np.abs(got[list(ROWS)] - gold["logits"]).max() <= 1e-4 * np.abs(gold["logits"]).max()
        np.testing.assert_array_equal(logits(executable, ids, 7), got)


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
@pytest.mark.parametrize(("n_heads", "n_embd"), [(4, 64), (6, 60)])
def test_biases_by_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isa: str, n_heads: int, n_embd: int) -> None:
    """More keys than a block, numbers of heads that are not powers of two, dims past the last eight; the same bits in any steps."""
    monkeypatch.setenv("EDGELLM_ISA", isa)
    path = tiny_model(tmp_path / "m.gguf", "bloom", n_layers=1, n_heads=n_heads, n_embd=n_embd)
    with ready(path, chunk=16) as (executable, reference):
        tokens = TOKENS * 2
        whole = logits(executable, tokens)
        assert relative(whole, reference.logits(tokens)) < 1e-5
        for chunk in (1, 3):
            np.testing.assert_array_equal(logits(executable, tokens, chunk), whole)


@pytest.mark.parametrize("kv_type", ["f32", "q8_0"])
def test_scores_with_a_soft_cap(tmp_path: Path, kv_type: str) -> None:
    """A cap that is felt: without it the logits are another model's."""
    path = tiny_model(tmp_path / "m.gguf", "gemma3", metadata={"{arch}.attn_logit_softcapping": 0.05})
    plain = tiny_model(tmp_path / "plain.gguf", "gemma3")
    with ready(path, kv_type=kv_type) as (executable, reference), ready(plain) as (other, _):
        assert relative(logits(executable, TOKENS), reference.logits(TOKENS)) < (1e-5 if kv_type == "f32" else 0.02)
        assert relative(logits(other, TOKENS), reference.logits(TOKENS)) > 0.03


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_in_parts_is_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    with ready(tiny_model(tmp_path / "m.gguf", "llama", "Q4_0"), threads=threads) as (executable, _):
        whole = logits(executable, TOKENS)
        monkeypatch.setattr(cpu, "PART", 1)
        assert np.array_equal(logits(executable, TOKENS), whole)


@pytest.mark.parametrize("asked", range(1, 9))
def test_a_step_that_was_stopped_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    """Stopped when it asks for the n-th time: the conversation is as it was, and goes on with the same logits."""
    monkeypatch.setattr(cpu, "PART", 1)
    with ready(tiny_model(tmp_path / "m.gguf", "llama")) as (executable, _):
        wanted = logits(executable, TOKENS[:8])
        state, sequence, times = executable.new_state(), Sequence(executable.layout), 0

        def stop() -> bool:
            nonlocal times
            times += 1
            return times == asked

        step = Conversation(sequence, state).step(np.array(TOKENS[:8], np.int32), np.arange(8, dtype=np.int32))
        with pytest.raises(StepStopped):
            executable.submit(step).wait(stop)
        assert times == asked and np.array_equal(executable.submit(step).wait()["logits"], wanted)


def test_steps_get_shorter_only_where_they_cannot_be_stopped_soon(tmp_path: Path) -> None:
    step_size = StepSize(256)
    step_size.note(256, 0.01)
    assert step_size.tokens == 256
    step_size.note(256, 1.0)
    assert SMALLEST_STEP < step_size.tokens < 64
    step_size.note(2, 9.0)  # a short step tells nothing
    assert step_size.tokens > SMALLEST_STEP
    step_size.note(step_size.tokens, 60.0)
    assert step_size.tokens == SMALLEST_STEP
    step_size.note(SMALLEST_STEP, 0.001)
    assert step_size.tokens == 256
    with ready(tiny_model(tmp_path / "m.gguf", "llama"), chunk=32) as (executable, _):
        for _ in range(3):
            logits(executable, TOKENS * 2, chunk=32)
        assert executable.step_size.tokens == 32, "a tiny model needs no shorter steps"


@pytest.mark.parametrize("quant", QUANTS)
def test_quantised_models_are_close_to_the_reference(tmp_path: Path, quant: str) -> None:
    """Activations are rounded to 8 bits (about 0.4 % of a block's largest); random weights make that at most 6 % of the logits."""
    with ready(tiny_model(tmp_path / "m.gguf", "llama", quant)) as (executable, reference):
        ceiling = 1e-5 if quant in ("F32", "F16", "BF16") else 0.06
        assert relative(logits(executable, TOKENS), reference.logits(TOKENS)) < ceiling


@pytest.mark.parametrize("quant", ["F32", "Q4_0", "Q6_K"])
def test_results_do_not_depend_on_threads_or_step_size(tmp_path: Path, quant: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", quant)
    with ready(path, threads=1) as (one, _):
        expected = logits(one, TOKENS)
        for chunk in (1, 3, 5):
            np.testing.assert_array_equal(logits(one, TOKENS, chunk), expected)
    for threads in (2, 3):
        with ready(path, threads=threads) as (several, _):
            np.testing.assert_array_equal(logits(several, TOKENS), expected)
            np.testing.assert_array_equal(logits(several, TOKENS, 1), expected)


@pytest.mark.parametrize(
    ("isa", "quant"),
    [
        pytest.param(isa, quant, marks=[] if quant == "Q4_K" or isa == system.usable_isas()[-1] else pytest.mark.slow)
        for quant in ("F16", "Q4_K", "IQ4_NL")
        for isa in system.usable_isas()
    ],
)
def test_every_isa_level_of_the_ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isa: str, quant: str) -> None:
    monkeypatch.setenv("EDGELLM_ISA", isa)
    with ready(tiny_model(tmp_path / "m.gguf", "gemma3", quant), kv_type="f16") as (executable, reference):
        assert executable.isa == isa
        assert relative(logits(executable, TOKENS), reference.logits(TOKENS)) < 0.06


@pytest.mark.parametrize("isa", FLOAT_LEVELS)
@pytest.mark.parametrize(
    ("kv_type", "shape"),
    [
        *(("f32", shape) for shape in [(1, 1, 6), (3, 1, 20), (5, 1, 36), (12, 2, 44), (7, 1, 64), (20, 1, 10)]),
        ("f16", (5, 1, 36)),
        ("f16", (12, 2, 64)),
    ],
)
def test_attention_of_any_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isa: str, kv_type: str, shape: tuple[int, int, int]
) -> None:
    """Queries by fours, by twos and left over; dims past the last eight; more keys than a block. The same bits in any steps."""
    monkeypatch.setenv("EDGELLM_ISA", isa)
    n_heads, n_kv_heads, head_dim = shape
    path = tiny_model(tmp_path / "m.gguf", n_layers=1, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim)
    with ready(path, chunk=16, kv_type=kv_type) as (executable, reference):
        tokens = TOKENS * 2
        whole = logits(executable, tokens)
        assert relative(whole, reference.logits(tokens)) < {"f32": 1e-5, "f16": 5e-3}[kv_type]
        for chunk in (1, 3):
            np.testing.assert_array_equal(logits(executable, tokens, chunk), whole)


@pytest.mark.parametrize(("kv_type", "head_dim"), [("f16", 16), ("q8_0", 16), ("q8_0", 32), ("q4_0", 64)])
def test_how_many_queries_read_keys_together_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv_type: str, head_dim: int
) -> None:
    """Also past the context, where the ring wraps within a group and its sinks stay. Quants of whole blocks are integers."""
    path, found = tiny_model(tmp_path / "m.gguf", "qwen3", head_dim=head_dim), []
    ids = [(7 * i * i + 3) % 90 + 3 for i in range(150)]
    monkeypatch.setattr(cpu, "MAX_OUTPUTS", 48)
    for group in (1, 3, 64):
        monkeypatch.setattr(attention, "_group", lambda queries, share, group=group: group)
        with ready(path, chunk=48, context=64, kv_type=kv_type) as (executable, _):
            found.append(logits(executable, ids, 48 if group > 1 else 1))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


@pytest.mark.parametrize(("queries", "share", "tokens"), [(1, 1024, 64), (7, 256, 9), (8, 64, 8), (2, 32, 8), (96, 9, 1)])
def test_groups_are_large_where_threads_have_enough_of_them(queries: int, share: int, tokens: int) -> None:
    assert attention._group(queries, share) == tokens


def test_half_precision_cache_is_close(tmp_path: Path) -> None:
    """Keys and values in f16 keep 11 bits."""
    with ready(tiny_model(tmp_path / "m.gguf"), kv_type="f16") as (executable, reference):
        error = relative(logits(executable, TOKENS), reference.logits(TOKENS))
        assert 0 < error < 5e-3


@pytest.mark.parametrize(
    ("kv_type", "name", "most"),
    [*(("q8_0", name, 0.03) for name in (*FIRST, "bloom", "gemma2", "deepseek2")), ("q4_0", "llama", 0.3), ("q4_0", "gemma2", 0.3)],
)
def test_a_cache_of_quants_is_close(tmp_path: Path, kv_type: str, name: str, most: float) -> None:
    """Rounding to 127 or 8 steps of the largest of 32; the same for any threads and any steps, as in the other forms."""
    path = tiny_model(tmp_path / "m.gguf", name, head_dim=32 if name == "qwen3" else 16)
    with ready(path, kv_type=kv_type, threads=1) as (one, reference):
        expected = logits(one, TOKENS)
        assert 0 < relative(expected, reference.logits(TOKENS)) < most
    with ready(path, kv_type=kv_type, threads=3) as (several, _):
        np.testing.assert_array_equal(logits(several, TOKENS), expected)
        np.testing.assert_array_equal(logits(several, TOKENS, 1), expected)


def test_unknown_isa_level_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_ISA", "sse9")
    with pytest.raises(OptionError, match=r"sse9.*generic"):
        jit.choose_isa()


def test_parked_threads_wake_up_again(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=3) as (executable, _):
        expected = logits(executable, TOKENS)
        for pause in (0.0, 0.01, 0.1):
            time.sleep(pause)
            np.testing.assert_array_equal(logits(executable, TOKENS), expected)


@pytest.mark.parametrize(("threads", "threads_batch"), [(1, 3), (3, 1), (2, 4)])
def test_prompts_and_tokens_have_threads_of_their_own(tmp_path: Path, threads: int, threads_batch: int) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q4_0")
    with ready(path, threads=1) as (one, _):
        expected = logits(one, TOKENS)
    with ready(path, threads=threads, threads_batch=threads_batch) as (executable, _):
        assert (executable.threads, executable.threads_batch) == (threads, threads_batch)
        assert executable._programs["decode"].threads == threads and executable._programs["batch"].threads == threads_batch
        for chunk in (1, 5, 1, 8):  # those that are not wanted wait, park, and wake up again
            np.testing.assert_array_equal(logits(executable, TOKENS, chunk), expected)
            time.sleep(0.02)


def test_threads_that_are_not_wanted_stay_parked(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=1, threads_batch=3) as (executable, _):
        logits(executable, TOKENS)
        pool = executable._pool
        assert pool is not None
        for _ in range(6000):  # about a millisecond of spinning, on a busy machine
            time.sleep(0.01)
            if all(pool._parked[1:]):
                break
        logits(executable, TOKENS, 1)
        assert pool._parked == [False, True, True]


def test_more_threads_than_cores_finish(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=(os.cpu_count() or 1) * 4) as (executable, reference):
        assert relative(logits(executable, TOKENS), reference.logits(TOKENS)) < 1e-5


def test_a_step_that_was_interrupted_is_finished_first(tmp_path: Path) -> None:
    """Ctrl-C between the start of a plan and this thread's walk leaves the others at the first barrier."""
    with ready(tiny_model(tmp_path / "m.gguf"), threads=3) as (executable, _):
        expected = logits(executable, TOKENS)
        pool, program = executable._pool, executable._programs["batch"]
        assert pool is not None
        for _ in range(20):
            pool._start(pool._address, program.address, 0)
            np.testing.assert_array_equal(logits(executable, TOKENS), expected)
        pool._start(pool._address, program.address, 0)  # and close() does not hang


def test_close_ends_the_threads_and_forbids_steps(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=3) as (executable, _):
        assert sum(thread.name.startswith("edgellm-") for thread in threading.enumerate()) >= 2
        executable.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("edgellm-")]
        with pytest.raises(BackendError, match="closed"):
            logits(executable, TOKENS)


def test_an_executable_that_nobody_closes_ends_its_threads(tmp_path: Path) -> None:
    """Ctrl-C during `load` leaves one: its threads used to go on in code that was unloaded."""
    gguf = open_gguf(tiny_model(tmp_path / "m.gguf"))
    _, graph = arch.load_graph(gguf, 64)
    weights = WeightStore(gguf)
    layout = plan_memory(graph.states, context=64, sinks=4, chunk=8)
    for _ in range(20):
        executable = prepare(optimise(graph, layout.with_sinks), weights, layout, kv_type="f32", threads=3)
        del executable
    weights.close()
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("edgellm-")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_must_load_again(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=2) as (executable, _):
        child = os.fork()
        if child == 0:
            try:
                logits(executable, TOKENS)
            except BackendError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_a_damaged_kernel_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_CACHE", str(tmp_path / "cache"))
    wanted, seen = ["select:rows", "executor:walk"], []
    jit.kernel_addresses(wanted, "generic", jit.Linker(), lambda what, done, of: seen.append((done, of)))
    assert seen == [(1, 2), (2, 2)]
    [path] = (tmp_path / "cache").glob("kernels/*/select.rows.*.o")
    path.write_bytes(path.read_bytes()[:-3])
    jit.kernel_addresses(wanted, "generic", jit.Linker(), lambda what, done, of: seen.append((done, of)))
    assert seen[2:] == [(1, 1)]


def test_a_kernel_that_does_not_compile_is_named() -> None:
    with pytest.raises(BackendError, match="rope:sideways"):
        jit.kernel_addresses(["rope:sideways"], "generic", jit.Linker())
