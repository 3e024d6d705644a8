"""/v1/responses: answers as items, in one piece or as events."""

from __future__ import annotations

import asyncio
import time
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import Generation
from edgellm.server.answers import defaults, note
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.problems import Problem
from edgellm.server.responses.items import Items, identity, items_of
from edgellm.server.responses.requests import ResponsesBody
from edgellm.server.settings import Settings
from edgellm.server.streaming import SSE, Chunks, pinged, streamed, unless_gone

CUT = {"length": "max_output_tokens", "context": "max_output_tokens", "loop": "max_output_tokens", "cancelled": "max_output_tokens"}


class Responses:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings

    async def answer(self, request: Request) -> Response:
        """The endpoint of answers."""
        body = await read(request, ResponsesBody)
        if body.stream:
            return await streamed(request, self._stream(request, body), SSE, _failed)
        return await unless_gone(request.receive, self._whole(request, body))

    async def count(self, request: Request) -> Response:
        """The endpoint that counts the tokens of a prompt."""
        body = await read(request, ResponsesBody)

        async def counted() -> Response:
            async with self._models.use(body.model) as loaded:
                ids = await asyncio.to_thread(loaded.model.chat_prompt, body.conversation, **body.prompting(loaded.model))
                return JSONResponse({"object": "response.input_tokens", "input_tokens": len(ids)})

        return await unless_gone(request.receive, counted())

    async def _whole(self, request: Request, body: ResponsesBody) -> Response:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(body.conversation, **self._options(request, loaded, body))
            note(request, loaded, answer)
            return JSONResponse(_finished(_begun(body, loaded), answer, items_of(answer)))

    async def _stream(self, request: Request, body: ResponsesBody) -> Chunks:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(body.conversation, stream=True, **self._options(request, loaded, body))
            response, items, begun = _begun(body, loaded), Items(), False
            async for event in pinged(answer):
                if not begun:
                    begun = True
                    yield items.event("response.created", response=response) + items.event(
                        "response.in_progress", response=response
                    )
                if event is None:
                    yield b": ping\n\n"
                elif event.kind == "done" and event.result is not None:
                    note(request, loaded, event.result)
                    yield items.close()
                    last = _finished(response, event.result, items.done)
                    yield items.event(f"response.{last['status']}", response=last)
                else:
                    yield items.push(event)

    def _options(self, request: Request, loaded: Loaded, body: ResponsesBody) -> dict[str, Any]:
        return {**defaults(request, loaded), **body.options(loaded.model, self._settings.max_tokens)}


def _failed(problem: Problem) -> bytes:
    return Items(1 << 20).event("error", code=problem.code or "server_error", message=problem.message, param=None)


def _begun(body: ResponsesBody, loaded: Loaded) -> dict[str, Any]:
    """A response before its answer."""
    form = (body.text.format if body.text else None) or {"type": "text"}
    return {
        "id": identity("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": body.model or loaded.name,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": body.temperature,
        "text": {"format": form},
        "tool_choice": body.tool_choice or "auto",
        "tools": [tool for tool in body.tools or () if tool.get("type") == "function"],
        "top_p": body.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }


def _finished(response: dict[str, Any], answer: Generation, items: list[dict[str, Any]]) -> dict[str, Any]:
    """A response with its answer."""
    stats, cut = answer.stats, CUT.get(answer.stop_reason)
    usage = {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens},
        "output_tokens": stats.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": stats.thinking_tokens},
        "total_tokens": stats.prompt_tokens + stats.generated_tokens,
    }
    status = {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"status": "completed"}
    return {**response, **status, "output": items, "usage": usage}
