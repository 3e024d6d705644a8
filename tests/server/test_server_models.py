"""Models that come and go: loaded when the server stops, unloaded where memory is short; large bodies within a budget."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.types.responses import ResponseFailedEvent
from pydantic import TypeAdapter
from serving import LONG, SECONDS, running, slow_steps, until, user
from tiny_models import tiny_model

import edgellm
from edgellm.engine import state_store
from edgellm.server import bodies, models, streaming

CHAT = "/v1/chat/completions"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tiny_model(tmp_path / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1, context=512))


def test_a_server_that_stops_does_not_wait_for_a_model(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, goes_on, load = threading.Event(), threading.Event(), edgellm.load

    def slowly(source: str, **options: Any) -> edgellm.Model:
        if source == path:
            loads.set()
            goes_on.wait(2 * SECONDS)
        return load(source, **options)

    monkeypatch.setattr(edgellm, "load", slowly)
    found = list[int]()
    with running(models=("guide", path)) as server:
        asking = threading.Thread(target=lambda: found.append(server.ask(CHAT, {"model": "toy", "messages": user()})[0]))
        asking.start()
        assert loads.wait(SECONDS)
        server.server.should_exit = True
        asking.join(SECONDS)
        assert found == [503]
    goes_on.set()


def test_streams_show_signs_of_life_while_a_model_is_loaded(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong afterwards is said in the stream; streams of protocols without comments wait."""
    load = edgellm.load

    def slowly(source: str, **options: Any) -> edgellm.Model:
        if source.endswith("guide.gguf"):
            return load(source, **options)
        time.sleep(0.5)
        if source != path:
            raise edgellm.FormatError("is odd", file=source)
        return load(source, **options)

    monkeypatch.setattr(edgellm, "load", slowly)
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.1)
    asked = {"messages": user(), "max_tokens": 1, "temperature": 0, "stream": True}  # one that is drawn may end the answer
    with running(models=("guide", path, "/odd.gguf")) as server:
        for place, end in ((CHAT, b'"length"'), ("/v1/messages", b'"max_tokens"')):
            status, _, answer = server.exchange(place, {**asked, "model": "toy"})
            assert status == 200 and answer.startswith(streaming.COMMENT) and end in answer, place
            server.server.models.loaded.pop(path).model.close()
        status, _, answer = server.exchange("/api/chat", {**asked, "model": "toy"})
        assert status == 200 and json.loads(answer.splitlines()[0])["message"]
        status, _, answer = server.exchange(CHAT, {**asked, "model": "odd"})
        assert status == 200 and answer.startswith(streaming.COMMENT) and b"is odd" in answer
        with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            with pytest.raises(openai.APIError, match="is odd"):
                list(client.chat.completions.create(model="odd", messages=user(), stream=True))  # type: ignore[arg-type]
            with pytest.raises(openai.APIError, match="is odd"):
                list(client.responses.create(model="odd", input="Hi", stream=True))
        claude: Any = anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)
        with claude, pytest.raises(anthropic.APIError, match="is odd"):
            list(claude.messages.create(model="odd", max_tokens=1, messages=user(), stream=True))
        failed = server.exchange("/v1/responses", {"model": "odd", "input": "Hi", "stream": True})[2].splitlines()[-2]
        event = TypeAdapter(ResponseFailedEvent).validate_json(failed.removeprefix(b"data: "))
        assert event.response.status == "failed" and event.response.error and "is odd" in event.response.error.message
        monkeypatch.setattr(streaming, "PING_SECONDS", 60.0)  # an error before the first sign of life has a status
        assert server.exchange(CHAT, {**asked, "model": "none"})[0] == 404


def test_models_that_write_nothing_are_unloaded_where_memory_is_short(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.05)
    with running(models=("guide", path)) as server, slow_steps():
        assert server.ask(CHAT, {"model": "toy", "messages": user(), "max_tokens": 1})[0] == 200
        assert len(server.models()) == 2
        with server.connected() as client:
            body = json.dumps({"messages": user(), "stream": True, **LONG}).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            client.recv(4096)
            monkeypatch.setattr(edgellm, "free_memory", lambda: 0.01)
            until(lambda: len(server.models()) == 1)
            assert server.models()[0].path.name == "guide.gguf" and server.busy()
        until(lambda: not server.models())
        monkeypatch.undo()
        assert server.ask(CHAT, {"model": "toy", "messages": user(), "max_tokens": 1})[0] == 200


def test_bodies_with_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 12 MiB arrives; where many do at once, those that are large are asked to come again."""
    uri = "data:image/png;base64," + base64.b64encode(b"x" * (9 << 20)).decode()
    asked = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}]}]}
    with running() as server:
        status, answer = server.ask(CHAT, asked)
        assert status == 400 and "image" in answer["error"]["message"]
        monkeypatch.setattr(bodies, "MOST_BODIES", 2 << 20)
        with contextlib.suppress(ConnectionError):
            status, answer = server.ask(CHAT, asked)
            assert status == 503
        assert server.ask(CHAT, {"messages": user(), "max_tokens": 1})[0] == 200


def test_a_long_prompt_is_read_once_also_after_a_restart(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "user_cache", lambda: tmp_path)
    system = {"role": "system", "content": "Be kind, and say little. " * 20}
    found = list[tuple[int, int]]()
    for _ in range(2):
        with running(models=(path,), load={"prefix_cache": "1G", "context": 2048}) as server:
            for text in ("Hello", "And now?"):
                asked = {"messages": [system, *user(text)], "max_tokens": 4}
                usage = server.ask(CHAT, asked)[1]["usage"]
                found.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
    assert found[0][0] > 256 and found[0][1] == 0
    assert all(prompt - cached < 60 for prompt, cached in found[1:])
