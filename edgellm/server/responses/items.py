"""The items of a response: reasoning, messages and calls, and their events."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any  # Any: JSON

from edgellm import CallDelta, Event, Generation, Model, ToolCall
from edgellm.server.openai.chat import token_logprobs
from edgellm.server.streaming import compact

Item = dict[str, Any]


def identity(prefix: str) -> str:
    """A new id."""
    return f"{prefix}_{secrets.token_hex(12)}"


def items_of(model: Model, answer: Generation) -> list[Item]:
    """All items of an answer."""
    found = [_reasoning(identity("rs"), answer.thinking, "completed")] if answer.thinking else []
    if answer.text.strip() or not answer.tool_calls:
        logprobs = [token_logprobs(model, each) for each in answer.logprobs or ()]
        found.append(_message(identity("msg"), answer.text, "completed", logprobs))
    return found + [_call(call) for call in answer.tool_calls]


def _reasoning(name: str, text: str, status: str) -> Item:
    content = [_thought(text)] if status == "completed" else []
    return {"type": "reasoning", "id": name, "summary": [], "content": content, "status": status}


def _thought(text: str) -> Item:
    return {"type": "reasoning_text", "text": text}


def _message(name: str, text: str, status: str, logprobs: Sequence[Item] = ()) -> Item:
    content = [_text_part(text, logprobs)] if status == "completed" else []
    return {"type": "message", "id": name, "role": "assistant", "status": status, "content": content}


def _text_part(text: str, logprobs: Sequence[Item] = ()) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def _call(call: ToolCall, name: str = "", status: str = "completed") -> Item:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False) if status == "completed" else ""
    return {
        "type": "function_call",
        "id": name or identity("fc"),
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    }


class StreamItems:
    """The items of a stream, and their events, which are numbered."""

    def __init__(self, model: Model | None, number: int = 0) -> None:
        """`model`: of the answer; None where there is none."""
        self.done = list[Item]()
        self._model, self._logprobs = model, list[Item]()
        self._number, self._kind, self._name, self._texts = number, "", "", list[str]()

    def event(self, kind: str, **fields: Any) -> bytes:
        """One event."""
        data = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {compact(data)}\n\n".encode("utf-8", "replace")

    def push(self, event: Event) -> bytes:
        """The events for what came next."""
        if event.call_delta is not None:
            return self._called(event.call_delta)
        if event.tool_call is not None:
            return self._call_done(event.tool_call)
        if event.kind not in ("text", "thinking"):
            return b""
        opened = self.close() + self._open(event.kind) if self._kind != event.kind else b""
        self._texts.append(event.text)
        kind = "response.output_text.delta" if event.kind == "text" else "response.reasoning_text.delta"
        more: dict[str, Any] = {}
        if event.kind == "text":
            found = [token_logprobs(self._model, each) for each in event.logprobs] if self._model else []
            self._logprobs += found
            more["logprobs"] = found
        return opened + self.event(kind, **self._place(), content_index=0, delta=event.text, **more)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._name, "output_index": len(self.done)}

    def _open(self, kind: str) -> bytes:
        self._kind, self._name = kind, identity("msg" if kind == "text" else "rs")
        item = (_message if kind == "text" else _reasoning)(self._name, "", "in_progress")
        added = self.event("response.output_item.added", output_index=len(self.done), item=item)
        part = _text_part("") if kind == "text" else _thought("")
        return added + self.event("response.content_part.added", **self._place(), content_index=0, part=part)

    def close(self) -> bytes:
        """The end of the item that is open."""
        kind, text = self._kind, "".join(self._texts)
        logprobs = self._logprobs
        self._kind, self._texts, self._logprobs = "", [], []
        if kind not in ("text", "thinking"):
            return b""
        place = {**self._place(), "content_index": 0}
        if kind == "text":
            item, part = _message(self._name, text, "completed", logprobs), _text_part(text, logprobs)
            events = self.event("response.output_text.done", **place, text=text, logprobs=logprobs)
        else:
            item, part = _reasoning(self._name, text, "completed"), _thought(text)
            events = self.event("response.reasoning_text.done", **place, text=text)
        return events + self.event("response.content_part.done", **place, part=part) + self._done(item)

    def _called(self, delta: CallDelta) -> bytes:
        """A piece of a call; each is an item."""
        opened = b""
        if self._kind != f"call {delta.number}":
            opened = self.close()
            self._kind, self._name = f"call {delta.number}", identity("fc")
            item = _call(ToolCall(delta.name, {}, delta.id), self._name, "in_progress")
            opened += self.event("response.output_item.added", output_index=len(self.done), item=item)
        if not delta.arguments:
            return opened
        return opened + self.event("response.function_call_arguments.delta", **self._place(), delta=delta.arguments)

    def _call_done(self, call: ToolCall) -> bytes:
        item, self._kind = _call(call, self._name), ""
        done = self.event("response.function_call_arguments.done", **self._place(), name=call.name, arguments=item["arguments"])
        return done + self._done(item)

    def _done(self, item: Item) -> bytes:
        finished = self.event("response.output_item.done", output_index=len(self.done), item=item)
        self.done.append(item)
        return finished
