"""Valid requests of every endpoint, changed at random: each is answered or refused in the error shape of its own protocol."""

from __future__ import annotations

import copy
import gzip
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from seeds import seed
from serving import SECONDS, Running, running, until
from test_server_odd_bodies import BODIES

LIMITS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "n_predict"}  # large ones are long answers
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63) - 1, 1e308, 10**400, "", " ", "0", "1e3", "NaN", "\0", "a\0b", "\u202e",
    "x" * 5000, "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "<|im_end|>", "{{ 7 * 7 }}", "%s%n", [], {}, [[]], [None],
    {"": ""}, {"type": "text"}, {"type": "text", "text": 3}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}},
    {"$ref": "#"}, {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, ["user"] * 200,
)  # fmt: skip
RAW = (
    b"NaN", b"-Infinity", b"1e999", b"1" * 5000, b'"\\ud800"', b'"\xff"', b"[" * 80 + b"]" * 80, b"00", b"'x'", b"", b"\\u0000",
    b'{"a":1,"a":2}',
)  # fmt: skip
PLACE = "@@place@@"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all parts of a value."""
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(child, (*path, key))


def changed(body: Any, draw: random.Random) -> bytes:
    """A body with one to three changes: other values, parts that are missing, moved or unknown, and JSON that is none."""
    body, raw = copy.deepcopy(body), None
    for _ in range(draw.randint(1, 3)):
        path = draw.choice([path for path in places(body) if path])
        parent = body
        for key in path[:-1]:
            parent = parent[key]
        match draw.randint(0, 5):
            case 0:
                del parent[path[-1]]
            case 1 if isinstance(parent, dict):
                parent[draw.choice(("model", "stream", "tools", "format", "zz", "\0", "__class__", "n"))] = copy.deepcopy(
                    draw.choice(ODD)
                )
            case 2:
                parent[path[-1]] = copy.deepcopy(draw.choice([*draw.choice(list(BODIES.values())).values()]))
            case 3 if raw is None:
                parent[path[-1]], raw = PLACE, draw.choice(RAW)
            case _:
                parent[path[-1]] = copy.deepcopy(draw.choice(ODD))
        if not body:
            break
    _limit(body)
    data = json.dumps(body, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    if raw is not None:
        data = data.replace(f'"{PLACE}"'.encode(), raw)
    if draw.random() < 0.1:
        at = draw.randrange(len(data))
        data = draw.choice((data[:at], data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :], data + data[at:]))
    return data


def _limit(value: Any) -> None:
    """No long answers: a limit of tokens is small or no number."""
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in LIMITS and isinstance(child, int | float) and not -1 < child < 9:
            value[key] = 3
        _limit(child)


HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"content-type": "application/json; charset=utf-16"}, {"content-type": "text/plain"},
    {"content-encoding": "gzip"}, {"x-priority": "\x01"},
    {"accept": "text/html"}, {"cookie": "a=b; " * 50}, {"expect": "100-continue"}, {"x-priority": "background"},
    {"anthropic-version": "2023-06-01"}, {"authorization": "Basic xyz"}, {"upgrade": "h2c", "connection": "upgrade"},
)  # fmt: skip


def check_error(path: str, headers: dict[str, str], answer: Any) -> None:
    """An error in the shape of its protocol."""
    if path.startswith("/v1/messages") or "anthropic-version" in headers:
        assert answer["type"] == "error" and answer["error"]["type"].endswith("_error") and answer["error"]["message"]
    elif path.startswith("/api/"):
        assert isinstance(answer["error"], str) and answer["error"]
    else:
        assert answer["error"]["message"] and answer["error"]["type"] and "code" in answer["error"]


def attack(server: Running, draw: random.Random, n: int) -> dict[int, int]:
    """Statuses of `n` changed requests, and how often each came."""
    place, statuses = urlsplit(server.address), dict[int, int]()
    client = http.client.HTTPConnection(place.hostname or "", place.port, timeout=SECONDS)
    for _ in range(n):
        path, headers = draw.choice(list(BODIES)), dict(draw.choice(HEADERS))
        body = changed(BODIES[path], draw)
        if headers.get("content-encoding"):
            body = gzip.compress(body)
        client.request("POST", path, body, {"content-type": "application/json", **headers})
        response = client.getresponse()
        text = response.read().decode()
        statuses[response.status] = statuses.get(response.status, 0) + 1
        shown = (path, headers, body[:2000], response.status, text[:500])
        assert 200 <= response.status < 300 or 400 <= response.status < 500, shown
        assert "Traceback" not in text and (response.status == 200 or "failed to answer" not in text), shown
        if response.status >= 400:
            check_error(path, headers, json.loads(text))
    client.close()
    return statuses


@pytest.fixture(scope="module")
def short() -> Iterator[Running]:
    with running(max_tokens=2) as server:
        yield server


@pytest.mark.parametrize("n", [400, pytest.param(6000, marks=pytest.mark.slow)])
def test_changed_requests(short: Running, n: int) -> None:
    statuses = attack(short, random.Random(seed(5700 + n)), n)
    assert statuses[200] > n // 20 and statuses[400] > n // 4, statuses
    until(lambda: not short.busy())
