"""/completion and /infill: text that continues a prompt or stands between two texts, in llama-server's own shape."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import AsyncStream, Event, Generation, Model, TokenLogprobs
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.llama_cpp.requests import InfillBody, TextBody, Written
from edgellm.server.models import Loaded, Models
from edgellm.server.openai import problem_body
from edgellm.server.openai.chat import sse, timings, token_logprobs
from edgellm.server.openai.completions import events_of
from edgellm.server.settings import Settings
from edgellm.server.streaming import COMMENT, SSE, Answering, Chunks, streamed, unless_gone

UNSET = -1  # a limit or a seed


class LimitedAnswer:
    """An answer that ends once so many seconds have passed since its first text, and a line of it is complete."""

    def __init__(self, answer: AsyncStream, seconds: float) -> None:
        self._answer, self._seconds = answer, seconds

    async def events(self) -> AsyncIterator[Event]:
        since, line = None, False
        async for event in self._answer.events():
            if event.kind == "text":
                since, line = since or time.monotonic(), line or "\n" in event.text
                if line and time.monotonic() - since >= self._seconds:
                    self._answer.cancel()
            yield event


class NativeCompletions:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def infill(self, request: Request) -> Response:
        """The text between two others."""
        return await self._answer(request, await read(request, InfillBody))

    async def completion(self, request: Request) -> Response:
        """The text that continues a prompt, in which names of control tokens are these tokens; a list for several prompts."""
        return await self._answer(request, await read(request, TextBody))

    async def _answer(self, request: Request, body: Written) -> Response:
        if body.stream:
            return await streamed(request, self._stream(request, body), SSE, lambda problem: sse(problem_body(problem)))
        return await unless_gone(request.receive, self._whole(request, body))

    async def _whole(self, request: Request, body: Written) -> Response:
        async with self._models.use(body.model) as loaded:
            found = dict[int, dict[str, Any]]()
            async for index, _, last in self._writing(request, loaded, body, []):
                if last is not None:
                    found[index] = last
            listed = [found[index] for index in sorted(found)]
            return JSONResponse(listed if len(listed) > 1 else listed[0])

    async def _stream(self, request: Request, body: Written) -> Chunks:
        async with self._models.use(body.model) as loaded:
            since, begun = time.monotonic(), list[AsyncStream]()
            async for index, event, last in self._writing(request, loaded, body, begun):
                if last is not None:
                    yield sse({**last, "content": ""} if "content" in last else last)
                elif event is None:
                    yield COMMENT
                elif event.kind == "text":
                    probabilities = _probabilities(loaded.model, event.logprobs)
                    yield sse({"index": index, "content": event.text, "stop": False, **probabilities})
                elif event.prompt is not None:
                    done = {"total": event.prompt.total, "cache": begun[0].cached_tokens, "processed": event.prompt.done}
                    done["time_ms"] = int(1000 * (time.monotonic() - since))
                    yield sse({"index": index, "content": "", "stop": False, "prompt_progress": done})

    async def _writing(
        self, request: Request, loaded: Loaded, body: Written, begun: list[AsyncStream]
    ) -> AsyncIterator[tuple[int, Event | None, dict[str, Any] | None]]:
        """Answers' numbers, what came of each, and at its end the object that describes it; `begun` gets the answers."""
        model, done = loaded.model, dict[int, Generation]()
        options = {**defaults(request, loaded), **body.writing(model, self._settings.max_tokens)}
        prompts, n = await asyncio.to_thread(body.prompts, model), body.answers
        limit = body.t_max_predict_ms or 0

        def limited(answer: AsyncStream) -> Answering:
            begun.append(answer)
            return LimitedAnswer(answer, limit / 1000) if limit > 0 else answer

        progress = bool(body.return_progress) and n * len(prompts) == 1
        events = events_of(model, prompts, n, options, progress=progress, limited=limited)
        async with contextlib.aclosing(events):
            async for index, event in events:
                if event is None or event.result is None:
                    yield index, event, None
                else:
                    done[index] = event.result
                    yield index, event, _described(loaded, body, options, prompts[index // n], event.result, index)
        note(request, loaded, *(done[index] for index in sorted(done)))


def _described(
    loaded: Loaded, body: Written, options: dict[str, Any], prompt: list[int], answer: Generation, index: int
) -> dict[str, Any]:
    """A finished answer: its text and tokens, why it ended, its counts, and the settings that it was written with."""
    stats, stop, model = answer.stats, answer.stop_text, loaded.model
    found = {
        "index": index,
        "content": answer.text,
        "tokens": list(answer.token_ids),
        "stop": True,
        "model": loaded.name,
        "tokens_predicted": stats.generated_tokens,
        "tokens_evaluated": stats.prompt_tokens,
        "generation_settings": generation_settings(model, {**options, "seed": answer.seed}, stream=bool(body.stream)),
        "prompt": model.detokenize(prompt, skip_special=False),
        "has_new_line": "\n" in answer.text,
        "truncated": stats.evicted_tokens > 0,
        "stop_type": "word" if stop else {"eog": "eos", "stop": "word"}.get(answer.stop_reason, "limit"),
        "stopping_word": stop or "",
        "tokens_cached": stats.cached_tokens,
        "timings": timings(stats),
        **(_probabilities(model, answer.logprobs or ()) if not body.stream else {}),
    }
    return found if body.response_fields is None else _chosen(found, body.response_fields)


def generation_settings(model: Model, options: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The sampling options in force, with llama-server's names."""
    known = model.sampling_options().sources
    settings = asdict(model.sampling_options(**{name: value for name, value in options.items() if name in known}).options)
    seed, dry_last_n = settings.pop("seed"), settings.pop("dry_last_n")
    bias = [{"token": token, "bias": value} for token, value in settings.pop("logit_bias").items() if value > float("-inf")]
    limit, stop = options.get("max_tokens", UNSET), options.get("stop", [])
    return {
        **settings,
        "seed": UNSET if seed is None else seed,
        "dry_penalty_last_n": dry_last_n,
        "logit_bias": bias,
        "n_predict": limit,
        "max_tokens": limit,
        "stop": stop,
        "stream": stream,
        "n_probs": options.get("logprobs", 0),
        "grammar": options["grammar"] if isinstance(options.get("grammar"), str) else "",
    }


def _probabilities(model: Model, given: Sequence[TokenLogprobs]) -> dict[str, Any]:
    found = [{"id": each.token_id, **token_logprobs(model, each)} for each in given]
    return {"completion_probabilities": found} if found else {}


def _chosen(found: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Some fields; one within another is named as in `timings/prompt_n`, and keeps that name."""
    chosen = dict[str, Any]()
    for path in wanted:
        value: Any = found
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            chosen[path] = value
    return chosen
