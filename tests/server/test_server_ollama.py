"""Ollama's own client against a running server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ollama
import pytest
from scripted import TEMPLATE
from serving import LONG, Running, running, slow_steps, until, user
from tiny_models import tiny_model

import edgellm
from edgellm.server.ollama.requests import USUAL, OllamaChatBody, duration

GREEDY: dict[str, Any] = {"temperature": 0}


@pytest.fixture(scope="module")
def client(server: Running) -> ollama.Client:
    return ollama.Client(host=server.address)


def test_chat(client: ollama.Client) -> None:
    with edgellm.load("guide") as model:
        wanted = model.chat(user("What is edgellm?"), temperature=0)
    answer = client.chat("guide", user("What is edgellm?"), options=GREEDY)
    assert answer.message.content == wanted.text and answer.done_reason == "stop" and answer.done
    assert (answer.prompt_eval_count, answer.eval_count) == (wanted.stats.prompt_tokens, wanted.stats.generated_tokens)
    parts = list(client.chat("guide", user("What is edgellm?"), options=GREEDY, stream=True))
    assert "".join(part.message.content or "" for part in parts) == wanted.text
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].total_duration and parts[-1].eval_duration and parts[-1].eval_count == wanted.stats.generated_tokens


def test_generate(client: ollama.Client) -> None:
    with edgellm.load("guide") as model:
        prompt = model.apply_template(user())
    answer = client.generate("guide", "Hello", options=GREEDY)
    raw = client.generate("guide", prompt.removeprefix("<s>"), raw=True, options={**GREEDY, "num_predict": 5})
    assert answer.response and answer.response.startswith(raw.response) and raw.done_reason == "length"
    assert client.generate("guide", "Hello", system="Be brief.", options={"num_predict": 2}).eval_count == 2
    assert "".join(part.response for part in client.generate("guide", "Hello", options=GREEDY, stream=True)) == answer.response


def test_formats(client: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
    assert isinstance(json.loads(client.chat("guide", user(), format=schema, options=GREEDY).message.content or "")["yes"], bool)
    with pytest.raises(ollama.ResponseError, match="uniqueItems"):
        client.chat("guide", user(), format={"type": "array", "uniqueItems": True})


def test_names(client: ollama.Client, server: Running) -> None:
    assert "guide" in [model.model for model in client.list().models]
    shown = client.show("guide")
    assert shown.capabilities and "completion" in shown.capabilities and shown.details and shown.details.family == "llama"
    assert shown.modelinfo and shown.modelinfo["llama.context_length"] == 1024 and shown.modelinfo["general.basename"]
    client.chat("guide", user(), options={"num_predict": 1})
    assert [model.model for model in client.ps().models] == ["guide"]
    assert client.chat("guide:latest", user(), options={"num_predict": 1}).done
    client.copy("guide", "friend")
    assert client.chat("friend", user(), options={"num_predict": 1}).done
    with pytest.raises(ollama.ResponseError, match="started with"):
        client.copy("friend", "guide")
    client.delete("friend")  # the name alone goes
    with pytest.raises(ollama.ResponseError, match="friend"):
        client.chat("friend", user())
    assert client.chat("guide", user(), options={"num_predict": 1}).done
    with pytest.raises(ollama.ResponseError) as missing:
        client.chat("no-such-model", user())
    assert missing.value.status_code == 404
    version = server.ask("/api/version")[1]["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)
    assert server.exchange("/", method="HEAD")[0] == 200


def test_a_prompt_that_does_not_fit(client: ollama.Client) -> None:
    old = [{"role": "user", "content": "river " * 900}, {"role": "assistant", "content": "Yes."}]
    with pytest.raises(ollama.ResponseError, match="1024"):
        client.chat("guide", [*old, *user()])


def test_policies_of_the_context(server: Running) -> None:
    old = [{"role": "user", "content": "river " * 900}, {"role": "assistant", "content": "Yes."}]
    body = {"model": "guide", "messages": [*old, *user()], "stream": False, "options": {"num_predict": 2}}
    assert server.ask("/api/chat", body)[0] == 400
    status, answer = server.ask("/api/chat", {**body, "truncate": True})
    assert status == 200 and answer["forgotten_messages"] == [0, 1]
    assert server.ask("/api/chat", {**body, "shift": True})[0] == 200


def test_what_models_that_write_cannot_do(client: ollama.Client, server: Running) -> None:
    for call in (lambda: client.embed("guide", "x"), lambda: client.generate("guide", "x", suffix="y")):
        with pytest.raises(ollama.ResponseError) as refused:
            call()
        assert refused.value.status_code == 400
    for path in ("/api/create", "/api/push"):
        assert server.ask(path, {"model": "x"})[0] == 501
    image = {"role": "user", "content": "x", "images": ["aGk="]}
    assert server.ask("/api/chat", {"model": "guide", "messages": [image]})[0] == 400
    with pytest.raises(ollama.ResponseError):
        client.delete("guide")
    with pytest.raises(ollama.ResponseError) as gone:
        client.pull("hf:not a name")
    assert gone.value.status_code == 404
    with pytest.raises(ollama.ResponseError):
        list(client.pull("no-such-model-anywhere", stream=True))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ollama.Client, Path]]:
    path = tiny_model(tmp_path_factory.mktemp("embed") / "tiny-bert.gguf", "bert", "F32", tokenizer="spm")
    with running(models=(str(path),)) as server:
        yield ollama.Client(host=server.address), path


def test_embeddings(embedder: tuple[ollama.Client, Path]) -> None:
    client, path = embedder
    with edgellm.load(path) as model:
        wanted = model.embed(["hello", "world"])
    assert client.embed("tiny-bert", ["hello", "world"]).embeddings == wanted.tolist()
    assert client.embed("tiny-bert", "hello").embeddings == wanted[:1].tolist()
    assert list(client.embeddings("tiny-bert", "hello").embedding) == wanted[0].tolist()
    assert len(client.embed("tiny-bert", "hello", dimensions=3).embeddings[0]) == 3
    assert client.show("tiny-bert").capabilities == ["embedding"]
    with pytest.raises(ollama.ResponseError, match="dimensions"):
        client.embed("tiny-bert", "hello", dimensions=100_000)
    with pytest.raises(ollama.ResponseError):
        client.chat("tiny-bert", user())


def test_curl_needs_no_type(server: Running) -> None:
    body = {"model": "guide", "messages": user(), "stream": False, "options": {"num_predict": 1}}
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert server.ask("/api/chat", body, headers=form)[0] == 200
    assert server.ask("/api/chat", body, headers={**form, "origin": "http://evil.com"})[0] == 403
    assert server.ask("/api/chat", body, headers={"content-type": "text/plain"})[0] == 415


def test_models_are_kept_as_long_as_asked() -> None:
    with running() as server:
        client = ollama.Client(host=server.address)
        client.generate("guide", keep_alive=0)
        until(lambda: not server.models())
        client.generate("guide", keep_alive=-1)
        (loaded,) = server.server.models.loaded.values()
        assert loaded.expires is None
        client.chat("guide", user(), keep_alive="0.2s", options={"num_predict": 1})
        until(lambda: not server.models())


@pytest.mark.parametrize(
    "given, seconds",
    [("5m", 300.0), ("1h30m", 5400.0), ("1.5s", 1.5), (0, 0.0), (10, 10.0), ("10", 10.0), (-1, None), ("-1m", None), (None, USUAL)],
)
def test_durations(given: Any, seconds: float | None) -> None:
    assert duration(given) == seconds


REFUSED: list[tuple[str, dict[str, Any], str]] = [  # fields of /api/chat or /api/generate, and what the refusal says
    *(("chat", {"think": each}, "give true, false, low, medium, high or max") for each in ("banana", "", "true", 3)),
    *(("chat", {"think": each}, "does not support thinking") for each in (True, "high")),
    *(("chat", {"format": each}, "json, or a JSON schema") for each in ("yaml", "text")),
    *(("chat", {"keep_alive": each}, "keep_alive") for each in ("5x", "m", True, [])),
    ("chat", {"options": {"temperature": "hot"}}, "options.temperature"),
    *(("generate", {"raw": True, **more}, "no system or context") for more in ({"system": "x"}, {"context": [1]})),
    ("generate", {"template": "x"}, "template is not supported"),
    ("generate", {"suffix": "x"}, "filling in the middle"),
    ("generate", {"images": ["data:image/png;base64,aGk="]}, "takes no images"),
]


@pytest.mark.parametrize(("path", "more", "said"), REFUSED)
def test_values_that_are_refused(server: Running, path: str, more: dict[str, Any], said: str) -> None:
    body = {"model": "guide", "messages": user(), "prompt": "Hello", "stream": False, **more}
    status, answer = server.ask(f"/api/{path}", body)
    assert status == 400 and said in answer["error"]


def test_levels_of_thinking(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "t.gguf", "llama", "F32", tokenizer="spm", template="{{ reasoning_effort }}\n" + TEMPLATE)
    with edgellm.load(path) as model:
        for level in ("low", "medium", "high", "max"):
            options = OllamaChatBody.model_validate({"think": level}).thinking(model)
            assert model.apply_template(user("Hi"), **options).startswith(level)


def test_any_json(server: Running) -> None:
    body = {"model": "guide", "messages": user(), "stream": False, "format": {}, "options": {"num_predict": 8, "temperature": 0}}
    plain = server.ask("/api/chat", {**body, "format": ""})[1]["message"]["content"]
    assert server.ask("/api/chat", body)[1]["message"]["content"].strip()[:1] in '{["-0123456789tfn' and plain[:1].isalpha()


def test_calls_and_their_results_get_ids() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
    messages = [*user(), {"role": "assistant", "tool_calls": [call, call]}]
    results = [{"role": "tool", "content": "rain", "tool_name": "weather"}, {"role": "tool", "content": "sun"}]
    talk = OllamaChatBody.model_validate({"messages": [*messages, *results]}).conversation
    ids = [each["id"] for each in talk[1]["tool_calls"]]
    assert len(set(ids)) == 2 and [each["tool_call_id"] for each in talk[2:]] == ids and talk[3]["name"] == "weather"


def test_a_client_that_leaves(server: Running) -> None:
    body = json.dumps({"model": "guide", "messages": user(), "options": {"num_predict": 900, "ignore_eos": LONG["ignore_eos"]}})
    with slow_steps(), server.connected() as client:
        head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body.encode())
        client.recv(1000)
        assert server.busy() == 1
        client.close()
        assert until(lambda: not server.busy()) < 10
