"""Models that come and go: loaded when the server stops, unloaded where memory is short; large bodies within a budget."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving import LONG, running, until, user
from tiny_models import tiny_model

import edgellm
from edgellm.engine import state_store
from edgellm.server import bodies, models

CHAT = "/v1/chat/completions"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tiny_model(tmp_path / "toy.gguf", "llama", "F16", tokenizer="spm", n_layers=1, context=512))


def test_a_server_that_stops_does_not_wait_for_a_model(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = threading.Event(), edgellm.load

    def slowly(source: str, **options: Any) -> edgellm.Model:
        if source == path:
            loads.set()
            time.sleep(5)
        return load(source, **options)

    monkeypatch.setattr(edgellm, "load", slowly)
    found = list[int]()
    with running(models=("guide", path)) as server:
        asking = threading.Thread(target=lambda: found.append(server.ask(CHAT, {"model": "toy", "messages": user()})[0]))
        asking.start()
        assert loads.wait(10)
        since = time.monotonic()
        server.server.should_exit = True
        asking.join(10)
    assert found == [503] and time.monotonic() - since < 2


def test_models_that_write_nothing_are_unloaded_where_memory_is_short(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "LOOK_SECONDS", 0.05)
    with running(models=("guide", path)) as server:
        assert server.ask(CHAT, {"model": "toy", "messages": user(), "max_tokens": 1})[0] == 200
        assert len(server.models()) == 2
        with server.connected() as client:
            body = json.dumps({"messages": user(), "stream": True, **LONG}).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            client.recv(4096)
            monkeypatch.setattr(models.psutil, "virtual_memory", lambda: SimpleNamespace(available=1, total=100))
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
