"""The ASGI application: its routes, what becomes of errors, and a log line for each request, without its content."""

from __future__ import annotations

import logging
import secrets
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgellm import EdgeError, __version__
from edgellm.server import anthropic, llama_cpp, ollama, openai, page_tools, responses, static
from edgellm.server.answers import Notes
from edgellm.server.bodies import ClientGone
from edgellm.server.guards import Guards
from edgellm.server.mcp import McpTools
from edgellm.server.metrics import Metrics
from edgellm.server.models import Models
from edgellm.server.problems import Problem, problem_of
from edgellm.server.routing import Endpoint, Routes, path_of
from edgellm.server.settings import Settings

log = logging.getLogger("edgellm.server")
VERSION_OF_ANTHROPIC = b"anthropic-version"  # a header that its clients send
GONE = 499  # as nginx logs clients that left
MOST_PATH = 80  # characters of a path in the log
SHAPES = (  # of errors, by the beginning of the path; the last that fits
    ("", openai.problem_body),
    ("/v1/messages", anthropic.problem_body),
    ("/api/", ollama.problem_body),
)


def create_app(models: Models, settings: Settings, tools: McpTools | None = None) -> ASGIApp:
    """The server as an ASGI application. Its caller starts and closes `models`, and the `tools` that its page offers."""
    metrics = Metrics(models)
    found: Routes = [("GET", "/health", _health), ("GET", "/v1/health", _health), *static.routes()]
    public = [path for _, path, _ in found]
    found += [("GET", "/metrics", metrics.answer), *page_tools.routes(tools)]
    for protocol in (openai, responses, anthropic, ollama, llama_cpp):
        found += protocol.routes(models, settings)
    routes = [Route(path, _answered(endpoint), methods=[method]) for method, path, endpoint in found]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})
    app.router.redirect_slashes = False
    return Logged(Guards(app, settings, respond, frozenset(public)), metrics)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok", "version": __version__})


def respond(scope: Scope, problem: Problem) -> Response:
    """A problem in the words of the protocol that a request belongs to."""
    shape = [shape for prefix, shape in SHAPES if scope["path"].startswith(prefix)][-1]
    if any(name == VERSION_OF_ANTHROPIC for name, _ in scope["headers"]):
        shape = anthropic.problem_body
    return JSONResponse(shape(problem), problem.status, problem.headers)


def _answered(endpoint: Endpoint) -> Endpoint:
    """The endpoint, whose errors become responses."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientGone:
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                log.error("%s failed", request.url.path[:MOST_PATH], exc_info=None if isinstance(error, EdgeError) else error)
            return respond(request.scope, problem)

    return call


async def _unknown(request: Request, error: Exception) -> Response:
    """A path or method that no route has."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    message = "this server has no such path" if status == 404 else "this path does not take the method"
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    code = "not_found" if status == 404 else "method_not_allowed"
    return respond(request.scope, Problem(status, f"{message}.", code=code, headers=headers))


def _identity(scope: Scope) -> list[tuple[bytes, bytes]]:
    """A new id for a request, under the names that clients look for."""
    identity = f"req_{secrets.token_hex(12)}".encode()
    return [(b"x-request-id", identity), (b"request-id", identity)] if scope["path"].startswith("/v1/") else []


class Logged:
    """Writes a line for each request and counts it; endpoints add what they know in `scope["notes"]`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "path": path_of(scope["path"])}
        since, status, notes = time.monotonic(), 0, Notes()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *_identity(scope)]}
            await send(message)

        try:
            await self._app({**scope, "notes": notes}, receive, sending)
        except ClientGone:
            status = GONE
        finally:
            path = ascii(scope["path"])[1:-1][:MOST_PATH]
            log.info("%s %s %d %.3fs%s", scope["method"], path, status, time.monotonic() - since, notes)
            self._metrics.add(status, notes)
