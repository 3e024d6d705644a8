"""The requests of programs that cannot run here, as their documentation and source show them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from scripted import scripted
from serving import Running

CALL = '<tool_call>\n{"name": "HassTurnOn", "arguments": {"name": "lamp"}}\n</tool_call>'
TOOL = {
    "type": "function",
    "function": {
        "name": "HassTurnOn",
        "description": "Turns on a device",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
ASKED: list[dict[str, Any]] = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Hello"}]


def script(conversation: str) -> str:
    return CALL if "lamp" in conversation.rpartition("<|im_start|>")[2] else "Hello, friend."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with scripted(tmp_path_factory.mktemp("scripted") / "toy.gguf", script) as started:
        yield started


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_vs_code_and_zed_look_for_ollama_models(server: Running) -> None:
    """VS Code asks for the version, the models, what each can do, and then writes to OpenAI's path; Zed to Ollama's."""
    assert tuple(map(int, server.ask("/api/version")[1]["version"].split("."))) >= (0, 6, 4)
    name = server.ask("/api/tags")[1]["models"][0]["model"]
    shown = server.ask("/api/show", {"model": name})[1]
    architecture = shown["model_info"]["general.architecture"]
    assert {"completion", "tools"} <= set(shown["capabilities"]) and shown["model_info"][f"{architecture}.context_length"] > 0
    body = {"model": name, "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}, "tools": [TOOL], "n": 1}
    found = events(server.ask("/v1/chat/completions", {**body, "top_p": 1, "max_tokens": 64, "temperature": 0.1})[1])
    assert "".join(c["delta"].get("content") or "" for each in found for c in each["choices"]) == "Hello, friend."
    zed = {"model": name, "messages": ASKED, "stream": True, "keep_alive": -1, "think": False, "tools": [TOOL]}
    lines = server.ask("/api/chat", {**zed, "options": {"num_ctx": 4096, "stop": [], "temperature": 1.0}})[1].splitlines()
    assert "".join(json.loads(line)["message"]["content"] for line in lines) == "Hello, friend." and json.loads(lines[-1])["done"]


def test_cline(server: Running) -> None:
    parts = [
        {"type": "text", "text": "<task>Hello</task>"},
        {"type": "text", "text": "<environment_details>x</environment_details>"},
    ]
    body = {"model": "toy", "messages": [ASKED[0], {"role": "user", "content": parts}], "temperature": 0, "stream": True}
    status, text = server.ask("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    assert status == 200 and events(text)[-1]["usage"]["prompt_tokens"] and text.rstrip().endswith("[DONE]")


def test_jetbrains_and_n8n(server: Running) -> None:
    assert server.ask("/v1/models")[1]["data"][0]["id"] == "toy"
    body = {
        "model": "toy",
        "messages": ASKED,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "n": 1,
        "top_p": 1,
        "temperature": 0.7,
    }
    status, answer = server.ask("/v1/chat/completions", {**body, "max_tokens": None, "response_format": {"type": "text"}})
    assert status == 200 and answer["choices"][0]["message"]["content"] == "Hello, friend."


def test_home_assistant(server: Running) -> None:
    """A call, its result, and the answer; the context is asked for with each."""
    options = {"num_ctx": 8192}
    body = {"model": "toy", "stream": True, "keep_alive": "-1s", "options": options, "tools": [TOOL], "think": False}
    lines = server.ask("/api/chat", {**body, "messages": [*ASKED, {"role": "user", "content": "lamp"}]})[1].splitlines()
    calls = [call for line in lines for call in json.loads(line)["message"].get("tool_calls", ())]
    assert [call["function"] for call in calls] == [{"name": "HassTurnOn", "arguments": {"name": "lamp"}}]
    more = [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "done", "tool_name": "HassTurnOn"},
    ]
    status, text = server.ask("/api/chat", {**body, "messages": [*ASKED, *more, {"role": "user", "content": "Thanks"}]})
    assert status == 200 and json.loads(text.splitlines()[-1])["done_reason"] == "stop"


def test_open_webui(server: Running) -> None:
    """Both of its connections, with the fields that it adds."""
    headers = {"authorization": "Bearer none", "X-OpenWebUI-User-Name": "Ann"}
    assert server.ask("/v1/models", headers=headers)[0] == server.ask("/api/ps", headers=headers)[0] == 200
    body = {"model": "toy", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
    status, text = server.ask("/v1/chat/completions", body, headers=headers)
    assert status == 200 and text.rstrip().endswith("[DONE]")
    title = {"model": "toy", "messages": ASKED, "stream": False, "max_completion_tokens": 1000}
    assert server.ask("/v1/chat/completions", title, headers=headers)[1]["choices"][0]["finish_reason"] == "stop"
    status, text = server.ask(
        "/api/chat", {"model": "toy:latest", "messages": ASKED, "options": {}, "stream": True}, headers=headers
    )
    assert status == 200 and json.loads(text.splitlines()[-1])["eval_count"] > 0


def test_llama_vim_without_a_model_for_code(server: Running) -> None:
    body = {"input_prefix": "def f(", "input_suffix": "\n", "prompt": "x", "input_extra": [], "n_predict": 8, "n_indent": 0}
    more = {
        "top_k": 40,
        "top_p": 0.9,
        "samplers": ["top_k", "infill"],
        "stream": False,
        "cache_prompt": True,
        "t_max_prompt_ms": 500,
    }
    status, answer = server.ask("/infill", {**body, **more, "t_max_predict_ms": 1000, "response_fields": ["content"], "id_slot": 0})
    assert status == 400 and "filling in the middle" in answer["error"]["message"]
