"""Endless conversations: the ring's logits against StreamingLLM computed the long way, and memory that does not grow."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import psutil
import pytest
from streaming_oracle import StreamingOracle
from tiny_models import tiny_model

import edgellm
from edgellm.arch import load_graph
from edgellm.engine.conversation import Conversation
from edgellm.formats.gguf import open_gguf
from edgellm.memory.sequence import Sequence
from edgellm.weights import WeightStore


def agree(path: Path, *, context: int, sinks: int, tokens: int, looks: int, kv_type: str = "f32", within: float = 1e-3) -> None:
    """Feed random tokens to both; at `looks` random steps the logits must agree within 1e-3 of their largest."""
    rng = np.random.default_rng(3)
    gguf = open_gguf(path)
    _, graph = load_graph(gguf, context)
    weights = WeightStore(gguf)
    oracle = StreamingOracle(graph, weights, context, sinks)
    seen = set(rng.integers(context, tokens, looks).tolist()) | {tokens - 1}
    with edgellm.load(str(path), context=context, sinks=sinks, kv_type=kv_type) as model:
        ids = rng.integers(3, model.n_vocab, tokens).tolist()
        rows = model.logits(ids)  # in steps of many tokens, most of them past the ring's end
        for step, token in enumerate(ids):
            expected = oracle.step(token)
            if step in seen:
                assert np.abs(rows[step] - expected).max() <= within * np.abs(expected).max(), step
    weights.close()


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen3", "phi3", "bloom", "deepseek2"])
@pytest.mark.parametrize("sinks", [0, 4])
def test_logits_past_the_context(tmp_path: Path, arch: str, sinks: int) -> None:
    agree(tiny_model(tmp_path / "m.gguf", arch), context=24, sinks=sinks, tokens=400, looks=20)


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("arch, kept", [("llama", 9), ("gemma3", 12), ("llama", 4)])
def test_pinned_tokens_stay_in_the_ring(tmp_path: Path, arch: str, kept: int, backend: str) -> None:
    """More first tokens than the sinks, in a conversation whose memory has room for more still."""
    path, context, rng = tiny_model(tmp_path / "m.gguf", arch), 24, np.random.default_rng(3)
    gguf = open_gguf(path)
    weights = WeightStore(gguf)
    oracle = StreamingOracle(load_graph(gguf, context)[1], weights, context, kept)
    with edgellm.load(path, context=context, sinks=4, pinned=12, kv_type="f32", backend=backend) as model:
        ids = rng.integers(3, model.n_vocab, 120).astype(np.int32)
        with model.engine.alone() as executable:
            conversation = Conversation.empty(executable)
            conversation.sequence.keep(kept)
            cuts = [*range(0, 60, 5), *range(60, 121)]
            rows = [
                conversation.compute(executable, ids[start:stop], np.arange(stop - start, dtype=np.int32)).copy()
                for start, stop in itertools.pairwise(cuts)
            ]
    for step, (token, row) in enumerate(zip(ids.tolist(), np.concatenate(rows), strict=True)):
        expected = oracle.step(token)
        assert np.abs(row - expected).max() <= 1e-3 * np.abs(expected).max(), step
    weights.close()


@pytest.mark.parametrize("kv_type, within", [("q8_0", 0.03), ("q4_0", 0.3)])
def test_logits_past_the_context_with_quantised_keys(tmp_path: Path, kv_type: str, within: float) -> None:
    agree(tiny_model(tmp_path / "m.gguf", "gemma3"), context=24, sinks=4, tokens=200, looks=10, kv_type=kv_type, within=within)


def test_logits_past_the_context_of_a_trained_model(shared: Path) -> None:
    agree(shared / "models" / "stories260K-F32.gguf", context=256, sinks=4, tokens=2000, looks=20)


@pytest.mark.parametrize("backend", ["cpu", "mlx"])
@pytest.mark.parametrize("arch", ["llama", "gemma3", "gemma3n", "llama4", "deepseek2"])
@pytest.mark.usefixtures("mlx_products")
def test_a_prompt_far_beyond_the_context_costs_what_can_reach_the_answer(
    tmp_path: Path, arch: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that nothing depends on are not computed; the answer, and what a session goes on with, is bit for bit the same."""
    path, found, skip = tiny_model(tmp_path / "m.gguf", arch), [], Sequence.skip
    for skips in (True, False):
        monkeypatch.setattr(Sequence, "skip", skip if skips else lambda sequence, ids: 0)
        with edgellm.load(path, context=24, backend=backend) as model, model.session() as session:
            ids = np.random.default_rng(5).integers(3, model.n_vocab, 4000).tolist()
            first = session.generate(ids[:2000], max_tokens=9, temperature=0, logprobs=2)
            again = session.generate(ids[:2000], max_tokens=9, temperature=0, logprobs=2)
            then = session.generate([*ids[:2000], *first.token_ids, *ids[2000:]], max_tokens=9, temperature=0, logprobs=2)
        found.append([answer.logprobs for answer in (first, again, then)])
        for answer, new in ((first, 2000), (then, 2000)):
            assert (answer.stats.skipped_tokens > new - 800) is skips
            assert answer.stats.computed_prompt_tokens < 800 or not skips
        assert again.stats.cached_tokens == 1999
    assert found[0] == found[1]


def test_recurrent_states_carry_all_tokens_of_a_long_prompt(tmp_path: Path) -> None:
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "lfm2"), context=24) as model:
        ids = np.random.default_rng(5).integers(3, model.n_vocab, 2000).tolist()
        assert model.generate(ids, max_tokens=1).stats.skipped_tokens == 0


def test_a_long_prompt_that_is_given_up_and_asked_again(tmp_path: Path) -> None:
    """Its keys are not yet what they would be, so nothing continues from them."""
    path = tiny_model(tmp_path / "m.gguf")
    with edgellm.load(path, context=2048, sinks=4) as model, model.session() as session:
        ids = np.random.default_rng(5).integers(3, model.n_vocab, 30_000).tolist()
        expected = model.generate(ids, max_tokens=5, temperature=0)
        assert expected.stats.skipped_tokens > 10_000

        def give_up(done: int, total: int) -> None:
            if done > 24_000:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            session.generate(ids, max_tokens=5, temperature=0, progress=give_up)
        shorter = ids[:25_000]
        assert (
            session.generate(shorter, max_tokens=5, temperature=0).token_ids
            == model.generate(shorter, max_tokens=5, temperature=0).token_ids
        )
        assert session.generate(ids, max_tokens=5, temperature=0).token_ids == expected.token_ids


def test_an_endless_answer_needs_no_more_memory(tmp_path: Path) -> None:
    """5,000 tokens after warm-up: token ids and text are what may grow, a few bytes each."""
    process = psutil.Process()
    with edgellm.load(str(tiny_model(tmp_path / "m.gguf", tokenizer="spm")), context=32, threads=1) as model:
        memory = []
        for count, _ in enumerate(model.stream([1], max_tokens=6000, seed=1, temperature=1.0, ignore_eos=True)):
            if count in (1000, 5999):
                memory.append(process.memory_full_info().uss / 2**20)  # exact; rss is counted in batches
    assert len(memory) == 2 and memory[1] - memory[0] <= 2.0
