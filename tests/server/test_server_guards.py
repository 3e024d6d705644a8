"""Access to the server: foreign hosts, web pages and strangers are refused before anything is done for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from serving import Running, running, taken_apart, user

from edgellm import OptionError
from edgellm.server.settings import Settings

PATHS = ["/health", "/v1/models", "/v1/chat/completions", "/nope", "/"]
BODY = {"messages": user(), "max_tokens": 1}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:11535", "127.0.0.1.evil.com", "8.8.8.8", "localhost.evil.com", "[::2]:80", " "]
)
def test_foreign_hosts(server: Running, host: str, path: str) -> None:
    assert server.ask(path, headers={"host": host})[0] in (400, 403)


@pytest.mark.parametrize(
    "host",
    [
        "evil@localhost",
        "localhost.",
        "localhost, evil.com",
        "localhost:80:80",
        "2130706433",
        "0177.0.0.1",
        "0.0.0.0",
        "[fe80::1%25eth0]",
    ],
)
def test_other_spellings_of_hosts(server: Running, host: str) -> None:
    assert server.ask("/health", headers={"host": host})[0] in (400, 403)


def test_several_origins(server: Running) -> None:
    head = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.com\r\nConnection: close"
    assert taken_apart(server.send(f"{head}\r\n\r\n".encode()))[0] == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.2:5", "[::1]:11535"])
def test_hosts_of_this_machine(server: Running, host: str) -> None:
    assert server.ask("/health", headers={"host": host})[0] == 200


@pytest.mark.parametrize("path, origin", list(product(PATHS, ["http://evil.com", "null", "http://localhost:3000", "file://", "x"])))
def test_foreign_pages(server: Running, path: str, origin: str) -> None:
    status, headers, _ = server.exchange(path, BODY if path == CHAT else None, headers={"origin": origin})
    assert status == 403 and "access-control-allow-origin" not in headers
    status, headers, _ = server.exchange(
        path, method="OPTIONS", headers={"origin": origin, "access-control-request-method": "POST"}
    )
    assert status == 403 and "access-control-allow-origin" not in headers


def test_requests_without_origin_of_foreign_pages(server: Running) -> None:
    assert server.ask("/v1/models", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})[0] == 403
    assert server.ask("/health", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})[0] == 200


def test_its_own_page(server: Running) -> None:
    assert server.ask("/health", headers={"origin": server.address})[0] == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
def test_bodies_of_other_types(server: Running, kind: str) -> None:
    assert server.ask(CHAT, BODY, headers={"content-type": kind})[0] == 415


def test_bodies_that_are_compressed(server: Running) -> None:
    status, answer = server.ask(CHAT, BODY, headers={"content-encoding": "gzip"})
    assert status == 415 and "Content-Encoding 'gzip'" in answer["error"]["message"]


def test_allowed_origins() -> None:
    with running(origins=frozenset({"http://localhost:3000"})) as server:
        origin = {"origin": "http://localhost:3000"}
        status, headers, _ = server.exchange(CHAT, BODY, headers=origin)
        assert status == 200 and headers["access-control-allow-origin"] == origin["origin"]
        asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        status, headers, _ = server.exchange(CHAT, method="OPTIONS", headers=asked)
        assert status == 204 and headers["access-control-allow-headers"] == "content-type"
        assert server.exchange("/v1/models", headers={"origin": "http://localhost:3001"})[0] == 403


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with running(api_key="s3cret-key") as server:
        yield server


@pytest.mark.parametrize(
    "given", [{}, {"authorization": "Bearer s3cret"}, {"x-api-key": ""}, {"authorization": "Basic s3cret-key"}]
)
def test_strangers(locked: Running, given: dict[str, str]) -> None:
    for path in ("/v1/models", "/nope"):
        status, body = locked.ask(path, headers=given)
        assert status == 401 and body["error"]["code"] == "invalid_api_key"
    assert locked.ask("/health")[0] == 200


@pytest.mark.parametrize("given", [{"authorization": "Bearer s3cret-key"}, {"x-api-key": "s3cret-key"}])
def test_friends(locked: Running, given: dict[str, str]) -> None:
    assert locked.ask("/v1/models", headers=given)[0] == 200


def test_other_machines_need_a_key() -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "my-machine"):
        with pytest.raises(OptionError, match="--api-key"):
            Settings(host=host)
    assert not Settings(host="0.0.0.0", api_key="key").is_local and Settings(host="::1").is_local


def test_a_port_that_is_taken(server: Running) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(OptionError, match=f"--port {port} cannot be used"), running(port=port):
        pass
