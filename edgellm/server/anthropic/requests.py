"""Bodies of /v1/messages, as conversations and options of the library."""

from __future__ import annotations

import json
from typing import Any, Literal  # Any: JSON

from pydantic import BaseModel, Field

from edgellm import Model
from edgellm.server.parts import Content, Part, joined, picture_of_base64
from edgellm.server.problems import Problem

BILLING = "x-anthropic-billing-header"  # a line of Claude Code's, another one for each request: it would end every common prefix
NOT_READ = ("redacted_thinking", "server_tool_use", "mcp_tool_use")  # blocks of answers of Anthropic's servers, and their results
StreamBlocks = list[dict[str, Any]]


class Turn(BaseModel):
    role: Literal["user", "assistant", "system"]
    content: str | StreamBlocks


class ThinkingAsked(BaseModel):
    type: str = "enabled"
    budget_tokens: int | None = Field(None, ge=0)


class CountBody(BaseModel):
    """The fields that make the prompt."""

    model: str | None = None
    messages: list[Turn] = Field(min_length=1)
    system: str | StreamBlocks | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: ThinkingAsked | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's form. Raises Problem for blocks that are not supported."""
        found = list[dict[str, Any]]()
        if system := _system(self.system):
            found.append({"role": "system", "content": system})
        for index, turn in enumerate(self.messages):
            where = f"messages.{index}.content"
            if isinstance(turn.content, str):
                found.append({"role": turn.role, "content": turn.content})
            elif turn.role == "assistant":
                found.append(_assistant(turn.content, where))
            else:
                found += _user(turn.role, turn.content, where)
        return found

    def prompting(self, model: Model) -> dict[str, Any]:
        """Options of `chat` that change the prompt."""
        options: dict[str, Any] = {}
        choice, tools, others = self.tool_choice or {}, list[dict[str, Any]](), list[Any]()
        for tool in self.tools or ():
            name, schema = tool.get("name"), tool.get("input_schema")
            if isinstance(schema, dict):
                function = {"name": name, "description": tool.get("description") or "", "parameters": schema}
                tools.append({"type": "function", "function": function})
            else:  # Anthropic's own servers run these tools
                others.append(name)
        if choice.get("name") in others:
            choice = {}
        if tools and choice.get("type") != "none":
            wanted = {"any": "required", "tool": {"name": choice.get("name")}}.get(str(choice.get("type")))
            options |= {"tools": tools, "tool_choice": wanted, "parallel_tool_calls": not choice.get("disable_parallel_tool_use")}
        thinks = self.thinking is not None and self.thinking.type != "disabled"
        if model.thinking == "optional":
            options["think"] = thinks
        if thinks and self.thinking is not None and self.thinking.budget_tokens and model.thinking != "no":
            options["think_budget"] = self.thinking.budget_tokens
        return options


class MessagesBody(CountBody):
    max_tokens: int = Field(ge=0)
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    output_format: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    @property
    def marked(self) -> bool:
        """A part of the prompt is marked to be cached."""
        blocks = [self.tools, self.system, *(turn.content for turn in self.messages)]
        return any("cache_control" in block for part in blocks if isinstance(part, list) for block in part)

    def options(self, model: Model) -> dict[str, Any]:
        """Options of `chat`."""
        options = {**self.prompting(model), "max_tokens": self.max_tokens, "continue_final_message": True}
        for name in ("temperature", "top_p", "top_k"):
            if (value := getattr(self, name)) is not None:
                options[name] = value
        if stops := [text for text in self.stop_sequences or () if text]:
            options["stop"] = stops
        form = self.output_format or (self.output_config or {}).get("format")
        if isinstance(form, dict) and isinstance(form.get("schema"), dict):
            options["schema"] = form["schema"]
        return options


def _system(given: str | StreamBlocks | None) -> str:
    """The system prompt, without lines that change from request to request."""
    text = given if isinstance(given, str) else "\n".join(_text(block, "system") for block in given or ())
    return "\n".join(line for line in text.split("\n") if not line.startswith(BILLING)).strip("\n")


def _user(role: str, blocks: StreamBlocks, where: str) -> list[dict[str, Any]]:
    """Results of tools as messages of their own, in their order, with the text between and after them."""
    found, parts = list[dict[str, Any]](), list[str | Part]()
    for block in blocks:
        if block.get("type") != "tool_result":
            parts.append(_picture(block, where) if block.get("type") == "image" else _text(block, where))
            continue
        if parts:
            found.append({"role": role, "content": joined(parts)})
            parts = []
        found.append(
            {"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": _result(block.get("content"), where)}
        )
    return [*found, {"role": role, "content": joined(parts)}] if parts or not found else found


def _picture(block: dict[str, Any], where: str) -> Part:
    """A picture of its bytes. Raises Problem for one at an address."""
    source = block.get("source")
    return picture_of_base64(source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None, where)


def _document(block: dict[str, Any], where: str) -> str:
    """The text of a document, under its title. Raises Problem for PDF files and addresses."""
    source = block.get("source")
    kind, data = (source.get("type"), source.get("data", source.get("content"))) if isinstance(source, dict) else (None, None)
    if kind not in ("text", "content"):
        raise Problem(
            400, f"{where}: this server reads documents as plain text; give a source of the type text, not {str(kind)[:40]!r}."
        )
    return _titled(block, data, where)


def _titled(block: dict[str, Any], content: object, where: str) -> str:
    """Texts under the title and the source of a block. Raises Problem."""
    heads = [text for name in ("title", "source", "context") if isinstance(text := block.get(name), str) and text]
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "\n".join([*heads, *(_text(part, where) for part in content)])
    if not isinstance(content, str):
        raise Problem(
            400, f"{where}: the content of a {block['type']} is neither a text nor a list of blocks.", code="invalid_value"
        )
    return "\n".join([*heads, content])


def _result(content: object, where: str) -> Content:
    """A tool's result. Raises Problem for what is neither text nor blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise Problem(400, f"{where}: the content of a tool_result is neither a text nor a list of blocks.", code="invalid_value")
    return joined([_picture(part, where) if part.get("type") == "image" else _text(part, where) for part in content])


def _assistant(blocks: StreamBlocks, where: str) -> dict[str, Any]:
    texts, thoughts, calls = list[str](), list[str](), list[dict[str, Any]]()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(
                {
                    "id": str(block.get("id")),
                    "type": "function",
                    "function": {"name": str(block.get("name")), "arguments": arguments},
                }
            )
        elif kind == "compaction":
            texts.append(str(block.get("content") or ""))
        elif kind not in NOT_READ and not str(kind).endswith("_tool_result"):
            texts.append(_text(block, where))
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _text(block: dict[str, Any], where: str) -> str:
    """The text of a block. Raises Problem for other kinds."""
    kind, text = block.get("type"), block.get("text")
    if kind == "text" and isinstance(text, str):
        return text
    if kind == "document":
        return _document(block, where)
    if kind == "tool_reference":
        return f"The tool {block.get('tool_name')} can be called."
    if kind == "search_result":
        return _titled(block, block.get("content"), where)
    raise Problem(400, f"{where}: a block of the type {str(kind)[:40]!r} is not supported; give text or images.")
