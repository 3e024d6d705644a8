"""HTTP as downloads need it: plain bytes, a limit on silence, and redirects that are looked at before they are followed.

Built on http.client, because every hop must be checked: its scheme, the address it really led to, and whether the token may go
there. huggingface_hub hides its hops, and has changed its HTTP library twice within the range of versions that we accept.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, cast
from urllib.parse import SplitResult, urljoin, urlsplit

from edgellm.catalogue.connection import HttpAnswer, HttpLimits, Origin, check_address, connected, is_loopback, numeric, origin
from edgellm.errors import DownloadError

BLOCK = 1 << 18  # bytes asked for at a time
LEAST = 4096  # bytes of the file that must come while we wait as long as silence is borne
TEXT_SILENCES = 4  # a whole listing must come in as many times the limit on silence
AGENT = "edgellm"
REDIRECTS = (301, 302, 303, 307, 308)


class Interrupted(Exception):
    """A connection that failed in a way that another try may mend; `wait`: seconds that the server asks for."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


class Unreachable(Interrupted):
    """No connection came about: there is no network here, or no such server."""


class OutOfRange(Interrupted):
    """The server has no bytes at the place that was asked for: its file is shorter than what is here."""


class Response:
    """An answer whose body is read in blocks. Use as a context manager."""

    def __init__(self, connection: http.client.HTTPConnection, answer: HttpAnswer, url: str, limits: HttpLimits) -> None:
        self.status, self.headers, self.url = answer.status, answer.headers, url
        self._connection, self._answer, self._limits = connection, answer, limits
        self._seconds, self._bytes = limits.silence, 0  # seconds that we still wait for the next LEAST bytes
        answer.watched.most = float("inf")

    def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises Interrupted where the connection fails, falls silent, or only drips.

        What is wrapped around the file (chunk sizes and their extensions, trailers) counts as silence.
        """
        start = time.monotonic()
        self._answer.watched.deadline = start + self._seconds
        try:
            block = self._answer.read1(BLOCK)
        except TimeoutError as error:
            came = f"only {self._bytes} bytes" if self._bytes else "nothing"
            raise Interrupted(f"{came} came in {self._limits.silence:g} seconds") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Interrupted(f"the connection broke off ({_reason(error)})") from error
        self._bytes += len(block)
        self._seconds -= time.monotonic() - start
        if self._bytes >= LEAST:
            self._seconds, self._bytes = self._limits.silence, 0
        return block

    def text(self, most: int) -> bytes:
        """The body. Raises DownloadError over `most` bytes, and Interrupted as `read` does."""
        body, end = bytearray(), time.monotonic() + TEXT_SILENCES * self._limits.silence
        while block := self.read():
            body += block
            if time.monotonic() > end:
                raise Interrupted(f"only {len(body)} bytes came in {TEXT_SILENCES * self._limits.silence:g} seconds")
            if len(body) > most:
                raise DownloadError(f"{self.url} answered with more than {most} bytes, as no hub does; check HF_ENDPOINT")
        if self._answer.length:  # of Content-Length: what has not come
            raise Interrupted("the connection ended too early")
        return bytes(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()


def request(
    method: str, url: str, headers: Mapping[str, str], *, endpoint: str, limits: HttpLimits, final: str | None = None
) -> Response:
    """Send a request and follow redirects. With `final`, a header's name: not beyond an answer that has it, nor off the server.

    `endpoint`: the address that the user chose; `Authorization` is sent to it alone. Raises Interrupted for what may pass, and
    DownloadError for hops that are never followed: other schemes, unencrypted or private addresses that endpoint is not.
    """
    own = origin(_split(endpoint, endpoint))
    for _ in range(limits.redirects + 1):
        parts = _split(url, endpoint)
        _check_scheme(parts, url, own)
        if (spelled := numeric(parts.hostname or "")) is not None:
            check_address(spelled, parts, own)
        allowed = {k: v for k, v in headers.items() if k.lower() != "authorization" or origin(parts) == own}
        response = _send(method, parts, url, allowed, own, limits)
        target = response.headers.get("Location")
        if response.status not in REDIRECTS or not target:
            return response
        if final and (final in response.headers or origin(_split(target, endpoint, base=url)) != origin(parts)):
            return response
        with response:
            url = _split(target, endpoint, base=url).geturl()
    raise DownloadError(f"{endpoint} redirects more than {limits.redirects} times; try again later")


def _send(method: str, parts: SplitResult, url: str, headers: Mapping[str, str], own: Origin, limits: HttpLimits) -> Response:
    connection: http.client.HTTPConnection | None = None
    try:
        connection, path = connected(parts, own, limits)
        connection.sock.settimeout(limits.silence)
        connection.request(method, path, headers={"Accept-Encoding": "identity", "User-Agent": AGENT, **headers})
        return Response(connection, cast(HttpAnswer, connection.getresponse()), url, limits)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"{parts.hostname} has no valid certificate ({error.verify_message}); check the date of this "
                "machine, or the proxy in between (SSL_CERT_FILE names more authorities)"
            ) from error
        if isinstance(error, TimeoutError):
            raise Interrupted(f"{parts.hostname} does not answer") from error
        if isinstance(error, OSError | http.client.HTTPException | UnicodeError):  # UnicodeError: a name that is too long
            raise Unreachable(f"can't reach {parts.hostname} ({_reason(error)})") from error
        raise


def _split(url: str, endpoint: str, *, base: str = "") -> SplitResult:
    """A parsed web address. Raises DownloadError for one that is none, or that has more than plain letters in it."""
    try:
        target = urljoin(base, url) if base else url
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise ValueError(target)
        return urlsplit(target)
    except ValueError as error:
        raise DownloadError(f"{endpoint} leads to {url[:200]!r}, which is not an address; check HF_ENDPOINT") from error


def _check_scheme(parts: SplitResult, url: str, own: Origin) -> None:
    """Encrypted always; unencrypted only the endpoint that the user chose, or from such an endpoint to this very machine."""
    plain = parts.scheme == "http" and own[0] == "http" and (origin(parts) == own or is_loopback(parts.hostname or ""))
    if not parts.hostname or origin(parts)[2] < 0 or not (parts.scheme == "https" or plain):
        raise DownloadError(
            f"{own[1]} redirects to {url[:200]!r}, which edgellm does not follow: only https addresses are; check HF_ENDPOINT"
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "DNS lookup failed"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
