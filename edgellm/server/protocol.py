"""HTTP connections that are closed when a client is slow to send its request, or stops reading its answer."""

from __future__ import annotations

import asyncio
from typing import Any  # Any: h11 has no types

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from edgellm.server.settings import REQUEST_SECONDS, STALL_SECONDS

LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Protocol(H11Protocol):
    """uvicorn's protocol on h11, with one deadline for the head and the body of each request.

    Middleware comes too late for that: it is called when the head is complete.
    """

    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self.conn.their_state is h11.IDLE:
            self._arm()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # the request is complete
            self._disarm()

    def _unsupported_upgrade_warning(self) -> None:  # what was asked for is answered over HTTP/1.1, which needs no advice
        pass

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            super().send_400_response(msg)
        else:  # an answer is under way: nothing can be put into it
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unstall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._unstall()
        super().resume_writing()

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._late)

    def _disarm(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _unstall(self) -> None:
        stall, self._stall = self._stall, None
        if stall is not None:
            stall.cancel()

    def _late(self) -> None:
        self._deadline = None
        cycle: Any = self.cycle
        if self.conn.their_state is h11.SEND_BODY and cycle is not None and cycle.response_started:
            self.transport.abort()
            return
        if not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()
