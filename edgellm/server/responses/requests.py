"""Bodies of /v1/responses, as conversations and options of the library."""

from __future__ import annotations

import json
from typing import Any, Literal  # Any: JSON

from pydantic import BaseModel, Field

from edgellm import Model
from edgellm.server.openai.requests import tools_of
from edgellm.server.parts import Content, checked, joined
from edgellm.server.problems import Problem

Item = dict[str, Any]
LOGPROBS = "message.output_text.logprobs"  # what `include` may ask for


class ReasoningAsked(BaseModel):
    effort: str | None = None
    summary: str | None = None


class TextAsked(BaseModel):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponsesBody(BaseModel):
    """Other fields that clients send are ignored."""

    model: str | None = None
    input: str | list[Item] | None = None
    prompt: dict[str, Any] | None = None
    instructions: str | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(None, ge=0)
    temperature: float | None = None
    top_p: float | None = None
    reasoning: ReasoningAsked | None = None
    text: TextAsked | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    store: bool | None = None
    include: list[str] | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    metadata: dict[str, Any] | None = None
    user: str | None = None

    @property
    def items(self) -> list[Item]:
        """The input as items. Raises Problem where it is missing."""
        if self.prompt:
            raise Problem(400, "prompt is not supported, for prompts are not stored here; send instructions and input.")
        if not self.input:
            raise Problem(400, "input is missing; give a text, or a list of items.", code="invalid_value")
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": self.input}]}]
        return self.input

    def messages(self, items: list[Item]) -> list[dict[str, Any]]:
        """Items as messages of chat completions. Raises Problem for what is not supported."""
        if self.conversation:
            raise Problem(400, "conversation is not supported; use previous_response_id, or send all items in input.")
        found: list[dict[str, Any]] = [{"role": "system", "content": self.instructions}] if self.instructions else []
        for index, item in enumerate(items):
            _add(found, item, f"input.{index}")
        return found

    def prompting(self, model: Model) -> dict[str, Any]:
        """Options of `chat` that change the prompt."""
        options: dict[str, Any] = {}
        tools = [
            tool if "function" in tool else {"type": "function", "function": tool}
            for tool in self.tools or ()
            if tool.get("type") == "function"
        ]
        options |= tools_of(tools, self.tool_choice, self.parallel_tool_calls)
        effort = self.reasoning.effort if self.reasoning else None
        if effort is not None:
            options["template_options"] = {"reasoning_effort": effort}
            if model.thinking == "optional":
                options["think"] = effort != "none"
        return options

    def options(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `chat`. Raises Problem."""
        options = self.prompting(model)
        if self.top_logprobs is not None or LOGPROBS in (self.include or ()):
            options["logprobs"] = self.top_logprobs or 0
        limit = self.max_output_tokens if self.max_output_tokens is not None else default
        if limit is not None:
            options["max_tokens"] = limit
        for name in ("temperature", "top_p"):
            if (value := getattr(self, name)) is not None:
                options[name] = value
        form = self.text.format if self.text else None
        if form is not None and form.get("type") == "json_schema":
            form = {"type": "json_schema", "json_schema": form}
        if self.service_tier == "flex":
            options["priority"] = "background"
        if self.truncation == "auto":
            options["context_policy"] = "drop-oldest-turns"
        return options if form is None else {**options, "response_format": form}


def _add(found: list[dict[str, Any]], item: Item, where: str) -> None:
    """One more item; calls and reasoning belong to the message of the assistant before them."""
    kind = item.get("type") or "message"
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise Problem(400, f"{where}.role: Field required.", code="invalid_value")
        text = _content(item.get("content"), where)
        if (
            role == "assistant"
            and found
            and found[-1]["role"] == "assistant"
            and not found[-1]["content"]
            and "tool_calls" not in found[-1]
        ):
            found[-1]["content"] = text
        else:
            found.append({"role": role, "content": text})
    elif kind in ("function_call", "custom_tool_call"):
        if not isinstance(item.get("name"), str):
            raise Problem(400, f"{where}.name: Field required.", code="invalid_value")
        arguments = item.get("arguments", "{}") if kind == "function_call" else json.dumps({"input": item.get("input")})
        call = {"id": str(item.get("call_id")), "type": "function", "function": {"name": item["name"], "arguments": arguments}}
        _assistant(found).setdefault("tool_calls", []).append(call)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        found.append({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": _content(item.get("output"), where)})
    elif kind == "reasoning":
        parts = item.get("content") or item.get("summary") or []
        text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        if text:
            found.append({"role": "assistant", "content": "", "reasoning_content": text})


def _assistant(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being put together."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _content(content: object, where: str) -> Content:
    """A message's text, or its parts where pictures or clips are among them. Raises Problem."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    if not all(isinstance(part, dict) for part in content):
        raise Problem(400, f"{where}: the content is neither a text nor a list of parts.", code="invalid_value")
    parts: list[Any] = list(checked(content, where) or ())
    return joined([part["text"] if part["type"] == "text" else part for part in parts])
