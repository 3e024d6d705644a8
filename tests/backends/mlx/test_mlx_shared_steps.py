"""Several conversations in a step on MLX: logits and answers as if each were alone, for every architecture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tiny_encoders import ENCODERS, writers
from tiny_models import tiny_model

import edgellm
from edgellm.backends.base import Executable, StepBatch
from edgellm.engine.conversation import FIRST_ROW, NO_ROWS, Conversation

mx = pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

from edgellm.backends.mlx.executable import MlxStep  # noqa: E402

Floats = npt.NDArray[np.float32]
Part = tuple[Conversation, npt.NDArray[np.int32], npt.NDArray[np.int32]]


def step(executable: Executable, parts: Sequence[Part]) -> Floats:
    batch = StepBatch.joined([conversation.step(tokens, rows) for conversation, tokens, rows in parts])
    logits = executable.submit(batch).wait()["logits"].copy()
    for conversation, tokens, _ in parts:
        conversation.sequence.extend(tokens)
    return logits


def together(streams: Sequence[edgellm.Stream]) -> list[list[edgellm.Piece]]:
    """The pieces of answers that are read in turn."""
    pieces: list[list[edgellm.Piece]] = [[] for _ in streams]
    live = dict(enumerate(streams))
    while live:
        for index, stream in list(live.items()):
            piece = next(stream, None)
            if piece is None:
                del live[index]
            else:
                pieces[index].append(piece)
    return pieces


def ids_of(pieces: Sequence[edgellm.Piece]) -> tuple[int, ...]:
    return tuple(piece.token_id for piece in pieces if piece.token_id is not None)


DECODERS = sorted(set(writers()) - set(ENCODERS))


@pytest.mark.parametrize("arch", [pytest.param(arch, marks=[pytest.mark.slow] * (i % 4 > 0)) for i, arch in enumerate(DECODERS)])
def test_logits_are_those_of_each_alone(tmp_path: Path, arch: str) -> None:
    """A prompt beside single tokens, a part whose logits nobody wants, all rows of another, then single tokens past the context."""
    rng, last = np.random.default_rng(2), lambda n: np.array([n - 1], np.int32)
    n = 30 if arch in ("gpt2", "starcoder") else 44  # learned positions end with the context
    ids = [rng.integers(3, 96, n).astype(np.int32) for _ in range(3)]
    with edgellm.load(tiny_model(tmp_path / "m.gguf", arch), backend="mlx", context=32, sinks=2, kv_type="f32") as model:
        wanted = [model.logits(one) for one in ids]
        executable = model.engine.check()
        a, b, c = (Conversation.empty(executable) for _ in ids)
        got = step(executable, [(a, ids[0][:7], last(7)), (b, ids[1][:1], FIRST_ROW), (c, ids[2][:5], NO_ROWS)])
        expected = [wanted[0][6], wanted[1][0]]
        np.testing.assert_allclose(got, expected, atol=5e-5 * np.abs(wanted).max())
        got = step(
            executable, [(a, ids[0][7:8], FIRST_ROW), (b, ids[1][1:8], NO_ROWS), (c, ids[2][5:8], np.arange(3, dtype=np.int32))]
        )
        np.testing.assert_allclose(got, [wanted[0][7], *wanted[2][5:8]], atol=5e-5 * np.abs(wanted).max())
        for at in range(8, n):
            got = step(executable, [(each, one[at : at + 1], FIRST_ROW) for each, one in zip((a, b, c), ids, strict=True)])
            np.testing.assert_allclose(got, [one[at] for one in wanted], atol=1e-4 * np.abs(wanted).max(), err_msg=str(at))


@pytest.mark.parametrize("n", [2, 4, 8])
def test_answers_are_those_of_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    path, rng = tiny_model(tmp_path / "m.gguf", "qwen3"), np.random.default_rng(3)
    prompts = [rng.integers(3, 96, 3 + 5 * i).tolist() for i in range(n)]
    greedy = {"max_tokens": 40, "temperature": 0.0, "ignore_eos": True}
    with edgellm.load(path, backend="mlx", context=48, kv_type="f32") as model:
        alone = [model.generate(prompt, **greedy).token_ids for prompt in prompts]
    widths, begin = [], MlxStep.__init__

    def spied(self: MlxStep, executable: Executable, batch: StepBatch) -> None:
        widths.append(len(batch.segments))
        begin(self, executable, batch)

    monkeypatch.setattr(MlxStep, "__init__", spied)
    with edgellm.load(path, backend="mlx", context=48, kv_type="f32", parallel=n) as model:
        found = [ids_of(pieces) for pieces in together([model.stream(prompt, **greedy) for prompt in prompts])]
    assert found == alone and widths.count(n) >= 10


def test_a_step_is_begun_before_its_reader_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps of a single token, none is waited for before it is on the device."""
    late, wait = [], MlxStep.wait

    def spied(self: MlxStep, *arguments: object) -> object:
        if self._begun is None:
            late.append(len(self._parts[0].tokens))
        return wait(self, *arguments)

    monkeypatch.setattr(MlxStep, "wait", spied)
    with edgellm.load(tiny_model(tmp_path / "m.gguf"), backend="mlx", context=64, parallel=3) as model:
        together([model.stream(ids, max_tokens=20, temperature=0, ignore_eos=True) for ids in ([1, 2, 3], [4, 5], [6, 7, 8, 9])])
        late.clear()
        model.generate([5, 6, 7, 8, 9], max_tokens=20, temperature=0, ignore_eos=True)
    assert late == [5]


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_quantised_keys_beside_each_other(tmp_path: Path, kv_type: str) -> None:
    path, prompts = tiny_model(tmp_path / "m.gguf"), [[1, 5, 9], [20, 33, 7, 2, 60]]
    answers = []
    for parallel in (1, 2):
        with edgellm.load(path, backend="mlx", context=24, kv_type=kv_type, parallel=parallel) as model:
            streams = [model.stream(prompt, max_tokens=40, temperature=0, ignore_eos=True) for prompt in prompts]
            read = [list(stream) for stream in streams] if parallel == 1 else together(streams)
            answers.append([ids_of(pieces) for pieces in read])
    assert answers[0] == answers[1]


def test_schemas_and_sampling_beside_each_other(tmp_path: Path) -> None:
    """A constrained answer, a drafting one and a sampled one in the same steps."""
    path = tiny_model(tmp_path / "m.gguf", tokenizer="bpe")
    texts = []
    for parallel in (1, 3):
        with edgellm.load(path, backend="mlx", context=96, kv_type="f32", parallel=parallel) as model:
            first = model.stream("one", regex="[a-f]{12}", seed=1)
            second = model.stream("two two two two", max_tokens=12, temperature=0, draft="ngram")
            third = model.stream("three", max_tokens=12, seed=3)
            streams = [first, second, third]
            read = [list(stream) for stream in streams] if parallel == 1 else together(streams)
            texts.append(["".join(map(str, pieces)) for pieces in read])
    assert texts[0] == texts[1]


def test_forks_continue_beside_each_other(tmp_path: Path) -> None:
    with edgellm.load(tiny_model(tmp_path / "m.gguf", "lfm2"), backend="mlx", context=64, kv_type="f32", parallel=2) as model:
        ids = [1, 5, 9, 20, 33]
        session = model.session()
        session.generate(ids, max_tokens=3, temperature=0, ignore_eos=True)
        other = session.fork()
        streams = [one.stream([*ids, 7, i], max_tokens=9, temperature=0, ignore_eos=True) for i, one in enumerate((session, other))]
        got = [ids_of(pieces) for pieces in together(streams)]
        assert got == [model.generate([*ids, 7, i], max_tokens=9, temperature=0, ignore_eos=True).token_ids for i in range(2)]
