"""/v1/messages: answers to a conversation in blocks, in one piece or as events."""

from __future__ import annotations

import secrets
from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import CallDelta, Event, Stats
from edgellm.server.answers import defaults, note, prompt_tokens
from edgellm.server.anthropic.requests import CountBody, MessagesBody
from edgellm.server.anthropic.shapes import SIGNATURE, call_id, contents, ending, event, failed, usage
from edgellm.server.bodies import read
from edgellm.server.models import Loaded, Models
from edgellm.server.parts import readable
from edgellm.server.streaming import SSE, Chunks, pinged, streamed, unless_gone


class Messages:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def answer(self, request: Request) -> Response:
        """The endpoint of answers."""
        body = await read(request, MessagesBody)
        if body.stream:
            return await streamed(request, self._stream(request, body), SSE, failed)
        return await unless_gone(request.receive, self._whole(request, body))

    async def count(self, request: Request) -> Response:
        """The endpoint that counts the tokens of a prompt."""
        body = await read(request, CountBody)

        async def counted() -> Response:
            async with self._models.use(body.model) as loaded:
                messages, options = readable(body.conversation, loaded.model), body.prompting(loaded.model)
                return JSONResponse({"input_tokens": await prompt_tokens(loaded.model, messages, options)})

        return await unless_gone(request.receive, counted())

    async def _whole(self, request: Request, body: MessagesBody) -> Response:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(readable(body.conversation, loaded.model), **_options(request, loaded, body))
            note(request, loaded, answer)
            more = {"content": contents(answer), **ending(answer), "usage": _usage(answer.stats, body)}
            return JSONResponse({**_head(body, loaded), **more})

    async def _stream(self, request: Request, body: MessagesBody) -> Chunks:
        async with self._models.use(body.model) as loaded:
            answer = await loaded.model.achat(
                readable(body.conversation, loaded.model), stream=True, **_options(request, loaded, body)
            )
            blocks, begun = StreamBlocks(), False
            async for item in pinged(answer):
                if not begun:
                    begun = True
                    start = usage(answer.prompt_tokens, answer.cached_tokens, 0, marked=body.marked)
                    message = {**_head(body, loaded), "content": [], "stop_reason": None, "stop_sequence": None, "usage": start}
                    yield event("message_start", message=message)
                if item is None:
                    yield event("ping")
                elif item.kind == "done" and item.result is not None:
                    note(request, loaded, item.result)
                    yield blocks.close()
                    if not blocks.count:
                        yield blocks.text("text", "") + blocks.close()
                    delta = ending(item.result)
                    counts = _usage(item.result.stats, body)
                    yield event("message_delta", delta=delta, usage=counts) + event("message_stop")
                else:
                    yield blocks.push(item)


class StreamBlocks:
    """The blocks of a stream: opened and closed as text, thinking and calls follow each other."""

    def __init__(self) -> None:
        self.count = 0
        self._open = ""

    def push(self, item: Event) -> bytes:
        """The events for what came next."""
        if item.call_delta is not None:
            return self._call(item.call_delta)
        if item.tool_call is not None:
            return self.close()
        return self.text(item.kind, item.text) if item.kind in ("text", "thinking") else b""

    def text(self, kind: str, text: str) -> bytes:
        """More of a text or of thinking."""
        opening = b""
        if self._open != kind:
            block = {"type": "text", "text": ""} if kind == "text" else {"type": "thinking", "thinking": "", "signature": ""}
            opening = self.close() + self._start(kind, block)
        delta = {"type": "text_delta", "text": text} if kind == "text" else {"type": "thinking_delta", "thinking": text}
        return opening + (event("content_block_delta", index=self.count - 1, delta=delta) if text else b"")

    def close(self) -> bytes:
        """The end of the block that is open."""
        kind, self._open = self._open, ""
        if not kind:
            return b""
        index = self.count - 1
        signature = {"type": "signature_delta", "signature": SIGNATURE}
        signed = event("content_block_delta", index=index, delta=signature) if kind == "thinking" else b""
        return signed + event("content_block_stop", index=index)

    def _start(self, kind: str, block: dict[str, Any]) -> bytes:
        self._open = kind
        self.count += 1
        return event("content_block_start", index=self.count - 1, content_block=block)

    def _call(self, delta: CallDelta) -> bytes:
        """A piece of a call; each call is a block."""
        opening, kind = b"", f"call {delta.number}"
        if self._open != kind:
            block = {"type": "tool_use", "id": call_id(delta.id), "name": delta.name, "input": {}}
            opening = self.close() + self._start(kind, block)
        piece = {"type": "input_json_delta", "partial_json": delta.arguments}
        return opening + event("content_block_delta", index=self.count - 1, delta=piece)


def _usage(stats: Stats, body: MessagesBody) -> dict[str, int]:
    return usage(stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens, marked=body.marked)


def _options(request: Request, loaded: Loaded, body: MessagesBody) -> dict[str, Any]:
    return {**defaults(request, loaded), **body.options(loaded.model)}


def _head(body: MessagesBody, loaded: Loaded) -> dict[str, Any]:
    return {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant", "model": body.model or loaded.name}
