"""The settings that a server is started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any  # Any: options of load

from edgellm import OptionError
from edgellm.server.mcp import McpServer

MOST_BODY = 32 << 20  # bytes of a request's body, pictures in it included
MOST_BODIES = 192 << 20  # bytes of all bodies that are being received
SMALL_BODY = 1 << 20  # bytes of a body that is always received
MOST_DEPTH = 64  # of JSON
MOST_HEADERS = 16 << 10  # bytes of a request's head
REQUEST_SECONDS = 30.0  # for a request's head and body together
STALL_SECONDS = 30.0  # that a client may leave a full connection unread
IDLE_SECONDS = 75  # that a connection is kept between two requests
PING_SECONDS = 5.0  # between two signs of life while a prompt is read
PROGRESS_SECONDS = 0.5  # between two reports of how far it is read, where the protocol has a place for them
LOW_MEMORY = 0.05  # of the machine's memory, or the container's: with less than that free, models that write nothing are unloaded
LOOK_SECONDS = 5.0  # between two looks at the memory
STOP_SECONDS = 2  # for answers under way, once the server is asked to stop


@dataclass(frozen=True, slots=True)
class Settings:
    """`models`: names or paths, the first of which answers requests that name none. `load`: options of `edgellm.load`."""

    models: tuple[str, ...] = ("guide",)
    host: str = "127.0.0.1"
    port: int = 11535
    unix: str | None = None  # a socket's path, instead of host and port
    api_key: str | None = None
    keep_alive: float | None = 300.0  # seconds that a model stays in memory after its last answer; None: for ever
    origins: frozenset[str] = frozenset()  # of web pages that may use the server
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    max_tokens: int | None = None  # of an answer whose request sets no limit; None: to the end of the context
    mcp: tuple[McpServer, ...] = ()  # whose tools the page offers
    load: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not self.is_local and not self.api_key:
            raise OptionError(
                f"--host {self.host} can be reached from other machines; give --api-key or --api-key-file as well, or stay with "
                "127.0.0.1."
            )

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        if self.unix is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
