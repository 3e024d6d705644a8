"""Bodies of OpenAI's chat completions, and the options of the library that they ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal  # Any: JSON

from pydantic import BaseModel, Field

from edgellm import Model
from edgellm.server.parts import checked
from edgellm.server.problems import Problem
from edgellm.server.sampling import SamplingBody

FORMS = {"json": "schema", "regex": "regex", "choice": "choices", "grammar": "grammar"}  # names of vLLM's, and the library's
MOST_CHOICES = 16
Bias = float | Literal[False]  # False: the token never comes


class Message(BaseModel, extra="allow"):
    """One message; what templates know beside these fields is kept."""

    role: str
    content: str | list[dict[str, Any]] | None = None


def conversation_of(messages: list[Message]) -> list[dict[str, Any]]:
    """Messages as the library takes them, function calls of OpenAI's older form as tool calls. Raises Problem for parts that are
    not supported.
    """
    found, calls = list[dict[str, Any]](), 0
    for index, message in enumerate(messages):
        one = message.model_dump(exclude_unset=True)
        if "content" in one:
            one["content"] = checked(message.content, f"messages.{index}.content")
        if isinstance(listed := one.get("tool_calls"), list):
            one["tool_calls"] = [_function_call(call) for call in listed]
        if isinstance(call := one.pop("function_call", None), dict):
            calls += 1
            one["tool_calls"] = [{"id": f"call_{calls}", "type": "function", "function": call}]
        if message.role == "function":
            one |= {"role": "tool", "tool_call_id": f"call_{calls}"}
        found.append(one)
    return found


def _function_call(call: Any) -> Any:  # Any: JSON
    """A call of a custom tool, which takes a text, as one of a function."""
    custom = call.get("custom") if isinstance(call, dict) else None
    if not isinstance(custom, dict):
        return call
    arguments = json.dumps({"input": custom.get("input")}, ensure_ascii=False)
    return {"id": call.get("id"), "type": "function", "function": {"name": custom.get("name"), "arguments": arguments}}


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class Structured(BaseModel):
    """Structured output as vLLM asks for it."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class AskedAdapter(BaseModel):
    """A LoRA adapter of llama-server's: its number among those of the model, and its scale."""

    id: int
    scale: float = 0.0


class Sampled(SamplingBody):
    """The fields that requests for text share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    max_tokens: int | None = None
    stop: str | list[str | None] | None = None
    logit_bias: dict[int | str, Bias] | list[tuple[int | str, Bias]] | None = None
    lora: list[AskedAdapter] | None = None
    service_tier: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    structured_outputs: Structured | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def form(self) -> dict[str, Any]:
        """Options of `generate` for structured output, as llama-server and vLLM have it. Raises Problem."""
        found = self.structured_outputs.model_dump(by_alias=True, exclude_none=True) if self.structured_outputs else {}
        for name in FORMS:
            if (value := getattr(self, f"guided_{name}")) is not None:
                found[name] = value
        if self.json_schema is not None:
            found["json"] = self.json_schema
        if self.grammar is not None:
            found["grammar"] = self.grammar
        if isinstance(schema := found.get("json"), str):
            try:
                found["json"] = json.loads(schema)
            except ValueError as error:
                raise Problem(400, f"the schema is not JSON ({error}).", code="invalid_value") from error
        return {FORMS[name]: value for name, value in found.items()}

    def sampling(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `generate`. `default`: tokens of an answer where the request sets no limit. Raises Problem."""
        if (self.min_tokens or 0) > 0 and not self.ignore_eos:
            raise Problem(400, "min_tokens is not supported; give ignore_eos and max_tokens for an answer of a certain length.")
        if self.stop_token_ids:
            raise Problem(400, "stop_token_ids is not supported; give the texts of these tokens as stop.")
        options = self.sampled
        limit = self.max_tokens if self.max_tokens is not None and self.max_tokens >= 0 else default
        if limit is not None:
            options["max_tokens"] = limit
        stops = [self.stop] if isinstance(self.stop, str) else [text for text in self.stop or () if text is not None]
        if stops := [text for text in stops if text]:
            options["stop"] = stops
        if self.logit_bias:
            options["logit_bias"] = _biases(model, self.logit_bias)
        if self.lora is not None:
            options["adapters"] = adapters_of(model, self.lora)
        if self.service_tier == "flex":
            options["priority"] = "background"
        if self.truncation == "auto":
            options["context_policy"] = "drop-oldest-turns"
        return {**options, **self.form}


def _biases(model: Model, given: Mapping[int | str, Bias] | list[tuple[int | str, Bias]]) -> dict[int, float]:
    """Biases by token id. A key that is a text stands for each of its tokens, as llama-server has it."""
    found = dict[int, float]()
    for key, bias in given.items() if isinstance(given, Mapping) else given:
        number = isinstance(key, int) or key.removeprefix("-").isdecimal()
        for token in [int(key)] if number else model.tokenize(str(key), add_special=False):
            found[token] = -math.inf if bias is False else bias
    return found


def adapters_of(model: Model, asked: list[AskedAdapter]) -> list[tuple[Path, float]]:
    """Adapters by their numbers in GET /lora-adapters. Raises Problem."""
    known = model.adapters
    wrong = next((each.id for each in asked if not 0 <= each.id < len(known)), None)
    if wrong is not None:
        raise Problem(400, f"lora: there is no adapter {wrong}; GET /lora-adapters lists the {len(known)} of this model.")
    return [(known[each.id][0], each.scale) for each in asked]


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
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None
    think: bool | None = None
    enable_thinking: bool | None = None
    thinking: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    modalities: list[str] | None = None

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """The messages as the library takes them."""
        return conversation_of(self.messages)

    @property
    def calls_functions(self) -> bool:
        """The request describes functions, OpenAI's older form of tools: the answer has one `function_call` at most."""
        return bool(self.functions) and not self.tools

    def options(self, model: Model, default: int | None) -> dict[str, Any]:
        """Options of `chat`. Raises Problem for what cannot be kept."""
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        options = self.sampling(model, default)
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if "audio" in (self.modalities or ()):
            raise Problem(400, "modalities has audio; this server writes text.", code="invalid_value")
        if self.continue_final_message or (self.messages[-1].model_extra or {}).get("prefix") is True:
            options["continue_final_message"] = True
        form = self.response_format
        if form is not None and form.get("type") in ("json", "json_object") and isinstance(form.get("value"), dict):
            options["schema"] = form["value"]  # as text-generation-inference has it
        elif form is not None:
            options["response_format"] = form
        if self.calls_functions:
            tools = [{"type": "function", "function": function} for function in self.functions or ()]
            options |= tools_of(tools, self.function_call, parallel=False)
        else:
            options |= tools_of(self.tools, self.tool_choice, self.parallel_tool_calls)
        extra = dict(self.chat_template_kwargs or {})
        think = self.think if self.think is not None else extra.pop("enable_thinking", self.enable_thinking)
        if think is None and self.thinking is not None:
            think = self.thinking.get("type") != "disabled"
        effort = self.reasoning_effort or (self.reasoning or {}).get("effort")
        if isinstance(effort, str):
            extra.setdefault("reasoning_effort", effort)
            think = effort != "none" if think is None else think
        if isinstance(think, bool) and model.thinking == "optional":
            options["think"] = think
        if extra:
            options["template_options"] = extra
        if form is not None and form.get("type") != "text":
            options.pop("stop", None)  # JSON ends by itself: agents send the texts that end their other answers with it
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
