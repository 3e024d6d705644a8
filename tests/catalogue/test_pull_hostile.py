"""Servers that mean to hold us, to fill our memory, or to lead us into the user's own network."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hub_server import LocalHub, redirect
from pulled import FILE, NAME, client, refused

from edgellm.catalogue.connection import HttpLimits
from edgellm.catalogue.hub import Hub, _listed
from edgellm.errors import DownloadError

pytestmark = pytest.mark.usefixtures("cache")
Talk = Callable[[socket.socket], None]
ONCE = HttpLimits(silence=0.4, connect=1.0, tries=1, pause=0.0)
FACTS = (
    f'HTTP/1.1 200 OK\r\nX-Repo-Commit: {"c" * 40}\r\nX-Linked-Etag: "{"a" * 64}"\r\nX-Linked-Size: 700000\r\n'
    "Content-Length: 700000\r\n\r\n"
).encode()
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def raw() -> Iterator[Callable[[Talk], Hub]]:
    """A server that says what `talk` writes, to HEAD requests the facts of a file; and a client of it."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve(talk: Talk) -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                try:
                    asked = connection.recv(65536)
                    if asked.startswith(b"HEAD") and talk is not drip_header:
                        connection.sendall(FACTS)
                    else:
                        talk(connection)
                except OSError:
                    pass  # the client has had enough

    def start(talk: Talk) -> Hub:
        threading.Thread(target=serve, args=(talk,), daemon=True).start()
        port = listener.getsockname()[1]
        return Hub({"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": "/nonexistent"}, ONCE, sleep=lambda seconds: None)

    yield start
    stop.set()
    listener.close()


def slowly(connection: socket.socket, *pieces: bytes) -> None:
    for piece in itertools.chain(pieces[:-1], itertools.repeat(pieces[-1], 2000)):
        connection.sendall(piece)
        time.sleep(0.05)


def drip_header(connection: socket.socket) -> None:
    slowly(connection, b"HTTP/1.1 200 OK\r\nX: ", b"x")


def continue_slowly(connection: socket.socket) -> None:
    slowly(connection, b"HTTP/1.1 100 Continue\r\n\r\n")


def continue_fast(connection: socket.socket) -> None:
    for _ in range(1_000_000):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def long_header(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: %s\r\n" % (i, b"x" * 60_000) for i in range(90)) + b"\r\n")


def slow_extension(connection: socket.socket) -> None:
    slowly(connection, CHUNKED, b"1;x=", b"y")


def fast_extensions(connection: socket.socket) -> None:
    connection.sendall(CHUNKED)
    for _ in range(1_000_000):
        connection.sendall(b"1;" + b"x" * 60_000 + b"\r\ny\r\n")
        time.sleep(0.01)


def endless_trailer(connection: socket.socket) -> None:
    connection.sendall(CHUNKED + b"0\r\n")
    for _ in range(1_000_000):
        connection.sendall(b"X: y\r\n" * 1000)


@pytest.mark.parametrize(
    "talk", [drip_header, continue_slowly, continue_fast, long_header, slow_extension, fast_extensions, endless_trailer]
)
def test_no_server_holds_us(talk: Talk, raw: Callable[[Talk], Hub]) -> None:
    hub, start = raw(talk), time.monotonic()
    refused(None, f"{NAME}:{FILE}", hub)  # type: ignore[arg-type]  # the hub is given
    assert time.monotonic() - start < 50  # of the 100 seconds and more that it would go on


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 10_000_000 + b"[]]",
        b"[" + b"[]," * 1_300_000 + b"[]]",
        b'["\xf0\x9f\x98\x80' + b"x" * 4_000_000 + b'"]',
        b"[" * 4_000_000,
        b'[{"type":"file","path":"x"}' + b',{"a":{}}' * 400_000 + b"]",
        b"1" * 3_000_000,
    ],
    ids=["30 MB", "empty lists", "one text", "depth", "objects", "digits"],
)
def test_listings_cost_little_memory(body: bytes, raw: Callable[[Talk], Hub]) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    tracemalloc.start()
    try:
        with pytest.raises(DownloadError):
            raw(lambda connection: connection.sendall(answer)).files("o/r")
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_a_listing_that_breaks_off_is_a_typed_error(raw: Callable[[Talk], Hub]) -> None:
    with pytest.raises(DownloadError, match=r"tries\); try again later"):
        raw(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[")).files("o/r")


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "0x0a000001",
        "012.0.0.1",
        "167772161",
        "10.1",
        "0xa9.0xfe.1",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::10.0.0.1]",
        "[2002:a00:1::]",
        "[fe80::1]",
        "169.254.169.254",
        "0",
        "224.0.0.1",
        "100.64.0.1",
    ],
)
def test_private_addresses_are_refused_in_every_spelling(address: str, server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.misbehave(*[redirect(f"https://{address}/x") for _ in range(9)])
    reached: list[Any] = []
    real = socket.socket.connect

    def connect(self: socket.socket, target: Any) -> None:
        reached.append(target[0])
        real(self, target)

    monkeypatch.setattr(socket.socket, "connect", connect)
    assert "private network" in refused(server) and set(reached) == {"127.0.0.1"}


def test_a_name_is_looked_up_before_anything_is_sent(server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public address beside the private one does not help."""
    real = socket.getaddrinfo

    def lookup(host: str, *arguments: Any, **options: Any) -> Any:
        if host != "innocent.example":
            return real(host, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("93.184.216.34", "192.168.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    server.misbehave(*[redirect("https://innocent.example/x") for _ in range(9)])
    assert "192.168.0.1" in refused(server)


@pytest.mark.parametrize("location", ["https://" + "a" * 64 + ".example/", "https://a..b/", "https://x:99999/", "https://[::1"])
def test_redirects_to_what_is_no_address(location: str, server: LocalHub) -> None:
    server.misbehave(*[redirect(location) for _ in range(9)])
    refused(server)


@pytest.mark.parametrize("facts", [{"X-Linked-Size": "9" * 5000}, {"X-Linked-Size": "\u00b2"}, {"X-Linked-Size": "-1"}])
def test_sizes_that_are_none(facts: dict[str, str], server: LocalHub) -> None:
    server.facts = facts
    assert "how long" in refused(server, f"{NAME}:{FILE}")


def test_a_range_of_five_thousand_digits(server: LocalHub) -> None:
    def range_of(answer: Any, data: bytes, start: int) -> None:
        answer.status, answer.headers["Content-Range"] = 206, f"bytes 0-{'9' * 5000}/*"

    server.misbehave(*[range_of] * 9)
    assert "another piece" in refused(server, hub=client(server))


@pytest.mark.parametrize("size", [True, -1, 1.5, "4", None, 10**18])
def test_sizes_in_a_listing(size: Any) -> None:
    line = json.loads(json.dumps({"type": "file", "path": "m.gguf", "size": size}))
    assert _listed(line, "o/r", "c" * 40) is None and _listed({**line, "size": 4}, "o/r", "c" * 40) is not None
