"""Malformed bodies and framings, slow clients and clients that leave: refused in a sentence, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from serving import LONG, SECONDS, Running, received, running, slow_steps, taken_apart, until, user

from edgellm.server import protocol, streaming
from edgellm.server.settings import MOST_BODY

CHAT = "/v1/chat/completions"
AT_ONCE = 10.0  # seconds, on a machine that others use too
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def healthy(server: Running) -> Iterator[None]:
    """After each attack the server answers at once."""
    yield
    since = time.monotonic()
    assert server.ask("/health")[0] == 200 and time.monotonic() - since < AT_ONCE


BODIES = {
    "empty": b"",
    "no JSON": b"hello",
    "cut": b'{"messages": [',
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "no messages": b"{}",
    "messages of nothing": b'{"messages": []}',
    "a message that is a text": b'{"messages": ["x"]}',
    "no role": b'{"messages": [{}]}',
    "role is a number": b'{"messages": [{"role": 3, "content": "x"}]}',
    "content is a number": b'{"messages": [{"role": "user", "content": 3}]}',
    "content is an object": b'{"messages": [{"role": "user", "content": {"a": 1}}]}',
    "an image": b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]}',
    "an image of ours": b'{"messages": [{"role": "user", "content": [{"type": "image", "image": "/etc/passwd"}]}]}',
    "an image elsewhere": b'{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "http://127.0.0.1:1/x"}]}]}',
    "NaN": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "infinite": b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
    "a huge number": b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
    "negative temperature": b'{"messages": [{"role": "user", "content": "x"}], "top_p": -3}',
    "n": b'{"messages": [{"role": "user", "content": "x"}], "n": 100000}',
    "logit_bias": b'{"messages": [{"role": "user", "content": "x"}], "logit_bias": {"x": "y"}}',
    "a token that there is not": b'{"messages": [{"role": "user", "content": "x"}], "logit_bias": {"999999999": 1}}',
    "top_logprobs": b'{"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 1000}',
    "response_format": b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "x"}}',
    "a schema that is none": b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema"}}',
    "tools": b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": 3}]}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "not UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "rather deep": b'{"messages": [{"role": "user", "content": ' + b"[" * 70 + b"]" * 70 + b"}]}",
    "template options": b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"messages": 1}}',
    "stop of a wrong type": b'{"messages": [{"role": "user", "content": "x"}], "stop": {}}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(server: Running, name: str) -> None:
    for more in (b"", b', "stream": true}'):
        body = BODIES[name][:-1] + more if more and BODIES[name].endswith(b"}") else BODIES[name]
        status, answer = server.ask(
            CHAT, body, headers={"content-type": "application/json", "content-length": str(len(body))}, method="POST"
        )
        assert 400 <= status < 500 and answer["error"]["message"], (status, answer)


FRAMINGS = {
    "garbage": b"\x00\x01\x02\x03\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + b"\0" * 64,
    "no version": b"GET /health\r\n\r\n",
    "HTTP 9": b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n",
    "huge header": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
    "huge path": b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    "length of 10^15": HEAD + b"Content-Length: 1000000000000000\r\n\r\n{",
    "length of 10^30": HEAD + b"Content-Length: " + b"1" * 30 + b"\r\n\r\n{",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n{",
    "length that is a word": HEAD + b"Content-Length: x\r\n\r\n{",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "unknown encoding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    "line with a null": b"GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n",
    "obsolete folding of nothing": b"GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "absolute target": b"GET http://evil.com/health HTTP/1.1\r\nHost: evil.com\r\n\r\n",
    "connect": b"CONNECT evil.com:80 HTTP/1.1\r\nHost: evil.com\r\n\r\n",
    "websocket": b"GET /health HTTP/1.1\r\nHost: evil.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_framings(server: Running, name: str) -> None:
    response = server.head(FRAMINGS[name])
    status = taken_apart(response)[0] if response.startswith(b"HTTP/") else 0
    assert 400 <= status < 500 or (status == 0 and name == "TLS"), response[:200]


def test_a_body_that_is_too_long_is_refused_before_it_is_read(server: Running) -> None:
    response = server.head(HEAD + f"Content-Length: {MOST_BODY + 1}\r\n\r\n".encode())
    assert taken_apart(response)[0] == 413
    chunk = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
    with server.connected() as client, contextlib.suppress(ConnectionError):
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(MOST_BODY // 65536 + 3):
            client.sendall(chunk)
        assert taken_apart(received(client))[0] == 413


def slow_clients(server: Running, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Connections on which a head or a body has begun, or nothing."""
    begun = [stack.enter_context(server.connected()) for _ in range(64)]
    for number, client in enumerate(begun):
        client.sendall((b"GET /heal", HEAD + b"Content-Length: 100\r\n\r\n{", b"")[number % 3])
    return begun


def test_others_are_answered_beside_slow_clients(server: Running) -> None:
    with contextlib.ExitStack() as stack:
        slow_clients(server, stack)
        since = time.monotonic()
        assert server.ask(CHAT, {"messages": user(), "max_tokens": 2})[0] == 200 and time.monotonic() - since < AT_ONCE


def test_slow_clients_lose_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 1.0)
    with running() as server, contextlib.ExitStack() as stack:
        begun = slow_clients(server, stack)
        stop = time.monotonic() + 3
        while time.monotonic() < stop:  # a byte now and then does not help
            for client in begun[:6]:
                with contextlib.suppress(OSError):
                    client.sendall(b"a")
            time.sleep(0.2)
        for client in begun:
            since = time.monotonic()
            answer = received(client)
            assert time.monotonic() - since < SECONDS, "the connection was not closed"
            assert answer == b"" or answer.startswith(b"HTTP/1.1 408") or answer.startswith(b"HTTP/1.1 400")


def test_a_reader_that_stops_reading_loses_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.5)
    with running() as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.address.removeprefix("http://").split(":")
        server.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # which connections inherit
        client.connect((host, int(port)))
        body = json.dumps({"messages": user(), "stream": True, "logprobs": True, "top_logprobs": 20, **LONG}).encode()
        client.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        client.recv(1)
        until(lambda: not server.busy())
        client.settimeout(1)
        assert b"[DONE]" not in received(client)


def test_leaving_in_mid_stream_leaves_nothing_behind(server: Running) -> None:
    body = json.dumps({"messages": user(), "stream": True, **LONG}).encode()
    request = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    for round in range(25):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(server.connected()) for _ in range(4)]
            for client in clients:
                client.sendall(request)
            if round % 2:
                clients[0].recv(100)
    until(lambda: not server.busy())
    until(lambda: not [each for each in threading.enumerate() if each.name == "edgellm-async"])


def test_pings_while_nothing_comes(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)
    body = {"messages": user(), "stream": True, **LONG}
    with contextlib.ExitStack() as stack, slow_steps():
        for _ in range(4):  # all places are taken
            client = stack.enter_context(server.connected())
            data = json.dumps({**body, "max_tokens": 100}).encode()
            client.sendall(HEAD + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        until(lambda: server.busy() == 4)
        _, _, answer = server.exchange(CHAT, {**body, "max_tokens": 2})
    assert b": ping\n\n" in answer and b"[DONE]" in answer


def test_it_stops_in_mid_stream() -> None:
    with running() as server, server.connected() as client, slow_steps():
        data = json.dumps({"messages": user(), "stream": True, **LONG}).encode()
        client.sendall(HEAD + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        client.recv(1000)
        since = time.monotonic()
        server.server.should_exit = True
        rest = received(client)
        assert time.monotonic() - since < AT_ONCE and rest.rstrip().endswith(b"0") and b"data: [DONE]" in rest
