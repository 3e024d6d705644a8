"""HTTP as downloads need it: plain bytes, a limit on silence, and redirects that are looked at before they are followed.

Built on http.client, because every hop must be checked: its scheme, the address it really led to, and whether the token may go
there. huggingface_hub hides its hops, and has changed its HTTP library twice within the range of versions that we accept.
"""
from __future__ import annotations

import base64
import http.client
import ipaddress
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from edgellm.errors import DownloadError

BLOCK = 1 << 18                                  # bytes asked for at a time
LEAST = 4096                                     # bytes that must come within the limit on silence: 1 byte a second is a stall
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of silence that are borne, seconds for connecting, redirects followed, tries, and the first pause between them."""

    silence: float = 30.0
    connect: float = 10.0
    redirects: int = 5
    tries: int = 6
    pause: float = 1.0


class Response:
    """An answer whose body is read in blocks. Use as a context manager."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, url: str, limits: Limits) -> None:
        self.status, self.headers, self.url = answer.status, answer.headers, url
        self._connection, self._answer, self._limits = connection, answer, limits
        self._since, self._bytes = time.monotonic(), 0

    def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises Interrupted where the connection fails, falls silent, or only drips."""
        try:
            block = self._answer.read1(BLOCK)
        except TimeoutError as error:
            raise Interrupted(f"nothing came for {self._limits.silence:g} seconds") from error
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(f"the connection broke off ({_reason(error)})") from error
        self._bytes += len(block)
        if (now := time.monotonic()) - self._since > self._limits.silence:
            if self._bytes < LEAST and block:
                raise Interrupted(f"only {self._bytes} bytes came in {self._limits.silence:g} seconds")
            self._since, self._bytes = now, 0
        return block

    def text(self, most: int) -> bytes:
        """The whole body. Raises DownloadError over `most` bytes."""
        body = bytearray()
        while block := self.read():
            body += block
            if len(body) > most:
                raise DownloadError(f"{self.url} answered with more than {most} bytes, as no hub does; check HF_ENDPOINT")
        return bytes(body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()


def request(method: str, url: str, headers: Mapping[str, str], *, home: str, limits: Limits, final: str | None = None) -> Response:
    """Send a request and follow redirects. With `final`, a header's name: not beyond an answer that has it, nor off the server.

    `home`: the endpoint that the user chose; `Authorization` is sent to it alone. Raises Interrupted for what may pass, and
    DownloadError for hops that are never followed: other schemes, unencrypted or private addresses that home is not.
    """
    own = _origin(_split(home, home))
    for _ in range(limits.redirects + 1):
        parts = _split(url, home)
        _check_scheme(parts, url, own)
        if _is_address(parts.hostname or ""):
            _check_address(parts.hostname or "", parts, own)
        allowed = {k: v for k, v in headers.items() if k.lower() != "authorization" or _origin(parts) == own}
        response = _send(method, parts, url, allowed, own, limits)
        target = response.headers.get("Location")
        if response.status not in REDIRECTS or not target:
            return response
        if final and (final in response.headers or _origin(_split(target, home, base=url)) != _origin(parts)):
            return response
        with response:
            url = _split(target, home, base=url).geturl()
    raise DownloadError(f"{home} redirects more than {limits.redirects} times; try again later")


def _send(method: str, parts: SplitResult, url: str, headers: Mapping[str, str], own: tuple[str, str, int],
          limits: Limits) -> Response:
    connection, path, proxied = _connection(parts, limits)
    try:
        connection.connect()
        if not proxied:
            _check_address(connection.sock.getpeername()[0], parts, own)
        connection.sock.settimeout(limits.silence)
        connection.request(method, path, headers={"Accept-Encoding": "identity", "User-Agent": AGENT, **headers})
        return Response(connection, connection.getresponse(), url, limits)
    except ssl.SSLCertVerificationError as error:
        connection.close()
        raise DownloadError(f"{parts.hostname} has no valid certificate ({error.verify_message}); check the date of this machine, "
                            "or the proxy in between (SSL_CERT_FILE names more authorities)") from error
    except TimeoutError as error:
        connection.close()
        raise Interrupted(f"{parts.hostname} does not answer") from error
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise Unreachable(f"{parts.hostname} cannot be reached ({_reason(error)})") from error
    except BaseException:
        connection.close()
        raise


def _connection(parts: SplitResult, limits: Limits) -> tuple[http.client.HTTPConnection, str, bool]:
    """A connection that is not open yet, the target to ask it for, and whether it leads to a proxy of the environment."""
    host, port = parts.hostname or "", parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        return kind(host, port, timeout=limits.connect), path, False
    through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    credentials = f"{unquote(through.username)}:{unquote(through.password or '')}" if through.username else ""
    extra = {"Proxy-Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()} if credentials else {}
    connection = kind(through.hostname or "", through.port or 8080, timeout=limits.connect)
    connection.set_tunnel(host, port or (443 if parts.scheme == "https" else 80), extra)
    return connection, path, True


def _split(url: str, home: str, *, base: str = "") -> SplitResult:
    """A web address taken apart. Raises DownloadError for one that is none, or that has more than plain letters in it."""
    try:
        whole = urljoin(base, url) if base else url
        if not (whole.isascii() and whole.isprintable()) or " " in whole:
            raise ValueError(whole)
        return urlsplit(whole)
    except ValueError as error:
        raise DownloadError(f"{home} leads to {url[:200]!r}, which is no address; check HF_ENDPOINT") from error


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, (parts.hostname or "").lower(), port or (443 if parts.scheme == "https" else 80)


def _check_scheme(parts: SplitResult, url: str, own: tuple[str, str, int]) -> None:
    """Encrypted always; unencrypted only the home that the user chose, or from such a home to this very machine."""
    plain = parts.scheme == "http" and own[0] == "http" and (_origin(parts) == own or _is_loopback(parts.hostname or ""))
    if not parts.hostname or _origin(parts)[2] < 0 or not (parts.scheme == "https" or plain):
        raise DownloadError(f"{own[1]} redirects to {url[:200]!r}, which edgellm does not follow: only https addresses are; "
                            "check HF_ENDPOINT")


def _check_address(address: str, parts: SplitResult, own: tuple[str, str, int]) -> None:
    """Nobody's redirect may reach into the user's own network: only the home itself may be there."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if _origin(parts) == own or ip.is_global or (ip.is_loopback and own[0] == "http" and _is_loopback(own[1])):
        return
    raise DownloadError(f"{own[1]} redirects to {parts.hostname} ({address}), an address inside a private network, which edgellm "
                        "does not follow; check HF_ENDPOINT")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "its name is unknown here: is there a connection to the internet?"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
