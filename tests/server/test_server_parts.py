"""Pictures in requests are data, in every protocol: no path or address in a request is ever read."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.server.anthropic.requests import MessagesBody
from edgellm.server.ollama.requests import GenerateBody, OllamaChatBody
from edgellm.server.openai.requests import ChatBody
from edgellm.server.problems import Problem
from edgellm.server.responses.requests import ResponsesBody

URI = "data:image/png;base64,aGk="
PICTURE = {"type": "image_url", "image_url": {"url": URI}}
PLACES = [
    "/etc/passwd",
    "file:///etc/passwd",
    "picture.png",
    "http://localhost/x.png",
    "\\\\host\\x.png",
    "data:text/html,x",
    "",
    None,
    3,
]


def openai(url: Any) -> Any:
    parts = [
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}, "image": "/etc/passwd"},
    ]
    return ChatBody.model_validate({"messages": [{"role": "user", "content": parts}]}).conversation[-1]["content"]


def responses(url: Any) -> Any:
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": url}]
    body = ResponsesBody.model_validate({"input": [{"role": "user", "content": parts}]})
    return body.messages(body.items)[-1]["content"]


@pytest.mark.parametrize("content", [openai, responses])
def test_pictures_of_data(content: Any) -> None:
    assert content(URI) == [{"type": "text", "text": "x"}, PICTURE]
    for place in PLACES:
        with pytest.raises(Problem, match=r"image|type"):
            content(place)


def test_pictures_in_base64() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "x"}]
    asked = {"max_tokens": 1, "messages": [{"role": "user", "content": blocks}]}
    assert MessagesBody.model_validate(asked).conversation[-1]["content"] == [PICTURE, {"type": "text", "text": "x"}]
    for other in ({"type": "url", "url": "http://localhost/x.png"}, {"type": "file", "file_id": "x"}, None, "x"):
        asked["messages"] = [{"role": "user", "content": [{"type": "image", "source": other}]}]
        with pytest.raises(Problem, match="base64"):
            _ = MessagesBody.model_validate(asked).conversation
    chat = OllamaChatBody.model_validate({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}).conversation
    prompt = GenerateBody.model_validate({"prompt": "x", "images": ["aGk="]}).conversation
    assert chat[-1]["content"] == prompt[-1]["content"] == [PICTURE, {"type": "text", "text": "x"}]
    path = OllamaChatBody.model_validate({"messages": [{"role": "user", "content": "x", "images": ["/etc/passwd"]}]}).conversation
    assert path[-1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")


def test_other_parts_are_refused() -> None:
    for part in ({"type": "image", "image": "/etc/passwd"}, {"type": "audio"}, {"text": "x"}):
        body = ChatBody.model_validate({"messages": [{"role": "user", "content": [part]}]})
        with pytest.raises(Problem, match="type"):
            _ = body.conversation
