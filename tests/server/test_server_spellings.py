"""Spellings that clients and their users choose: paths with other bases and slashes, null for what is left out, files as text."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from pydantic import BaseModel
from serving import Running, user
from starlette.requests import Request

from edgellm.server.anthropic.requests import CountBody, MessagesBody
from edgellm.server.bodies import read
from edgellm.server.llama_cpp.requests import DetokenizeBody, InfillBody, TextBody, TokenizeBody
from edgellm.server.ollama.requests import EmbedBody, GenerateBody, Named, OllamaChatBody, PullBody
from edgellm.server.openai.completions import CompletionBody
from edgellm.server.openai.embeddings import EmbeddingBody
from edgellm.server.openai.requests import ChatBody
from edgellm.server.openai.rerank import RerankBody
from edgellm.server.parts import checked
from edgellm.server.problems import Problem
from edgellm.server.responses.requests import ResponsesBody
from edgellm.server.routing import path_of

CHAT, MESSAGES, ASKED = "/v1/chat/completions", "/v1/messages", {"messages": user(), "max_tokens": 1, "stream": False}
PATHS = {
    "/": "/", "//": "/", "/health/": "/health", "/props": "/props", "/completion": "/completion",
    "/chat/completions": CHAT, "/v1/chat/completions/": CHAT, "//v1//chat/completions": CHAT, "/v1/v1/chat/completions": CHAT,
    "/api/v1/chat/completions": CHAT, "/openai/v1/chat/completions": CHAT, "/messages": MESSAGES, "/v1/v1/messages": MESSAGES,
    "/responses/resp_1": "/v1/responses/resp_1", "/v1/responses/": "/v1/responses", "/models": "/v1/models",
    "/models/org/name:tag": "/v1/models/org/name:tag", "/v1/models/v1/x": "/v1/models/v1/x", "/v1/models/": "/v1/models",
    "/v1/api/chat": "/api/chat", "/api/api/chat": "/api/chat", "/api/chat/": "/api/chat", "/api": "/api",
    "/v2/rerank": "/v2/rerank", "/v1/v2/rerank": "/v2/rerank", "/chats": "/chats", "/apis/v1/models": "/apis/v1/models",
}  # fmt: skip
BODIES: tuple[tuple[type[BaseModel], dict[str, Any]], ...] = (
    (ChatBody, {"messages": user()}),
    (CompletionBody, {}),
    (EmbeddingBody, {"input": "x"}),
    (RerankBody, {"query": "x", "documents": ["a"]}),
    (ResponsesBody, {}),
    (CountBody, {"messages": user()}),
    (MessagesBody, {"messages": user(), "max_tokens": 1}),
    (OllamaChatBody, {}),
    (GenerateBody, {}),
    (EmbedBody, {}),
    (PullBody, {}),
    (Named, {}),
    (TokenizeBody, {"content": "x"}),
    (DetokenizeBody, {"tokens": [1]}),
    (TextBody, {"prompt": "x"}),
    (InfillBody, {}),
)


@pytest.mark.parametrize("given", PATHS)
def test_paths(given: str) -> None:
    assert path_of(given) == PATHS[given] == path_of(PATHS[given])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/v1/chat/completions", ASKED),
        ("/messages", ASKED),
        ("/v1/api/chat/", {**ASKED, "options": {"num_predict": 1}}),
        ("/responses", {"input": "Hi", "max_output_tokens": 1}),
        ("/models/guide/", None),
    ],
)
def test_they_are_answered(server: Running, path: str, body: Any) -> None:
    assert server.ask(path, body)[0] == 200


def test_methods_that_a_path_takes(server: Running) -> None:
    for path, allowed in ((CHAT, {"POST"}), ("/api/tags", {"GET", "HEAD"})):
        status, headers, _ = server.exchange(path, method="OPTIONS")
        assert (status, set(headers["allow"].split(", "))) == (405, allowed)


def read_body(kind: type[BaseModel], given: Any) -> BaseModel:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(given).encode(), "more_body": False}

    return asyncio.run(read(Request({"type": "http"}, receive), kind))


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_null_stands_for_a_field_that_is_left_out(kind: type[BaseModel], body: dict[str, Any]) -> None:
    plain = read_body(kind, body)
    for name, field in kind.model_fields.items():
        if name not in body:
            found = read_body(kind, {**body, field.alias or name: None})
            assert (found, found.model_fields_set) == (plain, plain.model_fields_set)
    for name in body:
        if kind.model_fields[name].is_required():
            with pytest.raises(Problem, match=f"{name}: Field required"):
                read_body(kind, {**body, name: None})


def test_calls_and_items_with_nulls() -> None:
    body = OllamaChatBody.model_validate(
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": None}}]}]}
    )
    assert body.conversation[0]["tool_calls"][0]["function"]["arguments"] == {}
    asked = ResponsesBody.model_validate({"input": [{"type": None, "role": "user", "content": "Hi", "id": None}]})
    assert asked.messages(asked.items) == user("Hi")


def data(content: bytes) -> str:
    return f"data:text/plain;base64,{base64.b64encode(content).decode()}"


def test_files_are_read_as_text() -> None:
    wanted = [{"type": "text", "text": "a.txt\nGrüße"}]
    file = {"filename": "a.txt", "file_data": data("Grüße".encode())}
    assert checked([{"type": "file", "file": file}], "x") == checked([{"type": "input_file", **file}], "x") == wanted
    for wrong in ({"file_id": "file-1"}, {"file_data": data(b"%PDF\xff")}, {"file_data": "a,?"}, {"file_data": data(b"\0")}, None):
        with pytest.raises(Problem, match=r"x: this server reads files as plain text"):
            checked([{"type": "file", "file": wrong}], "x")


def test_parts_of_responses() -> None:
    text, clip = {"type": "input_text", "text": "Hi"}, {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    body = ResponsesBody.model_validate(
        {"input": [{"role": "user", "content": [text, text]}, {"role": "user", "content": [text, clip]}]}
    )
    first, second = body.messages(body.items)
    assert first["content"] == "Hi\nHi" and [part["type"] for part in second["content"]] == ["text", "input_audio"]
