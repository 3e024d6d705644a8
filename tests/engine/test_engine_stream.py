"""Generation on a toy back end: ends, stop texts, reuse of the conversation, cancelling, threads, errors half way."""

from __future__ import annotations

import copy
import math
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_backend import AheadToy, Loader, Toy, toys
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model
from waiting import until

from edgellm import Model
from edgellm.api.answer import Piece
from edgellm.errors import ContextFull, FormatError, ModelClosed, NoTokenizer, NumericError, OptionError
from edgellm.sampling import SamplingKeywords

PROMPT = [1, 40, 50, 60, 70, 80, 90, 100]
GREEDY: SamplingKeywords = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("engine") / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("engine") / "bare.gguf", "llama", "F16", n_layers=1)


@pytest.fixture(params=[Toy, AheadToy], ids=["waiting", "ahead"])
def loader(request: pytest.FixtureRequest) -> Loader:
    """Steps of one token that are waited for, and such that go on while the caller has the piece before."""
    return toys(request.param)


@pytest.fixture
def model(loader: Loader, path: Path) -> Iterator[Model]:
    with loader.load(path, context=32, sinks=2) as model:
        yield model


def say(toy: Toy, model: Model, text: str, then: int | None = None) -> list[int]:
    """Let the toy say the tokens of `text` one after the other, then token `then` for ever; returns the ids."""
    ids = model.tokenizer.encode(text, add_special=False)
    n_prompt = len(PROMPT)

    def logits_of(seen: np.ndarray) -> np.ndarray:
        at = len(seen) - n_prompt
        logits = np.zeros(model.n_vocab, np.float32)
        logits[ids[at] if at < len(ids) else ids[0] if then is None else then] = 9
        return logits

    toy.logits_of = logits_of
    return ids


def test_the_same_call_gives_the_same_answer(model: Model) -> None:
    first = model.generate(PROMPT, max_tokens=60, seed=4)
    again = model.generate(PROMPT, max_tokens=60, seed=4)
    assert (first.text, first.token_ids, first.stop_reason) == (again.text, again.token_ids, again.stop_reason)
    assert model.generate(PROMPT, max_tokens=60, seed=5).token_ids != first.token_ids
    drawn = model.generate(PROMPT, max_tokens=60)
    assert model.generate(PROMPT, max_tokens=60, seed=drawn.seed).token_ids == drawn.token_ids


def test_stats(model: Model) -> None:
    result = model.generate(PROMPT, max_tokens=40, **GREEDY)
    stats = result.stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (8, 0, 40)
    assert stats.evicted_tokens == 8 + 40 - 32 and len(result.token_ids) == 40 and result.stop_reason == "length"
    assert 0 < stats.prompt_seconds < stats.time_to_first_token and stats.generation_seconds > 0
    assert stats.tokens_per_second == pytest.approx(39 / stats.generation_seconds)
    assert stats.prompt_tokens_per_second == pytest.approx(8 / stats.prompt_seconds)


def test_max_tokens(model: Model) -> None:
    assert model.generate(PROMPT, **GREEDY).stats.generated_tokens == 32, "the context's size by default"
    nothing = model.generate(PROMPT, max_tokens=0, **GREEDY)
    assert (nothing.text, nothing.token_ids, nothing.stop_reason) == ("", (), "length")
    assert model.generate(PROMPT, max_tokens=1, **GREEDY).stats.cached_tokens == 7, "max_tokens=0 has read the prompt"
    for wrong in (-1, 2.0, True, "all"):
        with pytest.raises(OptionError, match="max_tokens"):
            model.generate(PROMPT, max_tokens=wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_the_model_ends_its_answer(loader: Loader, model: Model) -> None:
    end = next(iter(model.tokenizer.eog_ids))
    ids = say(loader.toy, model, "hello world", then=end)
    result = model.generate(PROMPT, temperature=0)
    assert result.stop_reason == "eog" and result.token_ids == tuple(ids) and end not in result.token_ids
    assert result.text == model.tokenizer.decode([*PROMPT, *ids])[len(model.tokenizer.decode(PROMPT)) :]
    assert model.generate(PROMPT, max_tokens=20, **GREEDY).stats.generated_tokens == 20


def test_a_leading_space_stays_after_text_and_goes_after_a_special_token(loader: Loader, model: Model) -> None:
    say(loader.toy, model, "hello")
    assert model.generate(PROMPT, max_tokens=1, **GREEDY).text == " hello"
    assert model.generate([*PROMPT[1:], 1], max_tokens=1, **GREEDY).text == "hello"
    hello = model.tokenizer.encode("hello", add_special=False)[0]
    said = iter([hello, 1, hello])
    loader.toy.logits_of = lambda seen: np.eye(model.n_vocab, dtype=np.float32)[next(said)]
    assert model.generate(PROMPT, max_tokens=3, temperature=0).text == " hello hello", "and stays within an answer"


def test_stop_texts_may_span_tokens(loader: Loader, model: Model) -> None:
    ids = say(loader.toy, model, "the world wor hello")
    whole = model.generate(PROMPT, max_tokens=len(ids), **GREEDY)
    assert whole.text == " the world wor hello" and len(ids) == 4
    for stop, text in (("d wo", " the worl"), (["zzz", " wor"], " the"), ("hello!", whole.text), ("o h", whole.text)):
        pieces = list(stream := model.stream(PROMPT, max_tokens=len(ids), stop=stop, **GREEDY))
        assert "".join(pieces) == stream.result.text == text
        assert stream.result.stop_reason == ("length" if text == whole.text else "stop")
    assert model.generate(PROMPT, max_tokens=len(ids), stop="wor", **GREEDY).token_ids == tuple(ids[:2])


def test_text_held_back_comes_at_the_end(loader: Loader, model: Model) -> None:
    end = next(iter(model.tokenizer.eog_ids))
    ids = say(loader.toy, model, "hello wor", then=end)
    pieces = list(stream := model.stream(PROMPT, temperature=0, stop=["world"]))
    assert "".join(pieces) == stream.result.text == " hello wor"
    assert [piece.token_id for piece in pieces] == [*ids, None] and pieces[-1] == "wor"


def test_an_unfinished_character_is_marked(loader: Loader, model: Model) -> None:
    euro = say(loader.toy, model, "€")
    assert len(euro) == 4  # the space before it and three bytes
    pieces = list(model.stream(PROMPT, max_tokens=4, **GREEDY))
    assert pieces == [" ", "", "", "€"]
    assert model.generate(PROMPT, max_tokens=3, **GREEDY).text == " \ufffd"


@pytest.mark.parametrize("kind", [Toy, AheadToy])
@settings(max_examples=25, deadline=None)
@given(turns=st.lists(st.tuples(st.integers(0, 60), st.lists(st.integers(3, 99), max_size=30)), min_size=1, max_size=6))
def test_reuse_changes_no_answer(path: Path, kind: type[Toy], turns: list[tuple[int, list[int]]]) -> None:
    """Prompts that share any part of the conversation before: the same tokens as from a fresh model each time."""
    with toys(kind).load(path, context=32, sinks=2) as kept:
        said = list(PROMPT)
        for keep, new in turns:
            prompt = [1, *said[1 : 1 + keep], *new]
            with toys().load(path, context=32, sinks=2) as fresh:
                wanted = fresh.generate(prompt, max_tokens=9, **GREEDY)
            got = kept.generate(prompt, max_tokens=9, **GREEDY)
            assert got.token_ids == wanted.token_ids
            said = [*prompt, *got.token_ids]


def test_a_second_turn_reads_only_what_is_new(loader: Loader, model: Model) -> None:
    first = model.generate(PROMPT, max_tokens=6, **GREEDY)
    second = model.generate([*PROMPT, *first.token_ids, 33, 44, 55], max_tokens=6, **GREEDY)
    assert second.stats.cached_tokens == len(PROMPT) + 5, "the last generated token was not computed yet"
    assert loader.toy.log[-6:] == [4, 1, 1, 1, 1, 1]
    assert model.generate(PROMPT, max_tokens=1, **GREEDY).stats.cached_tokens == len(PROMPT) - 1, "cut back"
    assert model.generate([5, *PROMPT], max_tokens=1, **GREEDY).stats.cached_tokens == 0


def test_a_wrapped_ring_is_cut_back_as_far_as_it_can(model: Model) -> None:
    long = model.generate(PROMPT, max_tokens=600, **GREEDY)
    said = [*PROMPT, *long.token_ids]
    near = model.generate([*said[:500], 7], max_tokens=3, **GREEDY)
    assert near.stats.cached_tokens == 500
    model.generate(said, max_tokens=40, **GREEDY)
    far = model.generate([*said[:20], 7], max_tokens=3, **GREEDY)
    assert far.stats.cached_tokens == 0


def test_logits_do_not_disturb_the_conversation(model: Model) -> None:
    stream = model.stream(PROMPT, max_tokens=12, **GREEDY)
    wanted = model.generate(PROMPT, max_tokens=12, **GREEDY)
    tokens = []
    for piece in stream:
        tokens.append(piece.token_id)
        rows = model.logits([3, 4, 5])
        assert rows.shape == (3, model.n_vocab) and rows.dtype == np.float32
    assert tuple(tokens) == wanted.token_ids
    assert model.generate([*PROMPT, *wanted.token_ids], max_tokens=1, **GREEDY).stats.cached_tokens == len(PROMPT) + 11


def test_every_row_of_logits(loader: Loader, model: Model) -> None:
    ids = np.arange(3, 83) % 90
    rows = model.logits(ids)
    assert rows.shape == (80, model.n_vocab)
    single = np.stack([model.logits(ids[: n + 1])[-1] for n in range(80)])
    assert np.array_equal(rows, single)
    assert max(loader.toy.log) <= min(loader.toy.max_tokens, loader.toy.max_outputs)


def test_closing_early_and_going_on(model: Model) -> None:
    wanted = model.generate(PROMPT, max_tokens=10, **GREEDY)
    stream = model.stream(PROMPT, max_tokens=10, **GREEDY)
    with pytest.raises(OptionError, match="result"):
        _ = stream.result
    some = [next(stream), next(stream)]
    stream.close()
    stream.close()
    assert list(stream) == [] and stream.result.stop_reason == "cancelled"
    assert stream.result.text == "".join(some) and stream.result.token_ids == wanted.token_ids[:2]
    assert model.generate(PROMPT, max_tokens=10, **GREEDY).token_ids == wanted.token_ids
    unread = model.stream(PROMPT)
    unread.close()
    assert (unread.result.text, unread.result.stats.generated_tokens) == ("", 0)
    with model.stream(PROMPT, max_tokens=10, **GREEDY) as stream:
        next(stream)
    assert stream.result.stop_reason == "cancelled"


def test_a_call_between_two_pieces_of_a_stream(model: Model) -> None:
    """The stream's own thread calls the model: no deadlock, and both answers are what they would be alone."""
    wanted, other = (model.generate(p, max_tokens=40, **GREEDY).token_ids for p in (PROMPT, [9, 8, 7]))
    stream = model.stream(PROMPT, max_tokens=40, **GREEDY)
    tokens = [next(stream).token_id for _ in range(25)]
    assert model.generate([9, 8, 7], max_tokens=40, **GREEDY).token_ids == other
    tokens += [piece.token_id for piece in stream]
    assert tuple(tokens) == wanted and stream.result.token_ids == wanted


def test_a_dropped_stream_holds_nobody_up(model: Model) -> None:
    for _ in model.stream(PROMPT, **GREEDY):
        break
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(model.generate(PROMPT, max_tokens=3, **GREEDY).stats.generated_tokens))
    thread.start()
    thread.join(120)
    assert answers == [3]


def test_threads_get_the_answers_of_one(model: Model) -> None:
    prompts = [[1, 10 + n, 20, 30 + n] for n in range(8)]
    wanted = [model.generate(p, max_tokens=12, seed=n) for n, p in enumerate(prompts)]
    wrong: list[object] = []

    def run(n: int) -> None:
        for round_ in range(6):
            if round_ % 2:
                got = model.generate(prompts[n], max_tokens=12, seed=n).token_ids
            else:
                pieces = list(model.stream(prompts[n], max_tokens=12, seed=n))
                got = tuple(piece.token_id for piece in pieces if piece.token_id is not None)
            if got != wanted[n].token_ids or model.logits(prompts[n]).shape != (4, model.n_vocab):
                wrong.append((n, round_, got))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)


def test_cancel_from_another_thread(loader: Loader, model: Model) -> None:
    model.cancel()  # nothing runs: nothing happens
    loader.toy.fail = lambda: time.sleep(0.001)
    results = []
    thread = threading.Thread(target=lambda: results.append(model.generate(PROMPT, max_tokens="unlimited", **GREEDY)))
    thread.start()
    until(lambda: len(loader.toy.log) >= 5)
    model.cancel()
    thread.join(120)
    assert results[0].stop_reason == "cancelled" and results[0].stats.generated_tokens > 0
    assert model.generate(PROMPT, max_tokens=3, **GREEDY).stop_reason == "length"


def three_callers(model: Model, ask: Callable[[], None]) -> list[threading.Thread]:
    """Threads of which one is answered and two wait."""
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(model.engine.core.waiting) == 2)
    return threads


def test_cancel_reaches_answers_that_wait_or_lost_their_turn(loader: Loader, model: Model) -> None:
    displaced = model.stream(PROMPT, max_tokens=40, **GREEDY)
    next(displaced)
    model.generate(PROMPT, max_tokens=1, **GREEDY)
    model.cancel()
    assert list(displaced) == [] and displaced.result.stop_reason == "cancelled"
    loader.toy.fail = lambda: time.sleep(0.001)
    results = list[str]()
    threads = three_callers(model, lambda: results.append(model.generate(PROMPT, max_tokens="unlimited", **GREEDY).stop_reason))
    model.cancel()
    for thread in threads:
        thread.join(120)
    assert results == ["cancelled"] * 3
    again = model.stream(PROMPT, max_tokens=9, **GREEDY)
    next(again)
    assert model.generate(PROMPT, max_tokens=3, **GREEDY).stop_reason == "length" and len(list(again)) == 8


def test_waiting_calls_raise_model_closed(loader: Loader, model: Model) -> None:
    loader.toy.fail = lambda: time.sleep(0.001)
    results, errors = list[str](), list[type[Exception]]()

    def ask() -> None:
        try:
            results.append(model.generate(PROMPT, max_tokens="unlimited", **GREEDY).stop_reason)
        except ModelClosed as error:
            errors.append(type(error))

    threads = three_callers(model, ask)
    model.close()
    for thread in threads:
        thread.join(120)
    assert ModelClosed in errors and set(results) <= {"cancelled"} and len(results) + len(errors) == 3


def test_pieces_are_copied_and_pickled(model: Model) -> None:
    piece = next(model.stream(PROMPT, logprobs=2, **GREEDY))
    for other in (copy.copy(piece), copy.deepcopy(piece), pickle.loads(pickle.dumps(piece))):
        assert isinstance(other, Piece) and (other, other.token_id, other.logprobs) == (piece, piece.token_id, piece.logprobs)


def test_progress_is_reported_while_a_prompt_is_read(loader: Loader, model: Model) -> None:
    prompt, seen = [1, *range(40, 115)], list[tuple[int, int]]()
    model.generate(prompt, max_tokens=2, progress=lambda done, total: seen.append((done, total)), **GREEDY)
    steps = loader.toy.log[: len(seen)]
    assert seen == [(sum(steps[:at]), 76) for at in range(len(steps))] and sum(steps) == 76 and len(seen) > 1
    seen.clear()
    model.generate([*prompt[:20], 30], max_tokens=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[0][1] == 21
    with pytest.raises(OptionError, match="progress=7"):
        model.generate(prompt, progress=7)  # type: ignore[arg-type]  # wrong on purpose


def test_cancel_while_a_prompt_is_read(loader: Loader, model: Model) -> None:
    stream = model.stream(list(range(3, 203)), **GREEDY)

    def stop_at_third() -> None:
        if len(loader.toy.log) == 2:
            stream.cancel()

    loader.toy.fail = stop_at_third
    assert list(stream) == [] and stream.result.stop_reason == "cancelled"
    assert len(loader.toy.log) == 3, "no step after the one in which it was cancelled"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_step_leaves_the_model_usable(loader: Loader, model: Model, error: type[BaseException]) -> None:
    wanted = model.generate(PROMPT, max_tokens=60, **GREEDY)
    steps = 0

    def fail() -> None:
        nonlocal steps
        steps += 1
        if steps == 45:
            raise error

    loader.toy.fail = fail
    stream = model.stream(PROMPT, max_tokens=60, **GREEDY)
    with pytest.raises(error):
        list(stream)
    assert stream.result.stop_reason == "cancelled" and stream.result.token_ids == wanted.token_ids[:44]
    again = model.generate([*PROMPT, *wanted.token_ids[:44]], max_tokens=16, **GREEDY)
    lost = isinstance(loader.toy, AheadToy) and error is MemoryError  # the keys of a step that was begun may be spoilt
    assert again.token_ids == wanted.token_ids[44:] and again.stats.cached_tokens == (0 if lost else len(PROMPT) + 43)


def test_no_numbers(loader: Loader, model: Model) -> None:
    loader.toy.logits_of = lambda seen: np.full(model.n_vocab, math.nan, np.float32)
    with pytest.raises(NumericError, match="NaN or Inf"):
        model.generate(PROMPT)
    loader.toy.logits_of = loader.toy.turned
    assert model.generate(PROMPT, max_tokens=2, **GREEDY).stats.generated_tokens == 2


def test_models_without_a_tokenizer_take_ids(loader: Loader, bare: Path) -> None:
    with loader.load(bare, context=32) as model:
        result = model.generate([1, 2, 3], max_tokens=50, seed=1)
        assert result.text == "" and len(result.token_ids) == 50 and result.stop_reason == "length"
        assert [piece.token_id for piece in model.stream([1, 2, 3], max_tokens=50, seed=1)] == list(result.token_ids)
        for ask in (lambda: model.generate("text"), lambda: model.tokenizer, lambda: model.generate([1], stop="x")):
            with pytest.raises(NoTokenizer, match=r"bare\.gguf"):
                ask()


def test_learned_positions_end(loader: Loader, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "gpt2.gguf", "gpt2", "F16", n_layers=1, context=24)
    with loader.load(path) as model:
        assert model.context == 24
        result = model.generate([1, 2, 3], max_tokens="unlimited", **GREEDY)
        assert result.stop_reason == "context" and result.stats.generated_tokens == 22 and max(loader.toy.log) <= 24
        assert model.generate(list(range(24)), max_tokens=9, **GREEDY).stats.generated_tokens == 1
        for too_long in (lambda: model.generate(list(range(25))), lambda: model.logits(list(range(25)))):
            with pytest.raises(ContextFull, match="25 tokens"):
                too_long()
        assert model.logits(list(range(24))).shape == (24, model.n_vocab)
    with pytest.raises(OptionError, match="context=25"):
        loader.load(path, context=25)


def test_closing(loader: Loader, path: Path) -> None:
    model = loader.load(path, context=32)
    started = model.stream(PROMPT, **GREEDY)
    next(started)
    other = model.stream(PROMPT)
    model.close()
    model.close()
    assert loader.toy.closed and model.closed and "closed" in repr(model)
    assert list(started) == [] and started.result.stop_reason == "cancelled"
    for use in (
        lambda: model.generate(PROMPT),
        lambda: model.logits(PROMPT),
        lambda: model.tokenizer,
        lambda: next(other),
        lambda: model.chat([{"role": "user", "content": "x"}]),
    ):
        with pytest.raises(ModelClosed, match="load it again"):
            use()


def test_closing_ends_what_another_thread_generates(loader: Loader, path: Path) -> None:
    model = loader.load(path, context=32)
    loader.toy.fail = lambda: time.sleep(0.001)
    ends: list[str] = []
    thread = threading.Thread(target=lambda: ends.append(model.generate(PROMPT, max_tokens="unlimited", **GREEDY).stop_reason))
    thread.start()
    until(lambda: len(loader.toy.log) >= 5)
    model.close()
    thread.join(120)
    assert ends == ["cancelled"] and loader.toy.closed


def test_a_file_changed_on_disk_is_noticed(loader: Loader, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "changed.gguf", "llama", "F16", n_layers=1)
    with loader.load(path, context=32) as model:
        model.generate([1], max_tokens=1)
        with path.open("ab") as file:
            file.write(b"x")
        for use in (lambda: model.generate([1], max_tokens=1), lambda: model.logits([1])):
            with pytest.raises(FormatError, match="changed on disk"):
                use()


def test_a_long_generation_keeps_its_memory(model: Model) -> None:
    """Memory grows by 4 bytes a token twice, and the text."""
    import tracemalloc

    stream = model.stream(PROMPT, max_tokens="unlimited", seed=3, ignore_eos=True)
    for _ in range(1000):
        next(stream)
    tracemalloc.start()
    for _ in range(3000):
        next(stream)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stream.close()
    assert grown < 3000 * 24, f"{grown / 3000:.0f} bytes a token"
    assert stream.result.stats.evicted_tokens == len(PROMPT) + 4000 - 32
