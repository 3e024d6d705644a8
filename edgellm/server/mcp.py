"""Tools of MCP servers, for the page and `edgellm chat`; each call was allowed by the user, or by name in the file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: JSON

from edgellm import OptionError

if TYPE_CHECKING:
    from mcp.client import Client

log = logging.getLogger("edgellm.server")
STARTING, CALLING = 30.0, 300.0  # seconds to connect, and for a call
CLOSING = 0.8  # seconds for commands to end, before they are ended
MOST_RESULT = 200_000  # characters of a result that the model is told
NAME = re.compile(r"[^A-Za-z0-9_-]")
VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of the file: a command that speaks over its pipes, or a URL. `allowed`: tools whose calls need no question."""

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    server: str
    allowed: bool

    @property
    def description_for_models(self) -> dict[str, Any]:
        """In OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def read_mcp_file(path: Path) -> tuple[McpServer, ...]:
    """The servers of a file in Claude's format (`mcpServers`) or VS Code's (`servers`). Raises OptionError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"--mcp {path}: {getattr(error, 'strerror', None) or f'not JSON ({error})'}.") from error
    listed = found.get("mcpServers", found.get("servers")) if isinstance(found, dict) else None
    if not isinstance(listed, dict) or not all(isinstance(each, dict) for each in listed.values()):
        raise OptionError(f'--mcp {path}: has no servers; give {{"mcpServers": {{"name": {{"command": ...}}}}}}.')
    return tuple(_server(path, name, given) for name, given in listed.items() if not given.get("disabled"))


def _server(path: Path, name: str, given: dict[str, Any]) -> McpServer:
    def text(value: object) -> str:
        if not isinstance(value, str | int | float):
            raise OptionError(f"--mcp {path}: {name} has {value!r} where a text belongs.")
        return VARIABLE.sub(lambda found: os.environ.get(found[1], ""), str(value))

    def mapping(key: str) -> dict[str, str]:
        return {inner: text(value) for inner, value in (given.get(key) or {}).items()}

    if "${input:" in json.dumps(given):
        raise OptionError(f"--mcp {path}: {name} asks for an input; put the value into an environment variable, as ${{env:NAME}}.")
    allowed = frozenset(given.get("alwaysAllow") or given.get("autoApprove") or ())
    if url := given.get("url") or given.get("serverUrl"):
        return McpServer(name, url=text(url), headers=mapping("headers"), allowed=allowed)
    if not given.get("command"):
        raise OptionError(f"--mcp {path}: {name} has neither a command nor a url; give one of them.")
    arguments = tuple(text(each) for each in given.get("args") or ())
    folder = text(given["cwd"]) if given.get("cwd") else None
    return McpServer(name, text(given["command"]), arguments, mapping("env"), folder, allowed=allowed)


class McpTools:
    """Connections to servers, and their tools by name. Used by one event loop's thread."""

    def __init__(self, servers: tuple[McpServer, ...]) -> None:
        self.tools: dict[str, McpTool] = {}
        self.failed: dict[str, str] = {}  # why a server's tools are missing
        self._servers = servers
        self._clients: dict[str, tuple[Client, str]] = {}  # by the tool's name: the connection, and the name over there
        self._tasks = list[asyncio.Task[None]]()
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Connect to all. A server that does not answer is left out."""
        ready = []
        for server in self._servers:
            ready.append(asyncio.get_running_loop().create_future())
            self._tasks.append(asyncio.create_task(self._hold(server, ready[-1])))
        await asyncio.gather(*ready)

    async def _hold(self, server: McpServer, ready: asyncio.Future[None]) -> None:
        """A connection is opened and closed by one task."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(STARTING):
                    client = await stack.enter_async_context(await _client(server, stack))
                    await self._list(server, client)
                log.info("mcp: %s offers %d tools", server.name, sum(each.server == server.name for each in self.tools.values()))
                ready.set_result(None)
                await self._closing.wait()
        except Exception as error:
            self.failed[server.name] = _reason(error)
            log.info("mcp: %s failed: %s", server.name, self.failed[server.name])
        finally:
            for name in [name for name, tool in self.tools.items() if tool.server == server.name]:
                del self.tools[name], self._clients[name]
            if not ready.done():
                ready.set_result(None)

    async def _list(self, server: McpServer, client: Client) -> None:
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                name = NAME.sub("_", tool.name)[:64]
                if name in self.tools:
                    name = NAME.sub("_", f"{server.name}_{tool.name}")[:64]
                about = tool.description or ""
                self.tools[name] = McpTool(name, about, tool.input_schema, server.name, tool.name in server.allowed)
                self._clients[name] = client, tool.name
            cursor = page.next_cursor
            if cursor is None:
                return

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """The text of a tool's result, and whether it failed. Whoever calls this has asked the user."""
        if name not in self._clients:
            return f"there is no tool {name}", True
        client, there = self._clients[name]
        try:
            result = await client.call_tool(there, dict(arguments), read_timeout_seconds=CALLING)
        except Exception as error:
            return _reason(error), True
        texts = [getattr(part, "text", None) or f"({part.type})" for part in result.content]
        return "\n".join(texts)[:MOST_RESULT], bool(result.is_error)

    async def close(self) -> None:
        """End all connections, and the commands behind them."""
        self._closing.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSING)
            for task in late:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=CLOSING)


async def _client(server: McpServer, stack: contextlib.AsyncExitStack) -> Client:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    if server.url:
        http = await stack.enter_async_context(create_mcp_http_client(headers=dict(server.headers)))
        return Client(streamable_http_client(server.url, http_client=http))
    environment = {**os.environ, **server.environment}
    return Client(StdioServerParameters(command=server.command, args=list(server.arguments), env=environment, cwd=server.folder))


def _reason(error: BaseException) -> str:
    """The innermost error of a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
