"""/v1/completions: text that continues a prompt, or stands between two."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any  # Any: JSON

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import AsyncStream, Event, Generation, Model
from edgellm.options.choices import of_choice
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Models
from edgellm.server.openai.chat import DONE, FINISH, completion_head, sse, sse_problem, timings
from edgellm.server.openai.requests import Sampled
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import COMMENT, SSE, Answering, Begin, Chunks, choices, merged, streamed, unless_gone

USUAL_TOKENS = 16  # of an answer whose request sets no limit, as OpenAI has it
MOST_PROMPTS = 64


class CompletionBody(Sampled):
    prompt: str | list[str] | list[int] | list[list[int]] = ""
    suffix: str | None = None
    echo: bool | None = None
    logprobs: int | None = Field(None, ge=0, le=20)
    best_of: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or several, as texts or token ids. Raises Problem."""
        given = self.prompt
        one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
        found: list[Any] = [given] if one else list(given)
        if not 1 <= len(found) <= MOST_PROMPTS:
            raise Problem(400, f"prompt has {len(found)} prompts; give 1 to {MOST_PROMPTS}.")
        return found

    def options(self, model: Model, default: int | None) -> dict[str, Any]:
        options = self.sampling(model, USUAL_TOKENS if default is None else default)
        return options if self.logprobs is None else {**options, "logprobs": self.logprobs}

    def ids(self, model: Model, prompt: str | list[int]) -> list[int]:
        """A prompt's token ids; names of control tokens in it are these tokens, for the prompt is the program's own."""
        if not isinstance(prompt, str):
            return prompt
        return model.fill_in_prompt(prompt, self.suffix) if self.suffix else model.tokenize(prompt, parse_special=True)


class Completions:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        body = await read(request, CompletionBody)
        if body.stream:
            return await streamed(request, self._stream(request, body), SSE, sse_problem)
        return await unless_gone(request.receive, self._whole(request, body))

    async def _whole(self, request: Request, body: CompletionBody) -> Response:
        async with self._models.use(body.model) as loaded:
            model = loaded.model
            options = {**defaults(request, loaded), **body.options(model, self._settings.max_tokens)}
            prompts = [await asyncio.to_thread(body.ids, model, prompt) for prompt in body.prompts]
            found, listed = dict[int, Generation](), list[dict[str, Any]]()
            async with contextlib.aclosing(events_of(model, prompts, body.n or 1, options)) as events:
                async for index, event in events:
                    if event is not None and event.result is not None:
                        found[index] = event.result
            answers, n = [found[index] for index in sorted(found)], body.n or 1
            for index, answer in enumerate(answers):
                listed.append(await _choice(model, body, prompts[index // n], answer, index))
            note(request, loaded, *answers)
            head, counts = completion_head("cmpl", "text_completion", loaded.name), _usage(answers, n)
            return JSONResponse({**head, "choices": listed, "usage": counts, "timings": timings(answers[0].stats)})

    async def _stream(self, request: Request, body: CompletionBody) -> Chunks:
        async with self._models.use(body.model) as loaded:
            model = loaded.model
            options = {**defaults(request, loaded), **body.options(model, self._settings.max_tokens)}
            prompts, n = [await asyncio.to_thread(body.ids, model, prompt) for prompt in body.prompts], body.n or 1
            head = completion_head("cmpl", "text_completion", loaded.name)
            writers = [
                CompletionChunker(model, body, ids, head, index * n + k) for index, ids in enumerate(prompts) for k in range(n)
            ]
            async with contextlib.aclosing(events_of(model, prompts, body.n or 1, options)) as events:
                async for index, event in events:
                    yield writers[index].push(event)
            answers = [writer.result for writer in writers if writer.result is not None]
            note(request, loaded, *answers)
            if body.stream_options is not None and body.stream_options.include_usage:
                yield sse({**head, "choices": [], "usage": _usage(answers, n), "timings": timings(answers[0].stats)})
            yield DONE


async def events_of(
    model: Model,
    prompts: Sequence[list[int]],
    n: int,
    options: dict[str, Any],
    *,
    progress: bool = False,
    limited: Callable[[AsyncStream], Answering] = lambda answer: answer,
) -> AsyncGenerator[tuple[int, Event | None]]:
    """The events of `n` answers to each prompt, with the numbers of the answers; as many at a time as the model writes.

    `limited`: what ends an answer early.
    """
    most = model.load_stats().parallel

    def beginner(ids: list[int]) -> Begin:
        async def begin(k: int) -> Answering:
            return limited(model.astream(ids, **of_choice(options, k)))

        return begin

    sources = [choices(beginner(ids), n, most, progress=progress) for ids in prompts]
    async with contextlib.aclosing(merged(sources, max(1, most // n))) as found:
        async for number, (k, event) in found:
            yield number * n + k, event


class CompletionChunker:
    """One choice as chunks: its prompt where that is echoed, the text, and the reason of its end."""

    def __init__(self, model: Model, body: CompletionBody, ids: Sequence[int], head: dict[str, Any], index: int) -> None:
        self.result: Generation | None = None
        self._model, self._head, self._index, self._at = model, head, index, 0
        self._echo = model.detokenize(ids) if body.echo else ""

    def push(self, event: Event | None) -> bytes:
        """The chunks of what came next."""
        if event is None:
            return COMMENT
        echo, self._echo = self._echo, ""
        self._at += len(echo)
        return (_chunk(self._head, self._index, echo) if echo else b"") + self._of(event)

    def _of(self, event: Event) -> bytes:
        if event.kind == "text":
            logprobs = _logprobs(self._model, event.logprobs, self._at) if event.logprobs else None
            self._at += len(event.text)
            return _chunk(self._head, self._index, event.text, logprobs)
        if event.result is None:
            return b""
        self.result = event.result
        return _chunk(self._head, self._index, "", None, FINISH[event.result.stop_reason])


def _chunk(head: dict[str, Any], index: int, text: str, logprobs: dict[str, Any] | None = None, reason: str | None = None) -> bytes:
    return sse({**head, "choices": [{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}]})


async def _choice(model: Model, body: CompletionBody, ids: list[int], answer: Generation, index: int) -> dict[str, Any]:
    text = model.detokenize(ids) if body.echo else ""
    logprobs = None
    if body.logprobs is not None:
        found: list[Any] = list(answer.logprobs or ())
        if body.echo:
            found = [None, *await asyncio.to_thread(model.logprobs, ids, body.logprobs), *found]
        logprobs = _logprobs(model, found, 0 if body.echo else len(text), first=ids[0] if body.echo else None)
    return {"text": text + answer.text, "index": index, "logprobs": logprobs, "finish_reason": FINISH[answer.stop_reason]}


def _logprobs(model: Model, given: Sequence[Any], at: int, first: int | None = None) -> dict[str, Any]:
    """Log probabilities in the shape of completions; None stands for the first token of a prompt, which nothing predicts."""
    tokens, values, tops, offsets = list[str](), list[float | None](), list[dict[str, float] | None](), list[int]()
    for each in given:
        token = first if each is None else each.token_id
        tokens.append(model.tokenizer.piece(token).decode("utf-8", "replace") if token is not None else "")
        values.append(None if each is None else max(each.logprob, -9999.0))
        top = None if each is None else {model.tokenizer.piece(t).decode("utf-8", "replace"): max(p, -9999.0) for t, p in each.top}
        tops.append(top)
        offsets.append(at)
        at += len(tokens[-1])
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


def _usage(answers: Sequence[Generation], n: int) -> dict[str, Any]:
    """Tokens of a request, of each prompt once."""
    prompts, written = (
        sum(each.stats.prompt_tokens for each in answers[::n]),
        sum(each.stats.generated_tokens for each in answers),
    )
    return {
        "prompt_tokens": prompts,
        "completion_tokens": written,
        "total_tokens": prompts + written,
        "prompt_tokens_details": {"cached_tokens": sum(each.stats.cached_tokens for each in answers[::n])},
    }
