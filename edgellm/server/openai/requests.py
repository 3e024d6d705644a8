"""Bodies of OpenAI's chat completions, and the options of the library that they ask for."""

from __future__ import annotations

from typing import Any, Literal  # Any: JSON

from pydantic import BaseModel, Field

from edgellm import Model
from edgellm.server.parts import checked

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "seed",
    "ignore_eos",
)
MOST_CHOICES = 16


class Message(BaseModel, extra="allow"):
    """One message; what templates know beside these fields is kept."""

    role: str
    content: str | list[dict[str, Any]] | None = None


def conversation_of(messages: list[Message]) -> list[dict[str, Any]]:
    """Messages as the library takes them. Raises Problem for parts that are not supported."""
    found = list[dict[str, Any]]()
    for index, message in enumerate(messages):
        one = message.model_dump(exclude_unset=True)
        if "content" in one:
            one["content"] = checked(message.content, f"messages.{index}.content")
        found.append(one)
    return found


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class Sampled(BaseModel):
    """What requests for text have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str | None] | None = None
    logit_bias: dict[int, float] | None = None
    service_tier: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    ignore_eos: bool | None = None

    def sampling(self, default: int | None) -> dict[str, Any]:
        """Options of `generate`. `default`: tokens of an answer where the request sets no limit."""
        options: dict[str, Any] = {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}
        if options.get("seed", 0) < 0:
            del options["seed"]
        limit = self.max_tokens if self.max_tokens is not None and self.max_tokens >= 0 else default
        if limit is not None:
            options["max_tokens"] = limit
        stops = [self.stop] if isinstance(self.stop, str) else [text for text in self.stop or () if text is not None]
        if stops := [text for text in stops if text]:
            options["stop"] = stops
        if self.logit_bias:
            options["logit_bias"] = self.logit_bias
        if self.service_tier == "flex":
            options["priority"] = "background"
        if self.truncation == "auto":
            options["context_policy"] = "drop-oldest-turns"
        return options


class ChatBody(Sampled):
    """A body of /v1/chat/completions. What else clients send is ignored."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    think: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The messages as the library takes them."""
        return conversation_of(self.messages)

    def options(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `chat`. Raises Problem for what cannot be kept."""
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        options = self.sampling(default)
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if self.response_format is not None:
            options["response_format"] = self.response_format
        options |= tools_of(self.tools, self.tool_choice, self.parallel_tool_calls)
        extra = dict(self.chat_template_kwargs or {})
        think = self.think if self.think is not None else extra.pop("enable_thinking", None)
        if self.reasoning_effort is not None:
            extra.setdefault("reasoning_effort", self.reasoning_effort)
            think = self.reasoning_effort != "none" if think is None else think
        if isinstance(think, bool) and model.thinking == "optional":
            options["think"] = think
        if extra:
            options["template_options"] = extra
        return options


def tools_of(
    given: list[dict[str, Any]] | None, choice: str | dict[str, Any] | None, parallel: bool | None = None
) -> dict[str, Any]:
    """Options of `chat` for tools. Those that are no functions are left out, for servers of others carry them out."""
    tools = [tool for tool in given or () if tool.get("type", "function") == "function"]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools", choice)
        names = {_name(tool) for tool in allowed.get("tools") or ()}
        tools, choice = [tool for tool in tools if _name(tool) in names], allowed.get("mode")
    elif isinstance(choice, dict) and choice.get("type", "function") != "function":  # one that was left out
        choice = None
    wanted = "required" if choice == "any" else choice
    if not tools or choice == "none":
        return {} if not isinstance(wanted, dict) and wanted != "required" else {"tool_choice": wanted}
    return {"tools": tools, "tool_choice": wanted, "parallel_tool_calls": parallel}


def _name(tool: dict[str, Any]) -> Any:
    return (tool.get("function") or tool).get("name")
