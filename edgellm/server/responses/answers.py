"""/v1/responses: answers as items, in one piece or as events."""

from __future__ import annotations

import time
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import Generation
from edgellm.server.answers import defaults, note, prompt_tokens
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.openai import problem_body
from edgellm.server.parts import readable
from edgellm.server.problems import Problem
from edgellm.server.responses.items import Item, StreamItems, identity, items_of
from edgellm.server.responses.requests import ResponsesBody
from edgellm.server.responses.store import ResponseStore
from edgellm.server.settings import Settings
from edgellm.server.streaming import SSE, Chunks, pinged, streamed, unless_gone

CUT = {"length": "max_output_tokens", "context": "max_output_tokens", "loop": "max_output_tokens", "cancelled": "max_output_tokens"}


class Responses:
    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings, self._store = models, settings, ResponseStore()

    async def answer(self, request: Request) -> Response:
        """The endpoint of answers."""
        body = await read(request, ResponsesBody)
        items = self._store.resolved(body.items, body.previous_response_id)
        if body.stream:
            return await streamed(request, self._stream(request, body, items), SSE, lambda problem: _failed(body, problem))
        return await unless_gone(request.receive, self._whole(request, body, items))

    async def count(self, request: Request) -> Response:
        """The endpoint that counts the tokens of a prompt."""
        body = await read(request, ResponsesBody)
        messages = body.messages(self._store.resolved(body.items, body.previous_response_id))

        async def counted() -> Response:
            async with self._models.use(body.model) as loaded:
                tokens = await prompt_tokens(loaded.model, readable(messages, loaded.model), body.prompting(loaded.model))
                return JSONResponse({"object": "response.input_tokens", "input_tokens": tokens})

        return await unless_gone(request.receive, counted())

    async def stored(self, request: Request) -> Response:
        """The endpoint of a response that was written before."""
        if request.query_params.get("stream") == "true":
            raise Problem(400, "stored responses are not streamed; leave stream out.")
        return JSONResponse(self._store.find(request.path_params["id"]).response)

    async def remove(self, request: Request) -> Response:
        """The endpoint that forgets a response."""
        identity = request.path_params["id"]
        self._store.remove(identity)
        return JSONResponse({"id": identity, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """The endpoint that ends a response in the background: there are none, for each is written when it is asked for."""
        found = self._store.find(request.path_params["id"])
        raise Problem(400, f"the response {found.response['id']} is complete and can't be cancelled.", code="invalid_value")

    async def input_items(self, request: Request) -> Response:
        """The endpoint of what a response answered, newest item first unless `order` is asc."""
        query = request.query_params
        items = list(self._store.find(request.path_params["id"]).given)
        if query.get("order") != "asc":
            items.reverse()
        names, limit = [item["id"] for item in items], query.get("limit", "20")
        begin = names.index(after) + 1 if (after := query.get("after")) in names else 0
        page = items[begin:][: max(1, min(100, int(limit))) if limit.isdecimal() and len(limit) < 5 else 20]
        ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        return JSONResponse({"object": "list", "data": page, **ends, "has_more": begin + len(page) < len(items)})

    async def _whole(self, request: Request, body: ResponsesBody, items: list[Item]) -> Response:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(readable(body.messages(items), loaded.model), **self._options(request, loaded, body))
            note(request, loaded, answer)
            response = _finished(_begun(body, loaded.name), answer, items_of(loaded.model, answer))
            self._keep(body, response, items)
            return JSONResponse(response)

    def _keep(self, body: ResponsesBody, response: dict[str, Any], items: list[Item]) -> None:
        if body.store is not False:
            self._store.add(response, items)

    async def _stream(self, request: Request, body: ResponsesBody, given: list[Item]) -> Chunks:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(
                readable(body.messages(given), loaded.model), stream=True, **self._options(request, loaded, body)
            )
            response, items, begun = _begun(body, loaded.name), StreamItems(loaded.model), False
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
                    self._keep(body, last, given)
                    yield items.event(f"response.{last['status']}", response=last)
                else:
                    yield items.push(event)

    def _options(self, request: Request, loaded: Loaded, body: ResponsesBody) -> dict[str, Any]:
        return {**defaults(request, loaded), **body.options(loaded.model, self._settings.max_tokens)}


def _failed(body: ResponsesBody, problem: Problem) -> bytes:
    """The end of a stream that failed: some clients look for the first event, others for the second."""
    items, error = StreamItems(None, 1 << 20), problem_body(problem)["error"]
    error["code"] = error["code"] or "server_error"
    flat = {"code": error["code"], "message": problem.message, "param": None}
    response = {**_begun(body, body.model or ""), "status": "failed", "error": {"code": error["code"], "message": problem.message}}
    return items.event("error", **flat, error=error) + items.event("response.failed", response=response)


def _begun(body: ResponsesBody, model: str) -> dict[str, Any]:
    """A response before its answer."""
    form = (body.text.format if body.text else None) or {"type": "text"}
    return {
        "id": identity("resp"),
        "object": "response",
        "background": False,
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": body.model or model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": body.store is not False,
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
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.generated_tokens,
        "output_tokens_details": {"reasoning_tokens": stats.thinking_tokens},
        "total_tokens": stats.prompt_tokens + stats.generated_tokens,
    }
    status = {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"status": "completed"}
    return {**response, **status, "output": items, "usage": usage}
