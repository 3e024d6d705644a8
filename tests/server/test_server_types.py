"""Answers of all endpoints, held strictly against the types of the openai, anthropic and ollama packages: nothing that a type
requires is missing, nothing has another type, and only the fields named here are added."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest
from anthropic import types as claude
from openai import types as gpt
from openai.types import chat, responses
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import BaseModel, TypeAdapter
from scripted import scripted
from serving import Running, user

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "Look.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
FLAT = [{"type": "function", "strict": True, **FUNCTION}]
BLOCKS = [{"name": "weather", "input_schema": SCHEMA}]
ADDED = {  # to what OpenAI's types have: llama-server's, vLLM's, and those of other protocols at the same path
    "timings", "reasoning", "reasoning_content", "store", "name",
    "created", "object", "owned_by", "meta", "max_model_len", "created_at", "display_name", "lifecycle", "max_input_tokens", "type",
    "capabilities",
}  # fmt: skip
LIMIT = {"model": "toy", "max_tokens": 200}
LOGPROBS = {"logprobs": True, "top_logprobs": 2}


def script(conversation: str) -> str:
    asked = conversation.rpartition("<|im_start|>")[2]
    return f"<think>\nHm.\n</think>\n\nLet me look.\n{CALL}" if "weather" in asked else "<think>\nHm.\n</think>\n\nHello, friend."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with scripted(tmp_path_factory.mktemp("scripted") / "toy.gguf", script) as started:
        yield started


def added(value: Any) -> Iterator[str]:
    """Fields that the types do not have."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from added(getattr(value, name, None))
    elif isinstance(value, list):
        for each in value:
            yield from added(each)


def check(kind: Any, answer: Any) -> Any:
    found = TypeAdapter(kind).validate_json(json.dumps(answer), strict=True)
    assert set(added(found)) <= ADDED
    return found


def ask(server: Running, path: str, body: Any = None, **options: Any) -> Any:
    status, answer = server.ask(path, body, **options)
    assert status == 200, answer
    return answer


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


WHOLE: dict[str, tuple[str, dict[str, Any], Any]] = {
    "chat": ("/v1/chat/completions", {**LIMIT, "tools": TOOLS, **LOGPROBS}, chat.ChatCompletion),
    "chat with functions": ("/v1/chat/completions", {**LIMIT, "functions": [FUNCTION]}, chat.ChatCompletion),
    "responses": ("/v1/responses", {"model": "toy", "tools": FLAT, "reasoning": {"effort": "low"}}, responses.Response),
    "messages": ("/v1/messages", {**LIMIT, "tools": BLOCKS, "thinking": {"type": "enabled", "budget_tokens": 99}}, claude.Message),
    "ollama": ("/api/chat", {"model": "toy", "tools": TOOLS, "stream": False}, ollama.ChatResponse),
}
PARTS: dict[str, Any] = {
    "chat": chat.ChatCompletionChunk,
    "chat with functions": chat.ChatCompletionChunk,
    "responses": responses.ResponseStreamEvent,
    "messages": claude.RawMessageStreamEvent,
}


@pytest.mark.parametrize("text", ["Hi", "weather?"])
@pytest.mark.parametrize("name", WHOLE)
def test_answers(server: Running, name: str, text: str) -> None:
    path, body, kind = WHOLE[name]
    body = body | ({"input": text} if name == "responses" else {"messages": user(text)})
    check(kind, ask(server, path, body))
    if name == "ollama":
        for line in ask(server, path, {**body, "stream": True}).splitlines():
            check(kind, json.loads(line))
        return
    options = {"stream_options": {"include_usage": True}} if path.endswith("completions") else {}
    found = events(ask(server, path, {**body, "stream": True, **options}))
    assert len(found) > 5
    for each in found:
        check(PARTS[name], each)


def test_completions(server: Running) -> None:
    body = {"model": "toy", "max_tokens": 3, "prompt": "x", "logprobs": 2}
    check(gpt.Completion, ask(server, "/v1/completions", body))
    *parts, last = events(ask(server, "/v1/completions", {**body, "stream": True}))
    check(gpt.Completion, last)
    for each in parts:  # whose reason is null, which the type does not say
        assert each["choices"][0].pop("finish_reason") is None
        check(gpt.Completion, {**each, "choices": [{**each["choices"][0], "finish_reason": "stop"}]})


def test_errors(server: Running) -> None:
    for path, kind in (("/v1/chat/completions", None), ("/v1/messages", claude.ErrorResponse)):
        for body in ({}, {"model": "none", "max_tokens": 1, "messages": user()}):
            status, answer = server.ask(path, body)
            assert status in (400, 404)
            if kind is None:
                assert set(answer["error"]) == {"message", "type", "param", "code"}
            else:
                check(kind, answer)


def test_models_and_stored_responses(server: Running) -> None:
    for listed in (ask(server, "/v1/models"), ask(server, "/models")):
        check(gpt.Model, listed["data"][0])
    headers = {"anthropic-version": "2023-06-01"}
    check(claude.ModelInfo, server.ask("/v1/models", headers=headers)[1]["data"][0])
    check(gpt.Model, ask(server, "/v1/models/toy"))
    check(claude.MessageTokensCount, ask(server, "/v1/messages/count_tokens", {"messages": user()}))
    identity = ask(server, "/v1/responses", {"input": "Hi"})["id"]
    check(responses.Response, ask(server, f"/v1/responses/{identity}"))
    check(ResponseItemList, ask(server, f"/v1/responses/{identity}/input_items"))
    for path, body, kind in (
        ("/api/generate", {"model": "toy", "prompt": "x", "stream": False}, ollama.GenerateResponse),
        ("/api/tags", None, ollama.ListResponse),
        ("/api/ps", None, ollama.ProcessResponse),
        ("/api/show", {"model": "toy"}, ollama.ShowResponse),
    ):
        check(kind, ask(server, path, body))
