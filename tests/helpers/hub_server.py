"""A hub on this machine that speaks the Hugging Face protocol, and a second server for the bytes; both misbehave on command.

with LocalHub() as hub:
    hub.put("o/r", "model-Q8_0.gguf", data)
    hub.misbehave(cut(1000), status(500))      # the next two answers with bytes; after them all is well
    pull("hf:o/r", hub=Hub(hub.environment()))
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
BOMB = gzip.compress(bytes(10 << 20))  # beforehand: a busy machine needs longer for it than clients wait


@dataclass
class Request:
    """A request to the server."""

    server: str
    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Answer:
    """The byte server's next response, which a misbehaviour changes."""

    status: int
    headers: dict[str, str]
    body: bytes
    pause: float = 0.0  # seconds between pieces of `piece` bytes
    piece: int = 1 << 16
    declared: int | None = None  # Content-Length, if it shall be wrong
    after: Callable[[], None] = field(default=lambda: None)


Misbehaviour = Callable[[Answer, bytes, int], None]  # (answer, the whole file, first byte asked for)


def cut(n: int) -> Misbehaviour:
    """Close the connection after n bytes of the body."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.declared, answer.body = len(answer.body), answer.body[:n]

    return change


def status(code: int, **headers: str) -> Misbehaviour:
    """Another status, without the file."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.status, answer.body, answer.declared = code, b"", None
        answer.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    return change


def redirect(url: str) -> Misbehaviour:
    """Send the client somewhere else."""
    return status(302, Location=url)


def ignore_range(answer: Answer, data: bytes, start: int) -> None:
    """Answer 200 with the whole file."""
    answer.status, answer.body = 200, data
    answer.headers.pop("Content-Range", None)


def wrong_range(answer: Answer, data: bytes, start: int) -> None:
    """A 206 that holds another piece than was asked for."""
    answer.status, answer.body = 206, data[:10]
    answer.headers["Content-Range"] = f"bytes 0-9/{len(data)}"


def corrupt(answer: Answer, data: bytes, start: int) -> None:
    """One bit of the last byte is wrong."""
    answer.body = answer.body[:-1] + bytes([answer.body[-1] ^ 1])


def too_long(answer: Answer, data: bytes, start: int) -> None:
    """More bytes than the file has, without a length."""
    answer.body, answer.declared = answer.body + b"x" * 5000, -1


def lie(n: int) -> Misbehaviour:
    """A Content-Length that is not the file's."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.declared = n

    return change


def compressed(answer: Answer, data: bytes, start: int) -> None:
    """A small body that unpacks to a large one."""
    answer.body = BOMB
    answer.headers["Content-Encoding"] = "gzip"


def web_page(answer: Answer, data: bytes, start: int) -> None:
    """The log-in page of a hotel, with status 200."""
    answer.status, answer.body = 200, b"<html>please log in</html>"


def stall(seconds: float) -> Misbehaviour:
    """Half the body, then silence."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.piece, answer.pause = max(1, len(answer.body) // 2), seconds

    return change


def drip(seconds: float) -> Misbehaviour:
    """A few bytes at a time."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.piece, answer.pause = 7, seconds

    return change


def etag(value: str) -> Misbehaviour:
    """Another ETag than before."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        answer.headers["ETag"] = value

    return change


def both(*changes: Misbehaviour) -> Misbehaviour:
    """Several at once."""

    def change(answer: Answer, data: bytes, start: int) -> None:
        for each in changes:
            each(answer, data, start)

    return change


class LocalHub:
    """The two servers; `requests` is what they were asked, in order."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytes] = {}
        self.listed: dict[str, list[dict[str, Any]]] = {}  # what a listing says in the place of the truth
        self.renamed: dict[str, str] = {}
        self.gated: set[str] = set()
        self.facts: dict[str, str] = {}  # headers of the hub's answers that replace the right ones
        self.hub_failures: list[int] = []  # statuses of the hub's next answers
        self.commit = COMMIT
        self.token: str | None = None
        self.requests: list[Request] = []
        self.etag = '"cdn-1"'
        self._wrong: list[Misbehaviour] = []
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), self._handler(name)) for name in ("hub", "bytes")]

    def put(self, repository: str, path: str, data: bytes) -> str:
        """Publish a file; its sha256."""
        self.files[repository, path] = data
        return hashlib.sha256(data).hexdigest()

    def misbehave(self, *changes: Misbehaviour) -> None:
        """The misbehaviours of the byte server's next responses, one each."""
        self._wrong = list(changes)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def bytes_endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def environment(self, **more: str) -> dict[str, str]:
        """Variables that lead a client here and nowhere else."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HOME": "/nonexistent", **more}

    def asked(self, server: str, method: str = "GET") -> list[Request]:
        """The requests to one of the servers."""
        return [request for request in self.requests if (request.server, request.method) == (server, method)]

    def __enter__(self) -> Self:
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    # --- the hub's answers --------------------------------------------------------------------------------------------
    def hub_answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """Status, headers and body for one request to the hub."""
        if self.hub_failures:
            return Answer(self.hub_failures.pop(0), {}, b"")
        path = unquote(path)
        for old, new in self.renamed.items():
            if f"/{old}/" in path:
                return Answer(307, {"Location": path.replace(old, new, 1)}, b"")
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/?]+)", path):
            return self._api(match[1], match[2], headers)
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match is None:
            return Answer(404, {}, b"")
        repository, revision, file = match.groups()
        if refusal := self._refusal(repository, headers):
            return refusal
        if (repository, file) not in self.files:
            return Answer(404, {"X-Error-Code": "EntryNotFound"}, b"")
        if revision not in ("main", self.commit):
            return Answer(404, {"X-Error-Code": "RevisionNotFound"}, b"")
        data = self.files[repository, file]
        said = {
            "X-Repo-Commit": self.commit,
            "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Linked-Size": str(len(data)),
            "ETag": '"of the redirect"',
            "Location": f"{self.bytes_endpoint}/{repository}/{file}",
        } | self.facts
        return Answer(302, {name: value for name, value in said.items() if value}, b"Found. Redirecting")

    def _refusal(self, repository: str, headers: dict[str, str]) -> Answer | None:
        if not any(known == repository for known, _ in self.files) and repository not in self.listed:
            return Answer(401 if "authorization" not in headers else 404, {"X-Error-Code": "RepoNotFound"}, b"")
        if repository in self.gated and (self.token is None or headers.get("authorization") != f"Bearer {self.token}"):
            return Answer(403 if "authorization" in headers else 401, {"X-Error-Code": "GatedRepo"}, b"")
        return None

    def _api(self, repository: str, kind: str, headers: dict[str, str]) -> Answer:
        if refusal := self._refusal(repository, headers):
            return refusal
        if kind == "revision":
            return Answer(200, {}, json.dumps({"sha": self.commit}).encode())
        own = {path: data for (owner, path), data in self.files.items() if owner == repository}
        truth = [
            {"type": "file", "path": path, "size": len(data), "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
            for path, data in own.items()
        ]
        return Answer(200, {}, json.dumps(self.listed.get(repository, [{"type": "directory", "path": "d"}, *truth])).encode())

    # --- the other host's -----------------------------------------------------------------------------------------------
    def bytes_answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        """Part of a file, and what is wrong with it today."""
        owner, name, file = unquote(path).strip("/").split("/", 2)
        data = self.files.get((f"{owner}/{name}", file))
        if data is None:
            return Answer(404, {}, b"")
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        start = int(match[1]) if match else 0
        end = min(len(data), int(match[2]) + 1) if match and match[2] else len(data)
        if headers.get("if-range", self.etag) != self.etag:
            match, start, end = None, 0, len(data)
        if match and start >= len(data):
            return Answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
        answer = Answer(206 if match else 200, {"ETag": self.etag}, data[start:end])
        if match:
            answer.headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        if self._wrong:
            self._wrong.pop(0)(answer, data, start)
        return answer

    def _handler(self, name: str) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {key.lower(): value for key, value in self.headers.items()}
                hub.requests.append(Request(name, self.command, self.path, headers))
                answer = (hub.hub_answer if name == "hub" else hub.bytes_answer)(self.command, urlsplit(self.path).path, headers)
                self.send_response(answer.status)
                length = len(answer.body) if answer.declared is None else answer.declared
                if length >= 0:
                    answer.headers.setdefault("Content-Length", str(length))
                for key, value in answer.headers.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "HEAD":
                    return
                try:
                    for first in range(0, len(answer.body), answer.piece):
                        self.wfile.write(answer.body[first : first + answer.piece])
                        self.wfile.flush()
                        time.sleep(answer.pause)
                    answer.after()
                except OSError:
                    pass  # the client has had enough

            do_HEAD = do_GET

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler
