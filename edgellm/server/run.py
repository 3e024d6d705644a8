"""Runs the server: its socket, uvicorn with our protocol, and an end at which answers under way are closed properly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from edgellm import OptionError
from edgellm.server.app import create_app
from edgellm.server.mcp import McpTools
from edgellm.server.models import Models
from edgellm.server.protocol import Protocol
from edgellm.server.settings import IDLE_SECONDS, MOST_HEADERS, STOP_SECONDS, Settings

BACKLOG = 1024
THREADS = "edgellm-server"  # what they are called
WORKERS = 3  # threads that load models, tokenize prompts and look at the disk


class Workers(ThreadPoolExecutor):
    """Threads of which one that loads a model is not waited for when the server ends."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        super().shutdown(wait=False, cancel_futures=True)


class Server(uvicorn.Server):
    """uvicorn's server, which ends answers under way before it waits for their connections, and the process in peace."""

    def __init__(self, config: uvicorn.Config, models: Models) -> None:
        super().__init__(config)
        self.models = models

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        stopping = asyncio.create_task(self.models.stop())
        try:
            await super().shutdown(sockets)
        finally:
            stopping.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # uvicorn's raises the signal again
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(settings: Settings, started: Callable[[str, Server], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C. `started(address, server)` is called when the first model is loaded.

    Raises OptionError for an address that cannot be used, and what `edgellm.load` raises for the first model.
    """
    listener, address = _listen(settings)
    with listener:
        asyncio.run(_serve(settings, listener, lambda server: started(address, server)))
    if settings.unix is not None:
        with contextlib.suppress(OSError):
            os.unlink(settings.unix)


async def _serve(settings: Settings, listener: socket.socket, started: Callable[[Server], None]) -> None:
    asyncio.get_running_loop().set_default_executor(Workers(WORKERS, THREADS))
    models, tools = Models(settings), McpTools(settings.mcp)
    config = uvicorn.Config(
        create_app(models, settings, tools),
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADERS,
        headers=[("x-content-type-options", "nosniff")],
    )
    server = Server(config, models)
    watching = asyncio.create_task(models.watch())
    try:
        await asyncio.gather(models.start(), tools.start())
        started(server)
        await server.serve([listener])
    finally:
        watching.cancel()
        await asyncio.gather(tools.close(), models.close())


def _listen(settings: Settings) -> tuple[socket.socket, str]:
    """The listening socket, and its address. Raises OptionError."""
    if settings.unix is not None:
        return _listen_unix(settings.unix), f"unix:{settings.unix}"
    try:
        family, kind, number, _, place = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        raise OptionError(
            f"--host {settings.host} --port {settings.port} cannot be used: {error.strerror or error}; choose another port with "
            "--port, or end the program that listens there."
        ) from error
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    return listener, f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _listen_unix(path: str) -> socket.socket:
    """A socket that the user alone can connect to; one that an ended server left is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode) and _is_dead(path):
            os.unlink(path)
    except OSError:
        pass  # nothing is there
    try:
        listener.bind(path)
    except OSError as error:
        listener.close()
        raise OptionError(f"--unix {path} cannot be used: {error.strerror or error}; choose another path.") from error
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    return listener


def _is_dead(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    return False
