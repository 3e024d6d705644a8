"""/v1/completions: text that continues a prompt, or stands between two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any  # Any: JSON

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import AsyncStream, Generation, Model
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Models
from edgellm.server.openai.chat import DONE, FINISH, PING, completion_head, seeded, sse, sse_problem, timings
from edgellm.server.openai.requests import Sampled
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import SSE, Chunks, pinged, streamed, unless_gone

USUAL_TOKENS = 16  # of an answer whose request sets no limit, as OpenAI has it
MOST_PROMPTS = 64
MOST_LOGITS = 1 << 30  # bytes of a prompt's logits


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

    def options(self, default: int | None) -> dict[str, Any]:
        options = self.sampling(USUAL_TOKENS if default is None else default)
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
            model, choices, answers, prompts = loaded.model, list[dict[str, Any]](), list[Generation](), 0
            options = {**defaults(request, loaded), **body.options(self._settings.max_tokens)}
            for prompt in body.prompts:
                ids = await asyncio.to_thread(body.ids, model, prompt)
                for k in range(body.n or 1):
                    answer = await model.agenerate(ids, **seeded(options, k))
                    choices.append(await _choice(model, body, ids, answer, len(choices)))
                    answers.append(answer)
                prompts += answers[-1].stats.prompt_tokens
            note(request, loaded, *answers)
            head = completion_head("cmpl", "text_completion", loaded.name)
            counts = _usage(prompts, answers)
            return JSONResponse({**head, "choices": choices, "usage": counts, "timings": timings(answers[0].stats)})

    async def _stream(self, request: Request, body: CompletionBody) -> Chunks:
        async with self._models.use(body.model) as loaded:
            model, answers, prompts, index = loaded.model, list[Generation](), 0, 0
            options = {**defaults(request, loaded), **body.options(self._settings.max_tokens)}
            head = completion_head("cmpl", "text_completion", loaded.name)
            for prompt in body.prompts:
                ids = await asyncio.to_thread(body.ids, model, prompt)
                for k in range(body.n or 1):
                    answer = model.astream(ids, **seeded(options, k))
                    async for chunk in _chunks(model, body, ids, answer, head, index):
                        yield chunk
                    answers.append(answer.result)
                    index += 1
                prompts += answers[-1].stats.prompt_tokens
            note(request, loaded, *answers)
            if body.stream_options is not None and body.stream_options.include_usage:
                yield sse({**head, "choices": [], "usage": _usage(prompts, answers), "timings": timings(answers[0].stats)})
            yield DONE


async def _chunks(
    model: Model, body: CompletionBody, ids: Sequence[int], answer: AsyncStream, head: dict[str, Any], index: int
) -> AsyncIterator[bytes]:
    echoed, at = not body.echo, 0
    async for event in pinged(answer):
        if not echoed and event is not None:
            echoed, text = True, model.detokenize(ids)
            at += len(text)
            yield _chunk(head, index, text)
        if event is None:
            yield PING
        elif event.kind == "text":
            yield _chunk(head, index, event.text, _logprobs(model, event.logprobs, at) if event.logprobs else None)
            at += len(event.text)
        elif event.kind == "done" and event.result is not None:
            yield _chunk(head, index, "", None, FINISH[event.result.stop_reason])


def _chunk(head: dict[str, Any], index: int, text: str, logprobs: dict[str, Any] | None = None, reason: str | None = None) -> bytes:
    return sse({**head, "choices": [{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}]})


async def _choice(model: Model, body: CompletionBody, ids: list[int], answer: Generation, index: int) -> dict[str, Any]:
    text = model.detokenize(ids) if body.echo else ""
    logprobs = None
    if body.logprobs is not None:
        found: list[Any] = list(answer.logprobs or ())
        if body.echo:
            if len(ids) * model.n_vocab * 4 > MOST_LOGITS:
                raise Problem(400, "the prompt is too long for echo with logprobs; shorten it.")
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


def _usage(prompts: int, answers: Sequence[Generation]) -> dict[str, Any]:
    written = sum(each.stats.generated_tokens for each in answers)
    details = {"cached_tokens": answers[0].stats.cached_tokens}
    return {
        "prompt_tokens": prompts,
        "completion_tokens": written,
        "total_tokens": prompts + written,
        "prompt_tokens_details": details,
    }
