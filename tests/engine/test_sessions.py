"""Many conversations over one model: together as each alone, from any thread, whatever is cancelled or forked meanwhile."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from fake_backend import AheadToy, Loader, Toy, references, toys
from tiny_models import tiny_model
from waiting import until

import edgellm
from edgellm import Generation, Model, Session
from edgellm.api.records import PromptRead
from edgellm.engine.prefix_cache import WORTH_WAITING
from edgellm.errors import NumericError, OptionError, SessionError
from edgellm.sampling import SamplingKeywords

GREEDY: SamplingKeywords = {"temperature": 0.0, "ignore_eos": True}
SYSTEM = list(range(1, 60))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("sessions") / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1)


@pytest.fixture(params=[Toy, AheadToy], ids=["waiting", "ahead"])
def loader(request: pytest.FixtureRequest) -> Loader:
    return toys(request.param)


@pytest.fixture
def model(loader: Loader, path: Path) -> Iterator[Model]:
    with loader.load(path, context=96, sinks=2, parallel=4) as model:
        yield model


def prompt_of(n: int) -> list[int]:
    """Prompts of mixed length, some with a common beginning."""
    own = [3 + (7 * n + 13 * k) % 250 for k in range(3 + 11 * n % 90)]
    return [1, *SYSTEM[: 20 * (n % 3)], *own]


def at_once(jobs: list[Callable[[], object]], seconds: float = 300.0) -> list[object]:
    """The results of functions, each called in a thread of its own."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(seconds) for future in [pool.submit(job) for job in jobs]]


def alone(loader: Loader, path: Path, prompts: list[list[int]], tokens: list[int], **options: object) -> list[tuple[int, ...]]:
    """The answers of a fresh model each."""
    answers = []
    for n, prompt in enumerate(prompts):
        with loader.load(path, **options) as model:
            answers.append(model.generate(prompt, max_tokens=tokens[n], seed=n, ignore_eos=True).token_ids)
    return answers


@pytest.mark.parametrize("n", [2, 5, pytest.param(16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [toys, lambda: toys(AheadToy), references], ids=["toy", "ahead", "reference"])
def test_together_as_each_alone(path: Path, make: Callable[[], Loader], n: int) -> None:
    """Prompts of mixed length; many answers go past the context, one past the ring."""
    loader, prompts, tokens = make(), [prompt_of(k) for k in range(n)], [12 if make is references else 40] * n
    tokens[0] = 20 if make is references else 350
    wanted = alone(loader, path, prompts, tokens, context=40, sinks=2)

    def answers(kind: Callable[[], Model | Session]) -> list[object]:
        return at_once(
            [lambda k=k: kind().generate(prompts[k], max_tokens=tokens[k], seed=k, ignore_eos=True).token_ids for k in range(n)]
        )

    with loader.load(path, context=40, sinks=2, parallel=n) as model:
        assert answers(model.session) == wanted
        assert answers(lambda: model) == wanted


def test_steps_are_shared(path: Path) -> None:
    loader = toys()
    with loader.load(path, context=64, parallel=8) as model:

        def together() -> None:
            """The first step waits for all eight, however late their threads start."""
            until(lambda: loader.toy.log or len(model.engine.core.running) == 8)

        loader.toy.fail = together

        def job(k: int) -> int:
            return model.generate([1, 2, 3 + k], max_tokens=100, **GREEDY).stats.generated_tokens

        assert at_once([lambda k=k: job(k) for k in range(8)]) == [100] * 8
        assert len(loader.toy.log) < 300 and loader.toy.log.count(8) > 50, "800 tokens"


@pytest.mark.parametrize("kind", [Toy, AheadToy])
def test_a_beginning_that_is_being_computed_is_waited_for(path: Path, kind: type[Toy]) -> None:
    """Requests that come while a prompt with their beginning is computed wait for it, and answer as each alone."""
    loader, prompts = toys(kind), [[1, *(3 + k % 90 for k in range(200)), 100 + n, 120 + n] for n in range(4)]
    wanted = alone(loader, path, prompts, [8] * 4, context=256)
    with loader.load(path, context=256, parallel=5) as model, model.stream([1, 2], max_tokens=1000, **GREEDY) as other:
        next(other)  # decodes, so that prompts come in pieces
        loader.toy.log.clear()
        loader.toy.fail = lambda: until(lambda: loader.toy.log or len(model.engine.core.running) == 5)
        jobs = [lambda n=n: model.generate(prompts[n], max_tokens=8, seed=n, ignore_eos=True) for n in range(4)]
        reading = threading.Thread(target=lambda: [*other], daemon=True)
        reading.start()
        answers = cast(list[Generation], at_once(jobs))
        rows = sum(loader.toy.log) - len(loader.toy.log)  # without those of the stream that decodes
        other.close()
    assert [answer.token_ids for answer in answers] == wanted
    assert [answer.stats.cached_tokens >= 201 - WORTH_WAITING for answer in answers].count(True) == 3
    assert rows < 203 + 3 * (2 + WORTH_WAITING) + 4 * 8


def test_a_reader_that_has_a_piece_to_take_does_not_miss_a_step(path: Path) -> None:
    """Its thread was woken and does not run yet, while the other one drives on: answers stay in step, a little ahead of it."""
    loader = toys()
    with loader.load(path, context=64, parallel=2) as model:
        wanted = [model.generate([1, 2, 3 + k], max_tokens=20, **GREEDY).token_ids for k in range(2)]
        fast, slow = (model.stream([1, 2, 3 + k], max_tokens=20, **GREEDY) for k in range(2))
        read = [[next(stream).token_id for _ in range(2)] for stream in (fast, slow)]
        slow._answer.awaited = True
        loader.toy.log.clear()
        read[0] += [next(fast).token_id for _ in range(6)]
        assert loader.toy.log == [2, 2, 2, 1], "no more ahead than AHEAD"
        slow._answer.awaited = False
        for stream, tokens, all_of_them in zip((fast, slow), read, wanted, strict=True):
            assert tuple(tokens + [piece.token_id for piece in stream if piece.token_id is not None]) == all_of_them


def test_a_reader_that_has_progress_to_hear_of_does_not_miss_a_step(path: Path) -> None:
    """The same while a long prompt is computed in pieces."""
    loader, prompt = toys(), [1, *range(3, 90)]
    with loader.load(path, context=128, parallel=2) as model:
        wanted = model.generate(prompt, max_tokens=5, **GREEDY)
        with model.stream([1, 2], **GREEDY) as fast:
            next(fast)
            slow = model.session().stream([2, *prompt[1:]], max_tokens=5, **GREEDY)
            items = slow.items()
            assert isinstance(next(items), PromptRead)
            slow._answer.awaited = True
            loader.toy.log.clear()
            while len(slow._answer.ids) == len(prompt):
                next(fast)
            assert min(loader.toy.log) > 1, "each step carries a piece of the prompt"
            slow._answer.awaited = False
            rest = [item for item in items if not isinstance(item, PromptRead)]
        assert (
            len(rest) == len(wanted.token_ids) == 5
            and slow.result.token_ids == model.session().generate([2, *prompt[1:]], max_tokens=5, **GREEDY).token_ids
        )


@pytest.mark.parametrize("make", [toys, references], ids=["toy", "reference"])
def test_forks_continue_independently(path: Path, make: Callable[[], Loader]) -> None:
    loader = make()
    with loader.load(path, context=40, sinks=2, parallel=3) as model:
        first = model.session()
        said = [*SYSTEM, *first.generate(SYSTEM, max_tokens=5, **GREEDY).token_ids]
        forks = [first.fork(), first.fork()]
        assert [fork.n_tokens for fork in forks] == [len(said) - 1] * 2
        prompts = [[*said, 70 + k] for k in range(3)]
        wanted = alone(loader, path, prompts, [30] * 3, context=40, sinks=2)
        sessions = [*forks, first]
        jobs = [lambda k=k: sessions[k].generate(prompts[k], max_tokens=30, seed=k, ignore_eos=True) for k in range(3)]
        answers = at_once(jobs)
        assert [answer.token_ids for answer in answers] == wanted  # type: ignore[attr-defined]  # Generations
        assert [answer.stats.cached_tokens for answer in answers] == [len(said) - 1] * 3  # type: ignore[attr-defined]


def test_a_common_beginning_is_computed_once(loader: Loader, model: Model) -> None:
    a, b, c = (model.session() for _ in range(3))
    assert a.generate([*SYSTEM, 70, 71], max_tokens=8, **GREEDY).stats.cached_tokens == 0
    assert b.generate([*SYSTEM, 80, 81], max_tokens=8, **GREEDY).stats.cached_tokens == len(SYSTEM)
    assert model.generate([*SYSTEM, 90], max_tokens=8, **GREEDY).stats.cached_tokens == len(SYSTEM)
    assert a.generate([*SYSTEM, 70, 71, 5], max_tokens=1, **GREEDY).stats.cached_tokens == len(SYSTEM) + 2, "what it holds is kept"
    running = model.stream([*SYSTEM, 60], **GREEDY)
    next(running)
    assert c.generate([*SYSTEM, 60, 62], max_tokens=1, **GREEDY).stats.cached_tokens == len(SYSTEM) + 1, "of one that runs"


def test_anonymous_conversations_are_bounded(path: Path) -> None:
    loader = toys()
    with loader.load(path, context=64, parallel=3) as model:
        for k in range(9):
            model.generate([1, 100 + k, *range(3, 20)], max_tokens=3, **GREEDY)
        assert len(model.engine.core.cache._kept) == 3
        assert model.generate([1, 108, *range(3, 20)], max_tokens=3, **GREEDY).stats.cached_tokens == 18
        assert model.generate([1, 100, *range(3, 20)], max_tokens=3, **GREEDY).stats.cached_tokens <= 1


def test_short_memory_drops_idle_conversations(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.catalogue.machine import Memory

    with toys().load(path, context=64, parallel=3) as model:
        model.generate([1, 100, *range(3, 20)], max_tokens=3, **GREEDY)
        monkeypatch.setattr("edgellm.engine.prefix_cache.memory", lambda: Memory(0))
        model.generate([1, 101, *range(3, 20)], max_tokens=3, **GREEDY)
        assert len(model.engine.core.cache._kept) == 1


def test_a_foreground_call_does_not_wait_for_the_background(loader: Loader, path: Path) -> None:
    with loader.load(path, context=64, parallel=2) as model:
        log, core, steps = loader.toy.log, model.engine.core, list[int]()

        def hold() -> None:
            """The first step waits for both in the background, the eleventh for the call in the foreground."""
            until(lambda: log or len(core.running) == 2)
            until(lambda: len(log) != 10 or not all(task.background for task in (*list(core.waiting), *core.running)))

        def count(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
            steps.append(len(log))
            return logits

        loader.toy.fail = hold
        behind = [model.session(priority="background") for _ in range(2)]
        results: list[edgellm.Generation] = []
        threads = [
            threading.Thread(target=lambda k=k: results.append(behind[k].generate([5 + k, 6, 7], max_tokens=150, **GREEDY)))
            for k in range(2)
        ]
        for thread in threads:
            thread.start()
        until(lambda: len(log) >= 10)
        assert model.generate([9, 9], max_tokens=20, processors=[count], **GREEDY).stats.generated_tokens == 20
        assert len(steps) == 20 and steps[-1] < 40, "the others need 150"
        for thread in threads:
            thread.join(120)
        loader.toy.fail = lambda: None
        for k in range(2):
            wanted = model.generate([5 + k, 6, 7], max_tokens=150, **GREEDY).token_ids
            assert wanted in {result.token_ids for result in results}


def test_a_reader_that_stops_reading_holds_nobody_up(model: Model) -> None:
    wanted = model.generate(SYSTEM, max_tokens=30, **GREEDY).token_ids
    streams = [model.stream(SYSTEM, max_tokens=30, **GREEDY) for _ in range(6)]

    def read_some(stream: edgellm.Stream) -> list[int | None]:
        return [next(stream).token_id for _ in range(3)]

    firsts = at_once([lambda s=s: read_some(s) for s in streams])
    assert model.generate([7, 7, 7], max_tokens=5, **GREEDY).stats.generated_tokens == 5
    rests = at_once([lambda s=s: [piece.token_id for piece in s] for s in streams])
    assert all((*a, *b) == wanted for a, b in zip(firsts, rests, strict=True))  # type: ignore[misc]  # lists of ids


def test_nothing_is_computed_where_nobody_waits(loader: Loader, model: Model) -> None:
    streams = [model.stream([1, 2, 3 + k], **GREEDY) for k in range(3)]
    for _ in range(4):
        for stream in streams:
            next(stream)
    steps = len(loader.toy.log)
    time.sleep(0.1)
    assert len(loader.toy.log) == steps


def test_errors_of_a_processor_are_its_callers(model: Model) -> None:
    def fail(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        if len(ids) > 20:
            raise ZeroDivisionError("mine")
        return logits

    prompts = [[1, 2, 3 + k] for k in range(4)]
    wanted = [model.generate(prompt, max_tokens=60, **GREEDY).token_ids for prompt in prompts]

    def job(k: int) -> object:
        try:
            return model.generate(prompts[k], max_tokens=60, processors=[fail] if k == 2 else [], **GREEDY).token_ids
        except ZeroDivisionError as error:
            return str(error)

    for _ in range(5):
        assert at_once([lambda k=k: job(k) for k in range(4)]) == [*wanted[:2], "mine", wanted[3]]


def test_nan_in_one_conversation_leaves_the_others_alone(loader: Loader, model: Model) -> None:
    prompts = [[1, 2, 3 + k] for k in range(4)]
    wanted = [model.generate(prompt, max_tokens=60, **GREEDY).token_ids for prompt in prompts]
    turned = loader.toy.turned
    loader.toy.logits_of = lambda seen: turned(seen) * (math.nan if seen[2] == 5 and len(seen) > 30 else 1)

    def job(k: int) -> object:
        try:
            return model.generate(prompts[k], max_tokens=60, **GREEDY).token_ids
        except NumericError:
            return "nan"

    assert at_once([lambda k=k: job(k) for k in range(4)]) == [*wanted[:2], "nan", wanted[3]]
    loader.toy.logits_of = turned
    assert model.generate(prompts[2], max_tokens=60, **GREEDY).token_ids == wanted[2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_step_is_the_drivers_alone(loader: Loader, model: Model, error: type[BaseException]) -> None:
    prompts = [[1, 2, 3 + k] for k in range(4)]
    wanted = [model.generate(prompt, max_tokens=60, **GREEDY).token_ids for prompt in prompts]
    failing = iter([*[False] * 40, True])

    def fail() -> None:
        time.sleep(0.0005)
        if next(failing, False):
            raise error

    loader.toy.fail = fail

    def job(k: int) -> object:
        try:
            return model.generate(prompts[k], max_tokens=60, **GREEDY).token_ids
        except error:
            return None

    got = at_once([lambda k=k: job(k) for k in range(4)])
    assert got.count(None) == 1 and all(a in (b, None) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_a_processor_may_use_the_model(loader: Loader, path: Path, parallel: int) -> None:
    """In the middle of a step that it shares with others, for which all of them wait."""
    model = loader.load(path, context=96, sinks=2, parallel=parallel)
    prompts = [[1, 2, 3 + k] for k in range(4)]
    wanted = [model.generate(prompt, max_tokens=12, **GREEDY).token_ids for prompt in prompts]

    def ask(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        assert np.array_equal(model.logits(ids)[-1], logits)
        model.generate([50, 51, 52], max_tokens=2)
        return logits

    jobs = [lambda k=k: model.generate(prompts[k], max_tokens=12, processors=[ask], **GREEDY).token_ids for k in range(4)]
    assert at_once(jobs) == wanted
    model.close()


def test_sessions_end(loader: Loader, model: Model) -> None:
    with pytest.raises(OptionError, match="priority='high'"):
        model.session(priority="high")  # type: ignore[arg-type]  # wrong on purpose
    with model.session() as session:
        stream = session.stream(SYSTEM, **GREEDY)
        next(stream)
        assert "tokens, foreground" in repr(session)
    session.close()
    assert list(stream) == [] and stream.result.stop_reason == "cancelled" and session.closed and "closed" in repr(session)
    for use in (lambda: session.generate([1]), session.fork):
        with pytest.raises(SessionError, match="closed"):
            use()


def test_closing_a_session_ends_streams_that_hold_no_place(loader: Loader, path: Path) -> None:
    with loader.load(path, context=96, parallel=1) as model:
        session = model.session()
        unread, begun = session.stream(SYSTEM, **GREEDY), session.stream([1, 2, 3], **GREEDY)
        next(begun)
        model.generate([5, 6], max_tokens=2)  # takes its place
        steps = len(loader.toy.log)
        session.close()
        ends = [stream.drain() for stream in (unread, begun)]
        assert [(end.stop_reason, len(end.token_ids)) for end in ends] == [("cancelled", 0), ("cancelled", 1)]
        assert len(loader.toy.log) == steps


def test_many_cancels(loader: Loader, model: Model) -> None:
    """At any moment, from any thread, and each next answer is right."""
    chance = random.Random(7)
    prompts = [prompt_of(k) for k in range(5)]
    wanted = [model.generate(prompt, max_tokens=20, **GREEDY).token_ids for prompt in prompts]

    def job(k: int, delays: list[float]) -> int:
        wrong = 0
        for delay in delays:
            stream = model.stream(prompts[k], max_tokens=20, **GREEDY)
            timer = threading.Timer(delay, stream.cancel if delay < 0.002 else stream.close)
            timer.start()
            got = tuple(piece.token_id for piece in stream if piece.token_id is not None)
            timer.join()
            wrong += got != wanted[k][: len(got)]
            wrong += model.generate(prompts[k], max_tokens=20, **GREEDY).token_ids != wanted[k]
        return wrong

    assert at_once([lambda k=k: job(k, [chance.random() * 0.004 for _ in range(30)]) for k in range(5)]) == [0] * 5


def rounds(model: Model, wanted: list[tuple[int, ...]], seed: int, n: int) -> int:
    """Generate, stream, fork, cancel, close at random; how many answers were wrong."""
    chance, wrong = random.Random(seed), 0
    session: Session | None = None
    for _ in range(n):
        k = chance.randrange(len(wanted))
        prompt, answer = prompt_of(k), wanted[k]
        where = model if session is None or chance.random() < 0.4 else session
        match chance.randrange(6):
            case 0:
                wrong += where.generate(prompt, max_tokens=20, **GREEDY).token_ids != answer
            case 1:
                ids = [piece.token_id for piece in where.stream(prompt, max_tokens=20, **GREEDY)]
                wrong += tuple(token for token in ids if token is not None) != answer
            case 2:
                other = session.fork() if session else model.session()
                wrong += other.generate(prompt, max_tokens=20, **GREEDY).token_ids != answer
                session = other
            case 3:
                with where.stream(prompt, max_tokens=20, **GREEDY) as stream:
                    some = [next(stream).token_id for _ in range(chance.randrange(1, 9))]
                wrong += tuple(some) != answer[: len(some)] or stream.result.token_ids != answer[: len(some)]
            case 4:
                stream = where.stream(prompt, max_tokens=20, **GREEDY)
                next(stream)
                stream.cancel()
                list(stream)
                wrong += stream.result.token_ids != answer[: stream.result.stats.generated_tokens]
            case 5:
                if session is not None:
                    session.close()
                session = None
                wrong += model.logits(prompt).shape[0] != len(prompt)
    return wrong


@pytest.mark.parametrize("parallel", [1, 3, 8])
def test_eight_threads(loader: Loader, path: Path, parallel: int) -> None:
    with loader.load(path, context=64, sinks=2, parallel=parallel) as model:
        wanted = [model.generate(prompt_of(k), max_tokens=20, **GREEDY).token_ids for k in range(8)]
        assert at_once([lambda t=t: rounds(model, wanted, t, 20) for t in range(8)]) == [0] * 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Toy, AheadToy])
def test_eight_threads_for_long(path: Path, kind: type[Toy]) -> None:
    with toys(kind).load(path, context=64, sinks=2, parallel=4) as model:
        wanted = [model.generate(prompt_of(k), max_tokens=20, **GREEDY).token_ids for k in range(8)]
        assert at_once([lambda t=t: rounds(model, wanted, t, 200) for t in range(8)], 300) == [0] * 8


def test_under_asyncio(loader: Loader, model: Model) -> None:
    wanted = [model.generate(prompt_of(k), max_tokens=20, **GREEDY).token_ids for k in range(6)]

    async def job(k: int) -> tuple[int, ...]:
        session = model.session()
        if k % 2:
            return (await session.agenerate(prompt_of(k), max_tokens=20, **GREEDY)).token_ids
        return tuple(
            [piece.token_id async for piece in session.astream(prompt_of(k), max_tokens=20, **GREEDY) if piece.token_id is not None]
        )

    async def endless() -> None:
        await model.session().agenerate([1, 2], max_tokens="unlimited", **GREEDY)

    async def main() -> list[tuple[int, ...]]:
        forever = asyncio.create_task(endless())
        answers = await asyncio.gather(*(job(k) for k in range(6)))
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        return answers

    assert asyncio.run(main()) == wanted
    time.sleep(0.3)
    steps = len(loader.toy.log)
    time.sleep(0.1)
    assert len(loader.toy.log) == steps, "a cancelled task computes nothing"


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
@pytest.mark.parametrize("n", [2, 5, pytest.param(16, marks=pytest.mark.slow)])
def test_together_as_each_alone_on_the_cpu(tmp_path: Path, arch: str, n: int) -> None:
    """The same bits, whoever shares the steps; sliding windows, and answers past the context."""
    path, prompts = tiny_model(tmp_path / "m.gguf", arch, "Q4_0", n_layers=2), [prompt_of(k) for k in range(n)]
    prompts = [[token % 90 for token in prompt] for prompt in prompts]

    def answer(model: Model | Session, k: int) -> tuple[int, ...]:
        return model.generate(prompts[k], max_tokens=30, seed=k, ignore_eos=True).token_ids

    wanted = []
    for k in range(n):
        with edgellm.load(path, backend="cpu", context=40) as model:
            wanted.append(answer(model, k))
    with edgellm.load(path, backend="cpu", context=40, parallel=n) as model:
        assert at_once([lambda k=k: answer(model, k) for k in range(n)]) == wanted
        sessions = [model.session() for _ in range(n)]
        assert at_once([lambda k=k: answer(sessions[k], k) for k in range(n)]) == wanted
        forks = [session.fork() for session in sessions]
        assert at_once([lambda k=k: answer(forks[k], k) for k in range(n)]) == wanted
