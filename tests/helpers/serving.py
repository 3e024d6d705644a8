"""Servers on loopback for tests: one thread each, gone when the test is over."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from edgellm.engine.core import Core
from edgellm.server.run import Server, serve
from edgellm.server.settings import Settings

SECONDS = 60.0  # that anything may take
LONG = {"max_tokens": 900, "ignore_eos": True, "temperature": 0}  # an answer of 18 seconds at least, where steps are slow
SLOW_STEP = 0.02  # seconds


@contextlib.contextmanager
def slow_steps() -> Iterator[None]:
    """Each step of every model takes a while, so that an answer is still being written however slow the test is."""
    step = Core.step

    def slowly(core: Core, *given: Any) -> Any:
        time.sleep(SLOW_STEP)
        return step(core, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Core, "step", slowly)
        yield


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers, and where."""

    address: str
    server: Server

    def models(self) -> list[Any]:
        """The models in memory."""
        return [loaded.model for loaded in self.server.models.loaded.values()]

    def busy(self) -> int:
        """Answers that are being written or wait."""
        return sum(len(model.engine.core.requests) for model in self.models())

    def send(self, data: bytes, *, seconds: float = SECONDS) -> bytes:
        """The response to raw bytes, until the server closes or `seconds` are over."""
        with self.connected() as client:
            client.settimeout(seconds)
            client.sendall(data)
            return received(client)

    def head(self, data: bytes) -> bytes:
        """The beginning of the response to raw bytes, with its head; less where the server closes the connection before."""
        found = bytearray()
        with self.connected() as client, contextlib.suppress(ConnectionError):
            client.sendall(data)
            while b"\r\n\r\n" not in found and (part := client.recv(65536)):
                found += part
        return bytes(found)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        parts = urlsplit(self.address)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=SECONDS) as client:
            yield client

    def ask(self, path: str, body: Any = None, *, method: str = "", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and JSON (or text) of one request."""
        status, _, data = self.exchange(path, body, method=method, headers=headers)
        try:
            return status, json.loads(data)
        except ValueError:
            return status, data.decode()

    def exchange(
        self, path: str, body: Any = None, *, method: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and bytes of one request."""
        given = {"host": urlsplit(self.address).netloc, "connection": "close", **(headers or {})}
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            given = {"content-type": "application/json", "content-length": str(len(data)), **given}
        head = f"{method or ('POST' if data else 'GET')} {path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        return taken_apart(self.send(head.encode() + b"\r\n" + data))


def received(client: socket.socket) -> bytes:
    """All that comes until the connection or the time ends."""
    found = bytearray()
    with contextlib.suppress(TimeoutError, ConnectionError):
        while part := client.recv(65536):
            found += part
    return bytes(found)


def taken_apart(response: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response, chunks joined."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        whole = bytearray()
        while body:
            length, _, rest = body.partition(b"\r\n")
            size = int(length or b"0", 16)
            whole += rest[:size]
            body = rest[size + 2 :]
        body = bytes(whole)
    return int(first.split()[1]) if first else 0, headers, body


@contextlib.contextmanager
def running(**settings: Any) -> Iterator[Running]:
    """A server with the guide, or what `settings` say, on a free port."""
    ready, found, errors = threading.Event(), list[Running](), list[BaseException]()

    def started(address: str, server: Server) -> None:
        found.append(Running(address, server))
        ready.set()

    def run() -> None:
        try:
            serve(Settings(**{"port": 0, **settings}), started)
        except BaseException as error:
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="test-server")
    thread.start()
    try:
        assert ready.wait(SECONDS)
        if errors:
            raise errors[0]
        until(lambda: found[0].server.started)
        yield found[0]
    finally:
        for each in found:
            each.server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()


def until(condition: Any, seconds: float = SECONDS) -> float:
    """Seconds until `condition()` holds; fails after `seconds`."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < seconds, "it never came"
        time.sleep(0.005)
    return time.monotonic() - since


def user(text: str = "Hello") -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]
