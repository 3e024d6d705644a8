"""Refuses requests of foreign hosts, foreign web pages and strangers before anything else looks at them."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from edgellm.server.bodies import too_long
from edgellm.server.forms import MULTIPART, TAKES_FORMS
from edgellm.server.problems import Problem
from edgellm.server.settings import MOST_BODY, MOST_HEADERS, Settings
from edgellm.server.unsupported import check_supported

Respond = Callable[[Scope, Problem], Response]
FORM = "application/x-www-form-urlencoded"  # what curl -d sends


class Guards:
    """Host (against DNS rebinding), Origin (against other web pages), key, type and length of the body, in this order."""

    def __init__(self, app: ASGIApp, settings: Settings, respond: Respond, public: Collection[str]) -> None:
        """`public`: paths that need no key."""
        self._app, self._settings, self._respond, self._public = app, settings, respond, public
        self._key = settings.api_key.encode() if settings.api_key else None
        name = socket.gethostname().lower()
        self._names = frozenset({"localhost"} if settings.is_local else {"localhost", name, f"{name}.local", settings.host.lower()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        origin = headers.get("origin")
        try:
            _check_head(scope)
            self._check_host(headers)
            foreign = self._check_origin(headers)
            if scope["method"] == "OPTIONS" and foreign:
                response = Response(status_code=204, headers=_preflight(headers))
            else:
                self._check_key(headers, path, scope["method"])
                check_supported(path)
                _check_body(headers, path, scope["method"])
                await self._app(scope, receive, _with_origin(send, origin) if foreign and origin else send)
                return
        except Problem as problem:
            foreign = origin is not None and origin in self._settings.origins
            response = self._respond(scope, problem)
        await response(scope, receive, _with_origin(send, origin) if foreign and origin else send)

    def _check_host(self, headers: Headers) -> None:
        """Only addresses and names of this machine: a name that a page's owner points here is refused."""
        host = headers.get("host", "").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        try:
            address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
            known = address.is_loopback or not self._settings.is_local
        except ValueError:
            known = name in self._names or any(_host_of(origin) == host for origin in self._settings.origins)
        if not known:
            raise Problem(403, "the Host header does not name this server; use its address or localhost.", code="forbidden_host")

    def _check_origin(self, headers: Headers) -> bool:
        """True if another page's request is allowed. Raises Problem where it is not."""
        origin = headers.get("origin")
        if len(headers.getlist("origin")) > 1:
            raise Problem(400, "the request has several Origin headers.", code="bad_request")
        if origin is None:
            if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
                raise Problem(403, "web pages of other sites may not use this server.", code="forbidden_origin")
            return False
        if origin.lower() in {f"{scheme}://{headers.get('host', '').lower()}" for scheme in ("http", "https")}:
            return False
        if origin in self._settings.origins or "*" in self._settings.origins:
            return True
        raise Problem(
            403,
            "the web page's Origin is not allowed; start the server with --allow-origin and the page's address if you trust it.",
            code="forbidden_origin",
        )

    def _check_key(self, headers: Headers, path: str, method: str) -> None:
        if self._key is None or (path in self._public and method in ("GET", "HEAD")):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        keys = (given.strip() if scheme.lower() == "bearer" else "", headers.get("x-api-key", ""))
        if not any(hmac.compare_digest(key.encode("utf-8", "replace"), self._key) for key in keys):
            raise Problem(401, "the API key is missing or wrong.", code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _check_head(scope: Scope) -> None:
    """A head that came in one piece is read by h11 whatever its length is."""
    if scope["http_version"] not in ("1.0", "1.1"):
        raise Problem(400, "the HTTP version must be 1.1.", code="bad_request")
    length = (
        len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    )
    if length > MOST_HEADERS:
        close = {"connection": "close"}
        raise Problem(431, f"the request's head is longer than {MOST_HEADERS >> 10} KiB.", code="bad_request", headers=close)


def _check_body(headers: Headers, path: str, method: str) -> None:
    """JSON alone, which a web page cannot send without asking first; beneath /api also what `curl -d` calls its JSON. Forms where
    there is a use for them."""
    if method not in ("POST", "DELETE", "PUT", "PATCH"):
        return
    length = headers.get("content-length", "0")
    if "transfer-encoding" not in headers and length == "0":
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    curl = path.startswith("/api/") and kind in ("", FORM) and "sec-fetch-site" not in headers
    wanted = MULTIPART if path in TAKES_FORMS else "application/json"
    if kind != wanted and not curl:
        raise Problem(415, f"the Content-Type must be {wanted}.", code="unsupported_media_type")
    if (packed := headers.get("content-encoding", "identity").lower()) != "identity":
        message = f"the Content-Encoding {packed[:40]!r} isn't supported; send the body as it is."
        raise Problem(415, message, code="unsupported_media_type")
    if not length.isdecimal() or len(length) > 18 or int(length) > MOST_BODY:
        raise too_long()


def _host_of(origin: str) -> str:
    return origin.partition("://")[2].lower()


def _preflight(headers: Headers) -> dict[str, str]:
    wanted = headers.get("access-control-request-headers", "")
    return {
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": wanted if wanted.isprintable() else "",
        "access-control-max-age": "600",
    }


def _with_origin(send: Send, origin: str) -> Send:
    """Lets the page of an allowed origin read the answer."""

    async def sending(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            more = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
            message = {**message, "headers": [*message.get("headers", ()), *more]}  # type: ignore[misc]  # a list of pairs
        await send(message)

    return sending  # type: ignore[return-value]  # Message is a mutable mapping
