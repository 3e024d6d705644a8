"""The calls of a model under asyncio: the same answers, a loop that goes on, and computing that ends with its task."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_model
from waiting import auntil, until

import edgellm
from edgellm.api.async_worker import AHEAD

OPTIONS: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    with edgellm.load(tiny_model(tmp_path_factory.mktemp("async") / "m.gguf", "llama", "F32", tokenizer="bpe")) as opened:
        yield opened


class Slow:
    """A processor that makes each token take a while, and counts them."""

    def __init__(self, seconds: float = 0.005) -> None:
        self.seconds, self.tokens = seconds, 0

    def __call__(self, ids: Any, logits: Any) -> Any:
        self.tokens += 1
        time.sleep(self.seconds)
        return logits

    def stands_still(self) -> bool:
        """True if no token is computed any more, after a while for those under way."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            before = self.tokens
            time.sleep(0.3)
            if self.tokens == before:
                return True
        return False


def test_answers_are_those_of_the_twins(model: edgellm.Model) -> None:
    messages = [{"role": "user", "content": "hello"}]

    async def main() -> None:
        done = await model.agenerate("hello", max_tokens=20, **OPTIONS)
        assert done.token_ids == model.generate("hello", max_tokens=20, **OPTIONS).token_ids
        stream = model.astream("hello", max_tokens=20, **OPTIONS)
        pieces = [piece async for piece in stream]
        assert "".join(pieces) == stream.result.text == done.text and all(isinstance(piece, edgellm.Piece) for piece in pieces)
        assert [piece async for piece in stream] == []
        said = await model.achat(messages, max_tokens=20, **OPTIONS)
        assert said.token_ids == model.chat(messages, max_tokens=20, **OPTIONS).token_ids
        events = [event async for event in (await model.achat(messages, stream=True, max_tokens=20, **OPTIONS)).events()]
        assert "".join(event.text for event in events) == said.text
        assert [event.kind for event in events if event.kind != "text"][-1] == "done" and events[-1].result is not None
        assert {event.kind for event in events} <= {"prompt", "text", "done"} and events[-1].result.text == said.text

    asyncio.run(main())


def test_the_loop_keeps_running_while_calls_queue(model: edgellm.Model) -> None:
    async def main() -> None:
        ticked = threading.Event()

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.005)
                ticked.set()

        def wait_for_a_tick(ids: Any, logits: Any) -> Any:
            ticked.clear()
            assert ticked.wait(60), "the loop stands still while a token is computed"
            return logits

        ticking = asyncio.create_task(tick())
        answers = await asyncio.gather(
            *(model.agenerate(text, max_tokens=10, processors=[wait_for_a_tick], **OPTIONS) for text in "abc")
        )
        ticking.cancel()
        for text, answer in zip("abc", answers, strict=True):
            assert answer.token_ids == model.generate(text, max_tokens=10, **OPTIONS).token_ids

    asyncio.run(main())


@pytest.mark.parametrize("how", ["generate", "stream", "between"])
def test_cancelling_the_task_ends_the_computing(how: str, model: edgellm.Model) -> None:
    slow = Slow()

    async def read() -> None:
        if how == "generate":
            await model.agenerate("a", max_tokens="unlimited", processors=[slow], **OPTIONS)
        async for _ in model.astream("a", max_tokens="unlimited", processors=[slow], **OPTIONS):
            if how == "between":
                await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(read())
        await auntil(lambda: slow.tokens >= 3 or task.done())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert slow.tokens and slow.stands_still()
    assert model.generate("a", max_tokens=2, **OPTIONS).stats.generated_tokens == 2


def test_cancelling_while_the_prompt_is_read(model: edgellm.Model) -> None:
    steps, cancelled = list[int](), threading.Event()

    def progress(done: int, total: int) -> None:
        steps.append(done)
        cancelled.wait(60)

    async def main() -> None:
        task = asyncio.create_task(model.agenerate([1] * 4000, max_tokens=1, progress=progress, **OPTIONS))
        await auntil(lambda: steps or task.done())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()

    asyncio.run(main())
    assert model.generate("a", max_tokens=1, **OPTIONS).stats.generated_tokens == 1  # after the other's end
    assert steps[-1] < 4000 - 256


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_ending_early(how: str, model: edgellm.Model) -> None:
    slow = Slow()

    async def main() -> None:
        stream = model.astream("a", max_tokens="unlimited", processors=[slow], **OPTIONS)
        with pytest.raises(edgellm.OptionError):
            _ = stream.result
        if how == "with":
            async with stream:
                await anext(stream)
        else:
            await anext(stream)
        if how == "drop":
            del stream
            gc.collect()
            return
        await stream.aclose()
        assert stream.result.stop_reason == "cancelled" and stream.result.stats.generated_tokens >= 1
        assert [piece async for piece in stream] == []

    asyncio.run(main())
    assert slow.stands_still()


def test_one_that_was_never_read_can_be_closed(model: edgellm.Model) -> None:
    async def main() -> edgellm.Generation:
        async with model.astream("a", **OPTIONS) as stream:
            pass
        return stream.result

    assert asyncio.run(main()).stop_reason == "cancelled"


def test_computing_is_little_ahead_of_the_reader(model: edgellm.Model) -> None:
    slow = Slow(0)

    async def main() -> None:
        async with model.astream("a", max_tokens="unlimited", processors=[slow], **OPTIONS) as stream:
            await anext(stream)
            await asyncio.sleep(0.2)
            assert slow.tokens <= AHEAD + 2

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_one_task_closes_what_another_reads(fails: bool, model: edgellm.Model) -> None:
    """Both wait when the end comes."""
    computing, both_wait = threading.Event(), threading.Event()

    def processor(ids: Any, logits: Any) -> Any:
        computing.set()
        assert both_wait.wait(60)
        if fails:
            raise RuntimeError("the processor's own")
        return logits

    async def read(stream: edgellm.AsyncStream) -> int:
        return len([piece async for piece in stream])

    async def main() -> None:
        stream = model.astream("a", max_tokens="unlimited", processors=[processor], **OPTIONS)
        tasks = [asyncio.create_task(read(stream))]
        await asyncio.to_thread(computing.wait, 60)
        tasks.append(asyncio.create_task(stream.aclose()))
        await asyncio.sleep(0)
        both_wait.set()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 120)
        if fails:
            assert [str(end) for end in ends] == ["the processor's own"] * 2
        else:
            assert ends[1] is None and stream.result.stop_reason == "cancelled"

    asyncio.run(main())


def test_dropping_a_stream_with_held_back_text_ends_its_thread(model: edgellm.Model) -> None:
    """Its last piece has that text, although nobody makes room for more."""
    slow, token = Slow(0), model.tokenizer.encode("a")[0]

    async def main() -> None:
        stream = model.astream(
            "b", max_tokens="unlimited", processors=[slow], stop=["a" * 99], logit_bias={token: 1000.0}, **OPTIONS
        )
        await anext(stream)
        await auntil(lambda: slow.tokens >= AHEAD + 1)
        del stream
        gc.collect()
        await asyncio.to_thread(until, lambda: not any(thread.name == "edgellm-async" for thread in threading.enumerate()))

    asyncio.run(main())


def test_one_that_is_cancelled_gives_its_reader_the_end(model: edgellm.Model) -> None:
    async def main() -> None:
        stream, text = model.astream("a", max_tokens="unlimited", **OPTIONS), ""
        async for event in stream.events():
            text += event.text
            stream.cancel()
        assert event.result is not None and event.result.stop_reason == "cancelled" and event.result.text == text

    asyncio.run(main())


def test_errors_reach_the_awaiter_once(model: edgellm.Model) -> None:
    def fails(ids: Any, logits: Any) -> Any:
        raise RuntimeError("the processor's own")

    async def main() -> None:
        with pytest.raises(edgellm.OptionError, match="top_p"):
            await model.agenerate("a", top_p=7)
        stream = model.astream("a", processors=[fails])
        with pytest.raises(RuntimeError, match="the processor's own"):
            await anext(stream)
        assert [piece async for piece in stream] == []
        await stream.aclose()

    asyncio.run(main())


def test_a_loop_that_is_closed_leaves_no_thread_behind(model: edgellm.Model) -> None:
    async def main() -> edgellm.AsyncStream:
        stream = model.astream("a", max_tokens="unlimited", processors=[Slow()], **OPTIONS)
        await anext(stream)
        return stream

    stream = asyncio.run(main())
    del stream
    until(lambda: not any(thread.name == "edgellm-async" for thread in threading.enumerate()))
    assert np.isfinite(model.logits([1])).all()


def test_many_answers_share_few_threads(model: edgellm.Model) -> None:
    prompts = ["abcdefgh"[k % 5 :] for k in range(200)]
    wanted = {prompt: model.generate(prompt, max_tokens=6, **OPTIONS).text for prompt in set(prompts)}
    most = 0

    async def ask(prompt: str) -> str:
        nonlocal most
        text = ""
        async for piece in model.astream(prompt, max_tokens=6, **OPTIONS):
            most = max(most, sum(thread.name == "edgellm-async" for thread in threading.enumerate()))
            text += piece
        return text

    async def main() -> list[str]:
        return await asyncio.gather(*map(ask, prompts))

    assert asyncio.run(main()) == [wanted[prompt] for prompt in prompts]
    assert 1 <= most <= 3


def test_a_reader_that_stopped_continues(model: edgellm.Model) -> None:
    wanted = model.generate("abc", max_tokens=60, **OPTIONS).text

    async def main() -> str:
        stream, text = model.astream("abc", max_tokens=60, **OPTIONS), ""
        async for piece in stream:
            text += piece
            if len(text) % 7 == 0:
                await asyncio.sleep(0.01)
        return text

    assert asyncio.run(main()) == wanted


def test_closing_the_model_ends_answers_of_loops(tmp_path: Path) -> None:
    async def main() -> None:
        with edgellm.load(tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="bpe")) as own:
            streams = [own.astream("a", max_tokens="unlimited", processors=[Slow()], **OPTIONS) for _ in range(5)]
            await anext(streams[0])
            tasks = [asyncio.create_task(stream.drain()) for stream in streams]
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own.close)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            assert isinstance(end, edgellm.ModelClosed) or end.stop_reason == "cancelled"

    asyncio.run(main())
    until(lambda: not any(thread.name == "edgellm-async" for thread in threading.enumerate()))


def test_another_event_loop_is_refused_with_advice(model: edgellm.Model) -> None:
    with pytest.raises(edgellm.OptionError, match=r"no event loop of asyncio here; under trio"):
        model.agenerate("a", max_tokens=1).send(None)
