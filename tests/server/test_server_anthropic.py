"""Anthropic's own client against a running server."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from serving import Running, running, user

import edgellm
from edgellm.server.anthropic.requests import MessagesBody

GREEDY: dict[str, Any] = {"model": "guide", "extra_body": {"temperature": 0}, "max_tokens": 100}


@pytest.fixture(scope="module")
def client(server: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)


def test_answers_are_the_librarys(client: anthropic.Anthropic) -> None:
    with edgellm.load("guide") as model:
        wanted = model.chat(user("What is edgellm?"), temperature=0)
    answer = client.messages.create(messages=user("What is edgellm?"), **GREEDY)  # type: ignore[arg-type]
    assert [block.type for block in answer.content] == ["text"] and answer.content[0].text == wanted.text  # type: ignore[union-attr]
    assert answer.stop_reason == "end_turn" and answer.role == "assistant" and answer.id.startswith("msg_")
    usage = answer.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == wanted.stats.prompt_tokens
    assert usage.output_tokens == wanted.stats.generated_tokens


def test_streams(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(messages=user(), **GREEDY)  # type: ignore[arg-type]
    with client.messages.stream(messages=user(), **GREEDY) as stream:  # type: ignore[arg-type]
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == whole.content[0].text == last.content[0].text and last.stop_reason == "end_turn"  # type: ignore[union-attr]
    assert last.usage.output_tokens == whole.usage.output_tokens and last.usage.cache_read_input_tokens
    events = [*client.messages.create(messages=user(), stream=True, **GREEDY)]  # type: ignore[arg-type]
    kinds = [event.type for event in events]
    start = events[0].message.usage  # type: ignore[union-attr]
    assert (start.cache_read_input_tokens, start.input_tokens) == (last.usage.cache_read_input_tokens, last.usage.input_tokens)
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_stops(client: anthropic.Anthropic) -> None:
    stopped = client.messages.create(messages=user(), stop_sequences=["zebra", "guide"], **GREEDY)  # type: ignore[arg-type]
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "guide"
    cut = client.messages.create(messages=user(), **{**GREEDY, "max_tokens": 3})  # type: ignore[arg-type]
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 3


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="guide", messages=user(), system="Be brief.")  # type: ignore[arg-type]
    answer = client.messages.create(messages=user(), system="Be brief.", **GREEDY)  # type: ignore[arg-type]
    assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_errors_are_its_exceptions(client: anthropic.Anthropic, server: Running) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(messages=user(), **{**GREEDY, "model": "no-such-model"})  # type: ignore[arg-type]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: .* tokens > 1024 maximum"):
        client.messages.create(messages=user("river " * 3000), **GREEDY)  # type: ignore[arg-type]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        list(client.messages.create(messages=user("river " * 3000), stream=True, **GREEDY))  # type: ignore[arg-type]
    for body in (
        {},
        {"messages": user()},
        {"messages": [], "max_tokens": 1},
        {"messages": [{"role": "x", "content": "y"}], "max_tokens": 1},
    ):
        status, answer = server.ask("/v1/messages", body)
        assert status == 400 and answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"
    image = [
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}
    ]
    assert server.ask("/v1/messages", {"messages": image, "max_tokens": 1})[0] == 400
    with running(api_key="right") as locked:
        with pytest.raises(anthropic.AuthenticationError):
            client.with_options(base_url=locked.address).messages.create(messages=user(), **GREEDY)  # type: ignore[arg-type]
        assert client.with_options(base_url=locked.address, api_key="right").models.list().data[0].id == "guide"


def test_conversations_with_tools() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
    ]
    result = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
        {"type": "text", "text": "And now?"},
    ]
    messages = [*user(), {"role": "assistant", "content": blocks}, {"role": "user", "content": result}]
    talk = MessagesBody.model_validate({"messages": messages, "max_tokens": 1, "system": "Be brief."}).conversation
    assert [each["role"] for each in talk] == ["system", "user", "assistant", "tool", "user"]
    assert talk[2]["reasoning_content"] == "Hm." and talk[2]["content"] == "I look."
    assert json.loads(talk[2]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
    assert talk[3] == {"role": "tool", "tool_call_id": "toolu_1", "content": "rain"}


def test_lines_that_change_with_each_request_are_left_out() -> None:
    texts = []
    for number in ("1a2b", "3c4d"):
        system = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={number};"},
            {"type": "text", "text": "Be brief."},
        ]
        texts.append(
            MessagesBody.model_validate({"messages": user(), "max_tokens": 1, "system": system}).conversation[0]["content"]
        )
    assert texts == ["Be brief."] * 2


def test_tools_of_other_kinds_are_left_out() -> None:
    with edgellm.load("guide") as model:
        tools = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {"type": "object"}}]
        asked = {"messages": user(), "max_tokens": 1, "tools": tools}
        options = MessagesBody.model_validate(asked).options(model)
        assert [tool["function"]["name"] for tool in options["tools"]] == ["f"]
        assert "tools" not in MessagesBody.model_validate({**asked, "tool_choice": {"type": "none"}}).options(model)
