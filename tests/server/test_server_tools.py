"""Tools through every protocol, by a model whose answers are scripted: calls in pieces, choices of tools, results, usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import ollama
import openai
import pytest
from scripted import scripted
from serving import Running, user

from edgellm.server.openai.requests import ChatBody

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "Look.", "parameters": SCHEMA}} for name in ("weather", "news")
]
FLAT: list[Any] = [{"type": "function", **tool["function"]} for tool in TOOLS]
BLOCKS: list[Any] = [{"name": name, "input_schema": SCHEMA} for name in ("weather", "news")]
ARGUMENTS = {"city": "Rome", "days": 2}


def script(conversation: str) -> str | list[str]:
    asked = conversation.rpartition("<|im_start|>")[2]
    if asked.startswith("tool\n"):
        return "It rains in Rome."
    if "twice" in asked:
        return f"{CALL}\n{CALL.replace('Rome', 'Oslo')}"
    if "weather" in asked:
        return f"<think>\nI need a tool.\n</think>\n\nLet me look.\n{CALL}"
    return ["Hello, friend.", CALL, CALL.replace("weather", "news")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with scripted(tmp_path_factory.mktemp("scripted") / "toy.gguf", script) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def claude(server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as opened:
        yield opened


def chat(client: openai.OpenAI, text: str, **options: Any) -> Any:
    return client.chat.completions.create(model="toy", messages=[{"role": "user", "content": text}], **options)


def test_calls_in_pieces(client: openai.OpenAI) -> None:
    whole = chat(client, "weather?", tools=TOOLS)
    message = whole.choices[0].message
    assert whole.choices[0].finish_reason == "tool_calls"
    assert message.content.strip() == "Let me look." and message.reasoning == "I need a tool."
    assert json.loads(message.tool_calls[0].function.arguments) == ARGUMENTS
    assert 5 < whole.usage.completion_tokens_details.reasoning_tokens < whole.usage.completion_tokens
    pieces = [
        call for chunk in chat(client, "weather?", tools=TOOLS, stream=True) for call in (chunk.choices[0].delta.tool_calls or ())
    ]
    assert len(pieces) > 3 and [call.function.name for call in pieces if call.function.name] == ["weather"]
    assert [bool(call.id) for call in pieces] == [True] + [False] * (len(pieces) - 1)
    assert json.loads("".join(call.function.arguments for call in pieces)) == ARGUMENTS
    messages: list[Any] = [*user("weather?"), message.model_dump(exclude_none=True)]
    messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"})
    answer = client.chat.completions.create(model="toy", messages=messages, tools=TOOLS)
    assert answer.choices[0].message.content == "It rains in Rome." and answer.choices[0].message.tool_calls is None


def test_openais_helper_puts_the_pieces_together(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="toy", messages=[{"role": "user", "content": "twice"}], tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds and kinds.count("tool_calls.function.arguments.done") == 2
    calls = final.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Rome", "Oslo"]
    assert len({call.id for call in calls}) == 2


def test_choices_of_tools(client: openai.OpenAI) -> None:
    def calls(text: str, **options: Any) -> list[str]:
        return [call.function.name for call in chat(client, text, tools=TOOLS, **options).choices[0].message.tool_calls or ()]

    assert calls("Hi") == [] and calls("weather?", tool_choice="auto") == ["weather"]
    assert calls("weather?", tool_choice="none") == []
    assert (
        len(calls("Hi", tool_choice="required", max_tokens=200)) >= 1 and len(calls("Hi", tool_choice="any", max_tokens=200)) >= 1
    )
    assert calls("Hi", tool_choice={"type": "function", "function": {"name": "news"}}, max_tokens=200)[:1] == ["news"]
    some = {"mode": "required", "tools": [{"type": "function", "function": {"name": "news"}}]}
    assert set(calls("Hi", tool_choice={"type": "allowed_tools", "allowed_tools": some}, max_tokens=200)) == {"news"}
    assert calls("twice") == ["weather", "weather"] and calls("twice", parallel_tool_calls=False) == ["weather"]
    with pytest.raises(openai.BadRequestError, match="other"):
        calls("Hi", tool_choice={"type": "function", "function": {"name": "other"}})
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        chat(client, "Hi", tool_choice="required")


@pytest.mark.parametrize(
    "asked",
    [
        {"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}, {"think": False}, {"enable_thinking": False},
        {"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)  # fmt: skip
def test_ways_to_ask_for_no_thinking(server: Running, asked: dict[str, Any]) -> None:
    (model,) = server.models()
    assert model.thinking == "optional"
    assert ChatBody.model_validate({"messages": user(), **asked}).options(model, None)["think"] is False


def test_functions_of_openais_older_form(client: openai.OpenAI) -> None:
    functions: list[Any] = [tool["function"] for tool in TOOLS]
    whole = chat(client, "weather?", functions=functions).choices[0]
    assert whole.finish_reason == "function_call" and whole.message.tool_calls is None
    assert whole.message.function_call.name == "weather" and json.loads(whole.message.function_call.arguments) == ARGUMENTS
    chunks = [chunk.choices[0] for chunk in chat(client, "weather?", functions=functions, stream=True)]
    pieces = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call]
    assert [piece.name for piece in pieces if piece.name] == ["weather"] and chunks[-1].finish_reason == "function_call"
    assert json.loads("".join(piece.arguments for piece in pieces)) == ARGUMENTS
    result = {"role": "function", "name": "weather", "content": "rain"}
    messages: list[Any] = [*user("weather?"), whole.message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model="toy", messages=messages, functions=functions).choices[0]
    assert answer.message.content == "It rains in Rome." and answer.finish_reason == "stop"
    named = chat(client, "Hi", functions=functions, function_call={"name": "news"}, max_tokens=200).choices[0].message
    assert named.function_call.name == "news"
    assert chat(client, "weather?", functions=functions, function_call="none").choices[0].message.function_call is None
    assert chat(client, "twice", functions=functions).choices[0].message.function_call.name == "weather"


def test_anthropics_calls(claude: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {
        "model": "toy",
        "max_tokens": 400,
        "tools": BLOCKS,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    whole = claude.messages.create(messages=[{"role": "user", "content": "weather?"}], **asked)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"] and whole.stop_reason == "tool_use"
    kinds = list[str]()
    with claude.messages.stream(messages=[{"role": "user", "content": "twice"}], **asked) as stream:
        for event in stream:
            kinds.append(event.type)
        final = stream.get_final_message()
    assert kinds.count("input_json") > 4
    assert [block.input["city"] for block in final.content if block.type == "tool_use"] == ["Rome", "Oslo"]  # type: ignore[index]  # JSON
    one: list[Any] = claude.messages.create(
        messages=[{"role": "user", "content": "twice"}], tool_choice={"type": "auto", "disable_parallel_tool_use": True}, **asked
    ).content
    assert len([block for block in one if block.type == "tool_use"]) == 1
    for choice, names in (({"type": "any"}, {"weather", "news"}), ({"type": "tool", "name": "news"}, {"news"})):
        found = claude.messages.create(messages=[{"role": "user", "content": "Hi"}], tool_choice=choice, **asked)  # type: ignore[call-overload]  # a mapping
        assert {block.name for block in found.content if block.type == "tool_use"} <= names and found.stop_reason == "tool_use"
    none = claude.messages.create(messages=[{"role": "user", "content": "weather?"}], tool_choice={"type": "none"}, **asked)
    assert none.stop_reason != "tool_use"


def test_tokens_that_are_cached_are_reported(claude: anthropic.Anthropic) -> None:
    system: list[Any] = [{"type": "text", "text": "Be kind. " * 40, "cache_control": {"type": "ephemeral"}}]
    asked: Any = {"model": "toy", "max_tokens": 20, "system": system}
    first = claude.messages.create(messages=[{"role": "user", "content": "Hi"}], **asked).usage
    second = claude.messages.create(messages=[{"role": "user", "content": "Ho"}], **asked).usage
    plain = claude.messages.create(model="toy", max_tokens=20, messages=[{"role": "user", "content": "Another"}]).usage
    assert first.cache_creation_input_tokens and first.cache_creation_input_tokens > 40 and first.input_tokens == 1
    assert second.cache_read_input_tokens and second.cache_read_input_tokens > 40
    assert plain.cache_creation_input_tokens == 0 and plain.input_tokens > 1


def test_calls_of_responses(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="toy", input="weather?", tools=FLAT)
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert whole.usage and whole.usage.output_tokens_details.reasoning_tokens > 5
    events = list(client.responses.create(model="toy", input="twice", tools=FLAT, stream=True))
    kinds = [event.type for event in events]
    assert kinds.count("response.function_call_arguments.delta") > 4 and kinds.count("response.function_call_arguments.done") == 2
    last: Any = events[-1]
    assert [json.loads(item.arguments)["city"] for item in last.response.output] == ["Rome", "Oslo"]
    deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert deltas == "".join(item.arguments for item in last.response.output)
    items: list[Any] = [*user("weather?"), *(item.model_dump(exclude_none=True) for item in whole.output)]
    items.append({"type": "function_call_output", "call_id": items[-1]["call_id"], "output": "rain"})
    assert client.responses.create(model="toy", input=items, tools=FLAT).output_text == "It rains in Rome."
    named: Any = {"type": "function", "name": "news"}
    found: Any = client.responses.create(model="toy", input="Hi", tools=FLAT, tool_choice=named, max_output_tokens=300).output
    assert {item.name for item in found if item.type == "function_call"} <= {"news"}


def test_calls_of_ollama(server: Running) -> None:
    client = ollama.Client(host=server.address)
    answer = client.chat("toy", messages=user("twice"), tools=TOOLS)
    assert [call.function.arguments["city"] for call in answer.message.tool_calls or ()] == ["Rome", "Oslo"]
    parts = list(client.chat("toy", messages=user("twice"), tools=TOOLS, stream=True))
    assert [call.function.name for part in parts for call in part.message.tool_calls or ()] == ["weather", "weather"]
    asked = {"model": "toy", "messages": user("Hi"), "tools": TOOLS, "tool_choice": "required", "stream": False}
    status, found = server.ask("/api/chat", {**asked, "options": {"num_predict": 300}})
    assert status == 200 and found["message"]["tool_calls"]


def test_several_choices_are_written_together(server: Running, client: openai.OpenAI) -> None:
    model = server.models()[0]
    long = "Say something long. " * 30
    log = model.engine.check().log
    log.clear()
    found = chat(client, long, n=3)
    assert [choice.index for choice in found.choices] == [0, 1, 2] and {each.message.content for each in found.choices} == {
        "Hello, friend."
    }
    assert sum(log) < found.usage.prompt_tokens + found.usage.completion_tokens + 12  # the prompt once
    assert len(log) < found.usage.completion_tokens  # steps are shared
    texts = {0: "", 1: "", 2: ""}
    for chunk in chat(client, long, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert set(texts.values()) == {"Hello, friend."}
