"""Connections to servers that may mean harm: addresses are looked at before anything is sent, and answers must come in time."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import ipaddress
import socket
import time
import urllib.request
from dataclasses import dataclass
from typing import Any  # http.client's own arguments, handed on
from urllib.parse import SplitResult, unquote, urlsplit

from edgellm.errors import DownloadError

HEADER_BYTES = 256 << 10  # of one answer, `100 Continue` before it included
ADDRESSES = 6  # of one name that are tried
NAT64 = ipaddress.ip_network("64:ff9b::/96")

Origin = tuple[str, str, int]  # scheme, host, port
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Seconds of silence that are borne, seconds for connecting, redirects followed, tries, and the first pause between them."""

    silence: float = 30.0
    connect: float = 10.0
    redirects: int = 5
    tries: int = 6
    pause: float = 1.0


class Watched(io.RawIOBase):
    """The bytes from a socket until `deadline` (of time.monotonic), and no more than `most` bytes."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket, seconds: float) -> None:
        self.deadline, self.most = time.monotonic() + seconds, float(HEADER_BYTES)
        self._raw, self._socket = raw, connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # Any: typeshed's WriteableBuffer exists for type checkers only
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)
        count = self._raw.readinto(buffer)
        self.most -= count or 0
        if self.most < 0:
            raise http.client.HTTPException(f"its header is longer than {HEADER_BYTES} bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class HttpAnswer(http.client.HTTPResponse):
    """A response whose header must be complete within `seconds`."""

    def __init__(self, connection: socket.socket, *arguments: Any, seconds: float, **options: Any) -> None:
        super().__init__(connection, *arguments, **options)
        self.watched = Watched(self.fp.detach(), connection, seconds)  # a BufferedReader's
        self.fp = io.BufferedReader(self.watched)


def connected(parts: SplitResult, own: Origin, limits: HttpLimits) -> tuple[http.client.HTTPConnection, str]:
    """An open connection, through the proxy of the environment where there is one, and the target to ask it for.

    Raises DownloadError for an address that only `own` may have; OSError, UnicodeError and HTTPException as sockets do.
    """
    host, port = parts.hostname or "", parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        connection = kind(host, port, timeout=limits.connect)
    else:
        if (spelled := numeric(host)) is not None:  # names are the proxy's to look up
            check_address(spelled, parts, own)
        through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        credentials = f"{unquote(through.username)}:{unquote(through.password or '')}" if through.username else ""
        extra = {"Proxy-Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()} if credentials else {}
        connection = kind(through.hostname or "", through.port or 8080, timeout=limits.connect)
        connection.set_tunnel(host, port or (443 if parts.scheme == "https" else 80), extra)
        parts, own = through, origin(through)  # the user's own choice, wherever it is
    # http.client's hook for making its socket, and for reading what it gets
    connection._create_connection = functools.partial(_socket_to, parts, own)  # type: ignore[attr-defined]  # no stub has it
    connection.response_class = functools.partial(HttpAnswer, seconds=limits.silence)  # type: ignore[assignment]  # it is only called
    try:
        connection.connect()
    except BaseException:
        connection.close()
        raise
    return connection, path


def _socket_to(
    parts: SplitResult, own: Origin, address: tuple[str, int], timeout: float, source_address: object = None
) -> socket.socket:
    """As socket.create_connection, within `timeout` in all, to addresses that were looked at."""
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[:ADDRESSES]
    for *_, target in found:
        check_address(ipaddress.ip_address(target[0]), parts, own)
    deadline = time.monotonic() + timeout
    fault: OSError = TimeoutError("timed out")
    for i, (family, kind, protocol, _, target) in enumerate(found):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(max(0.01, (deadline - time.monotonic()) / (len(found) - i)))
            made.connect(target)
            made.settimeout(timeout)
            return made
        except OSError as error:
            made.close()
            fault = error
    raise fault


def check_address(ip: Address, parts: SplitResult, own: Origin) -> None:
    """Nobody's redirect may reach into the user's own network: only the endpoint itself may be there."""
    inner = _inner(ip)
    if origin(parts) == own or (inner.is_global and not inner.is_multicast):
        return
    if inner.is_loopback and own[0] == "http" and is_loopback(own[1]):
        return
    raise DownloadError(
        f"{own[1]} redirects to {parts.hostname} ({ip}), an address inside a private network, which edgellm "
        "does not follow; check HF_ENDPOINT"
    )


def _inner(ip: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, where it is such a one."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or ip


def numeric(host: str) -> Address | None:
    """The address that a host spells in numbers, also as 0x0a000001, 10.1 or 167772161; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_loopback(host: str) -> bool:
    return host == "localhost" or ((ip := numeric(host)) is not None and ip.is_loopback)


def origin(parts: SplitResult) -> Origin:
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, (parts.hostname or "").lower(), port or (443 if parts.scheme == "https" else 80)
