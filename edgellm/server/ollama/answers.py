"""/api/chat and /api/generate: answers as lines of JSON, or in one object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import AsyncStream, Event, Generation
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.ollama.requests import GenerateBody, GeneratingBody, OllamaChatBody, moment
from edgellm.server.openai.chat import token_logprobs
from edgellm.server.openai.requests import tools_of
from edgellm.server.problems import Problem
from edgellm.server.settings import Settings
from edgellm.server.streaming import NDJSON, Chunks, compact, pinged, streamed, unless_gone

Shape = Callable[[str, str, list[dict[str, Any]]], dict[str, Any]]  # of text, thinking and calls


class Begin(Protocol):
    """Starts an answer of a model, with options of the library."""

    async def __call__(self, loaded: Loaded, options: dict[str, Any]) -> AsyncStream: ...


REASONS = {"eog": "stop", "stop": "stop"}


class OllamaAnswers:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def chat(self, request: Request) -> Response:
        """The endpoint of conversations; one without messages loads the model, or unloads it with a keep_alive of 0."""
        body = await read(request, OllamaChatBody)
        if not body.messages:
            return await unless_gone(request.receive, self._load(body, _message))
        conversation = body.conversation

        async def begin(loaded: Loaded, options: dict[str, Any]) -> AsyncStream:
            tools = tools_of(body.tools, body.tool_choice)
            options = {**options, **body.thinking(loaded.model), **tools, "continue_final_message": True}
            answer: AsyncStream = await loaded.model.achat(conversation, stream=True, **options)
            return answer

        return await self._answer(request, body, begin, _message)

    async def generate(self, request: Request) -> Response:
        """The endpoint of prompts, which are a conversation of one message unless they are `raw`."""
        body = await read(request, GenerateBody)
        if body.images and (body.raw or body.suffix):
            raise Problem(400, "images are for prompts that go through the chat template; leave raw and suffix out.")
        if body.images and body.context:
            raise Problem(400, "images cannot follow a context of tokens; send all messages to /api/chat.")
        if body.template:
            raise Problem(400, "template is not supported; give raw, and the whole prompt.")
        if body.raw and (body.system or body.context):
            raise Problem(400, "raw prompts have no system or context; put all of it into the prompt.")
        if not body.prompt and not body.suffix:
            return await unless_gone(request.receive, self._load(body, _response))

        async def begin(loaded: Loaded, options: dict[str, Any]) -> AsyncStream:
            model = loaded.model
            if not body.suffix and (body.raw or not (model.has_template or body.images)):
                return model.astream(model.tokenize(body.prompt, parse_special=bool(body.raw)), **options)
            if body.context:
                prompt = await asyncio.to_thread(model.chat_prompt, body.conversation, **body.thinking(model))
                return model.astream([*body.context, *prompt], **options)
            answer: AsyncStream
            if body.suffix:
                answer = await model.ainfill(body.prompt, body.suffix, stream=True, **options)
            else:
                answer = await model.achat(body.conversation, stream=True, **{**options, **body.thinking(model)})
            return answer

        return await self._answer(request, body, begin, _response)

    async def _load(self, body: GeneratingBody, shape: Shape) -> Response:
        """Load the model, or unload it where it is loaded."""
        offered, done = await self._models.find(body.wanted), "unload" if body.kept == 0 else "load"
        if done == "load" or offered.source in self._models.loaded:
            async with self._models.use(body.wanted, body.kept):
                pass
        ends = {"done": True, "done_reason": done}
        return JSONResponse({"model": offered.name, "created_at": moment(), **shape("", "", []), **ends})

    async def _answer(self, request: Request, body: GeneratingBody, begin: Begin, shape: Shape) -> Response:
        lines = self._lines(request, body, begin, shape)
        if body.streams:
            return await streamed(request, _encoded(lines), NDJSON, _failed)
        return await unless_gone(request.receive, _whole(lines, shape))

    async def _lines(self, request: Request, body: GeneratingBody, begin: Begin, shape: Shape) -> AsyncIterator[dict[str, Any]]:
        """The answer as objects, the last of which has the counts."""
        since = time.perf_counter()
        async with self._models.use(body.wanted, body.kept) as loaded:
            load_seconds = time.perf_counter() - since
            options = {**defaults(request, loaded), **body.generation(loaded.model, self._settings.max_tokens)}
            answer = await begin(loaded, options)
            async for event in pinged(answer):
                if event is None:
                    continue
                head = {"model": body.wanted or loaded.name, "created_at": moment()}
                if event.kind == "done" and event.result is not None:
                    note(request, loaded, event.result)
                    ends = {
                        **_counts(event.result, load_seconds, time.perf_counter() - since),
                        **await _context(loaded, body, event.result),
                    }
                    yield {**head, **shape("", "", []), **ends}
                elif event.kind in ("text", "thinking", "tool_call"):
                    found = [token_logprobs(loaded.model, each) for each in event.logprobs]
                    yield {**head, **shape(*_parts(event)), **({"logprobs": found} if found else {}), "done": False}


def _parts(event: Event) -> tuple[str, str, list[dict[str, Any]]]:
    call = event.tool_call
    calls = [{"id": call.id, "function": {"name": call.name, "arguments": dict(call.arguments)}}] if call else []
    return (event.text if event.kind == "text" else ""), (event.text if event.kind == "thinking" else ""), calls


def _message(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    more: dict[str, Any] = {"thinking": thinking} if thinking else {}
    return {"message": {"role": "assistant", "content": text, **more, **({"tool_calls": calls} if calls else {})}}


def _response(text: str, thinking: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {"response": text, **({"thinking": thinking} if thinking else {})}


async def _context(loaded: Loaded, body: GeneratingBody, answer: Generation) -> dict[str, Any]:
    """The token ids of a prompt with its answer, by which /api/generate continues."""
    model = loaded.model
    if not isinstance(body, GenerateBody) or body.raw or body.suffix or body.images or not model.has_template:
        return {}
    prompt = await asyncio.to_thread(model.chat_prompt, body.conversation, **body.thinking(model))
    return {"context": [*(body.context or ()), *prompt, *answer.token_ids]}


def _counts(answer: Generation, load_seconds: float, seconds: float) -> dict[str, Any]:
    """The end of an answer; times are in nanoseconds."""
    stats = answer.stats
    return {
        "done": True,
        "done_reason": REASONS.get(answer.stop_reason, "length"),
        "total_duration": int(1e9 * seconds),
        "load_duration": int(1e9 * load_seconds),
        "prompt_eval_count": stats.prompt_tokens,
        "prompt_eval_duration": int(1e9 * stats.prompt_seconds),
        "prompt_cached_count": stats.cached_tokens,
        "eval_count": stats.generated_tokens,
        "eval_duration": int(1e9 * stats.generation_seconds),
        **({"forgotten_messages": list(stats.forgotten_messages)} if stats.forgotten_messages else {}),
    }


async def _whole(lines: AsyncIterator[dict[str, Any]], shape: Shape) -> Response:
    """All lines in one object."""
    text, thinking, calls, last = list[str](), list[str](), list[dict[str, Any]](), dict[str, Any]()
    logprobs = list[dict[str, Any]]()
    async for last in lines:
        part = last.get("message", last)
        text.append(part.get("content", part.get("response", "")))
        thinking.append(part.get("thinking", ""))
        calls += part.get("tool_calls", [])
        logprobs += last.get("logprobs", [])
    more = {"logprobs": logprobs} if logprobs else {}
    return JSONResponse({**last, **shape("".join(text), "".join(thinking), calls), **more})


async def _encoded(lines: AsyncIterator[dict[str, Any]]) -> Chunks:
    async for line in lines:
        yield _line(line)


def _line(value: dict[str, Any]) -> bytes:
    return (compact(value) + "\n").encode("utf-8", "replace")


def _failed(problem: Problem) -> bytes:
    return _line({"error": problem.message})
