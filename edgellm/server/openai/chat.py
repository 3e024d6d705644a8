"""/v1/chat/completions: answers to a conversation, in one piece or as a stream."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import CallDelta, Event, Generation, Model, Stats, ToolCall, __version__
from edgellm.options.choices import of_choice
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.openai.requests import ChatBody
from edgellm.server.parts import readable
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import COMMENT, SSE, Begin, Chunks, choices, compact, streamed, unless_gone

DONE = b"data: [DONE]\n\n"
KINDS = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}
FINISH = {"eog": "stop", "stop": "stop", "length": "length", "context": "length", "loop": "length", "cancelled": "length"}


class Chat:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        body = await read(request, ChatBody)
        if body.stream:
            return await streamed(request, self._stream(request, body), SSE, sse_problem)
        return await unless_gone(request.receive, self._whole(request, body))

    async def _whole(self, request: Request, body: ChatBody) -> Response:
        async with self._models.use(body.model) as loaded:
            options = {**defaults(request, loaded), **body.options(loaded.model, self._settings.max_tokens)}
            answers = await loaded.model.achat(readable(body.conversation, loaded.model), n=body.n or 1, **options)
            note(request, loaded, *answers)
            found = [_choice(loaded.model, body, answer, index) for index, answer in enumerate(answers)]
            head = completion_head("chatcmpl", "chat.completion", loaded.name)
            return JSONResponse({**head, "choices": found, "usage": usage(answers), "timings": timings(answers[0].stats)})

    async def _stream(self, request: Request, body: ChatBody) -> Chunks:
        async with self._models.use(body.model) as loaded:
            options = {**defaults(request, loaded), **body.options(loaded.model, self._settings.max_tokens)}
            head = completion_head("chatcmpl", "chat.completion.chunk", loaded.name)
            n, most = body.n or 1, loaded.model.load_stats().parallel
            writers = [Chunker(loaded.model, body, head, index) for index in range(n)]
            async with contextlib.aclosing(choices(_beginner(loaded, body, options), n, most, progress=n == 1)) as events:
                async for index, event in events:
                    yield writers[index].push(event)
            answers = [writer.result for writer in writers if writer.result is not None]
            note(request, loaded, *answers)
            if body.stream_options is not None and body.stream_options.include_usage:
                yield sse({**head, "choices": [], "usage": usage(answers), "timings": timings(answers[0].stats)})
            yield DONE


def _beginner(loaded: Loaded, body: ChatBody, options: dict[str, Any]) -> Begin:
    """Begins one of several answers."""
    return lambda index: loaded.model.achat(readable(body.conversation, loaded.model), stream=True, **of_choice(options, index))


class Chunker:
    """One choice as chunks: the role once the prompt is accepted, thinking, text and calls, and the reason of its end."""

    def __init__(self, model: Model, body: ChatBody, head: dict[str, Any], index: int) -> None:
        self.result: Generation | None = None
        self._model, self._body, self._head, self._index = model, body, head, index
        self._begun, self._calls = False, set[int]()

    def push(self, event: Event | None) -> bytes:
        """The chunks of what came next."""
        first = b"" if self._begun else self._delta({"role": "assistant", "content": ""})
        self._begun = True
        return first + self._of(event)

    def _of(self, event: Event | None) -> bytes:
        if event is None:
            return COMMENT
        if event.prompt is not None:
            return f": prompt {event.prompt.done}/{event.prompt.total}\n\n".encode()
        if event.kind == "thinking":
            return self._delta({"reasoning_content": event.text, "reasoning": event.text})
        if event.kind == "text":
            return self._delta({"content": event.text}, logprobs_of(self._model, event))
        if event.call_delta is not None:
            return self._delta(self._call(event.call_delta))
        if event.result is None:
            return b""
        self.result = event.result
        last = {"index": self._index, "delta": {}, "logprobs": None, "finish_reason": finish_reason(self._body, event.result)}
        return sse({**self._head, "choices": [last], "timings": timings(event.result.stats)})

    def _call(self, delta: CallDelta) -> dict[str, Any]:
        """A piece of a call; id and name come with the first."""
        first = delta.number not in self._calls
        self._calls.add(delta.number)
        function = {**({"name": delta.name} if first else {}), "arguments": delta.arguments}
        if self._body.calls_functions:
            return {"function_call": function}
        identity = {"id": delta.id, "type": "function"} if first else {}
        return {"tool_calls": [{"index": delta.number, **identity, "function": function}]}

    def _delta(self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> bytes:
        return sse({**self._head, "choices": [{"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": None}]})


def completion_head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """The fields that all objects of an answer begin with."""
    identity = {"id": f"{prefix}-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}
    return {**identity, "system_fingerprint": f"edgellm-{__version__}"}


def sse(value: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return f"data: {compact(value)}\n\n".encode("utf-8", "replace")


def problem_body(problem: Problem) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    kind = KINDS.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    return {"error": {"message": problem.message, "type": kind, "param": None, "code": problem.code}}


def sse_problem(problem: Problem) -> bytes:
    """The end of a stream that failed."""
    return sse(problem_body(problem)) + DONE


def _choice(model: Model, body: ChatBody, answer: Generation, index: int) -> dict[str, Any]:
    said = answer.text.strip() or not answer.tool_calls
    message: dict[str, Any] = {"role": "assistant", "content": answer.text if said else None, "refusal": None, "annotations": []}
    if answer.thinking:
        message |= {"reasoning_content": answer.thinking, "reasoning": answer.thinking}
    if answer.tool_calls:
        calls = [call_of(call) for call in answer.tool_calls]
        message |= {"function_call": calls[0]["function"]} if body.calls_functions else {"tool_calls": calls}
    logprobs = {"content": [token_logprobs(model, each) for each in answer.logprobs]} if answer.logprobs is not None else None
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason(body, answer)}


def finish_reason(body: ChatBody, answer: Generation) -> str:
    """Why an answer ended, in OpenAI's words."""
    if answer.tool_calls:
        return "function_call" if body.calls_functions else "tool_calls"
    return FINISH[answer.stop_reason]


def call_of(call: ToolCall) -> dict[str, Any]:
    """A call, its arguments as JSON in a text."""
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def logprobs_of(model: Model, event: Event) -> dict[str, Any] | None:
    return {"content": [token_logprobs(model, each) for each in event.logprobs]} if event.logprobs else None


def token_logprobs(model: Model, given: Any) -> dict[str, Any]:
    """Log probabilities of a token, as chat completions have them."""
    top = [_token(model, token, logprob) for token, logprob in given.top]
    return {**_token(model, given.token_id, given.logprob), "top_logprobs": top}


def _token(model: Model, token: int, logprob: float) -> dict[str, Any]:
    piece = model.tokenizer.piece(token)
    return {"token": piece.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(piece)}


def usage(answers: list[Generation]) -> dict[str, Any]:
    """Tokens of a request: its prompt once, and what was written."""
    prompt, written = answers[0].stats.prompt_tokens, sum(each.stats.generated_tokens for each in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": answers[0].stats.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": sum(each.stats.thinking_tokens for each in answers)},
    }


def timings(stats: Stats) -> dict[str, Any]:
    """Counts of tokens that were cached, computed and dropped, and speeds; llama-server's names where it has one."""
    return {
        "cache_n": stats.cached_tokens,
        "prompt_n": stats.computed_prompt_tokens,
        "prompt_ms": round(1000 * stats.prompt_seconds, 3),
        "prompt_per_token_ms": round(1000 * stats.prompt_seconds / max(1, stats.computed_prompt_tokens), 3),
        "prompt_per_second": round(stats.prompt_tokens_per_second, 3),
        "predicted_n": stats.generated_tokens,
        "predicted_ms": round(1000 * stats.generation_seconds, 3),
        "predicted_per_token_ms": round(1000 * stats.generation_seconds / max(1, stats.generated_tokens), 3),
        "predicted_per_second": round(stats.tokens_per_second, 3),
        "evicted_n": stats.evicted_tokens,
        "forgotten_messages": list(stats.forgotten_messages),
        "forgotten_images": stats.forgotten_images,
        "forgotten_clips": stats.forgotten_clips,
    }
