"""Tools, resources and prompts of MCP servers, for the page and `edgellm chat`; the user or the file allows each call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO  # Any: JSON

from edgellm import BackendError, EdgeError, OptionError

if TYPE_CHECKING:
    from mcp.client import Client

log = logging.getLogger("edgellm.server")
STARTING, CALLING = 30.0, 300.0  # seconds to connect, and for a call
RESTARTS = (0.0, 1.0, 5.0)  # seconds before a server that has ended is started again
CLOSED = -32000  # the code of an error: the connection is closed
CLOSING = 8.0  # seconds to end commands: the mcp package gives them 2, then 2 after SIGTERM, and kills what is left
LAST_LINE = 1.0  # seconds to wait for the last line of a command that has ended
MOST_LINE = 4000  # characters
MOST_RESULT = 200_000  # characters of a result that the model reads
MOST_PICTURE = 8 << 20  # characters of a picture in base64
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


@dataclass(frozen=True, slots=True)
class McpResource:
    """A text that a server has, such as a file."""

    name: str
    description: str
    server: str
    uri: str


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """A question that a server has prepared; `arguments`: their names, and whether they must be given."""

    name: str
    description: str
    server: str
    arguments: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class McpResult:
    """The result of a call, in which pictures are named; `pictures` has them as data URIs, for models that see."""

    text: str
    failed: bool
    pictures: tuple[str, ...] = ()


class ErrorLines:
    """Lines that a command writes to its standard error, for the log; the last one may say why it has ended."""

    def __init__(self, name: str) -> None:
        read, write = os.pipe()
        self.file, self._name, self._last = os.fdopen(write, "w"), name, ""
        self._thread = threading.Thread(target=self._follow, args=(read,), name="edgellm-mcp-log", daemon=True)
        self._thread.start()

    def _follow(self, read: int) -> None:
        with open(read, encoding="utf-8", errors="replace") as lines:
            while line := lines.readline(MOST_LINE):
                if text := line.strip():
                    self._last = text
                    log.info("mcp: %s: %s", self._name, text)

    async def last(self) -> str:
        """The last line, once the command has ended."""
        self.file.close()
        await asyncio.to_thread(self._thread.join, LAST_LINE)
        return self._last


@dataclass(eq=False, slots=True)
class McpLink:
    """A connection to a server. `news` is set where its lists have changed, or where it is `lost`."""

    client: Client
    news: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False

    def lose(self) -> None:
        self.lost = True
        self.news.set()


class McpTools:
    """Connections to servers, and their tools, resources and prompts by name. Used by one event loop's thread."""

    def __init__(self, servers: tuple[McpServer, ...]) -> None:
        self.tools: dict[str, McpTool] = {}
        self.resources: dict[str, McpResource] = {}
        self.prompts: dict[str, McpPrompt] = {}
        self.failed: dict[str, str] = {}  # why a server's tools are missing
        self._servers = servers
        self._links: dict[str, McpLink] = {}  # by the server's name
        self._names: dict[str, str] = {}  # of tools, over there
        self._tasks = list[asyncio.Task[None]]()
        self._connecting = set[asyncio.Timeout]()
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Connect to all. A server that does not answer is left out."""
        ready = []
        for server in self._servers:
            ready.append(asyncio.get_running_loop().create_future())
            self._tasks.append(asyncio.create_task(self._hold(server, ready[-1])))
        await asyncio.gather(*ready)

    async def _hold(self, server: McpServer, ready: asyncio.Future[None]) -> None:
        """Keep a connection, which is opened and closed by one task; a server that ends is started again, some times."""
        for pause in (*RESTARTS, None):
            lines = ErrorLines(server.name)
            try:
                await self._connect(server, ready, lines.file)
                self.failed[server.name] = "it has ended"
            except Exception as error:
                last = await lines.last()
                self.failed[server.name] = f"{_reason(error)} ({last})" if last else _reason(error)
                log.info("mcp: %s failed: %s", server.name, self.failed[server.name])
            finally:
                lines.file.close()
                self._forget(server)
                first, link = not ready.done(), self._links.pop(server.name, None)
                if first:
                    ready.set_result(None)
            if self._closing.is_set() or pause is None or link is None or first:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)
                return

    async def _connect(self, server: McpServer, ready: asyncio.Future[None], errors: TextIO) -> None:
        """Offer what a server has, until it is lost or all is closed."""
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(STARTING) as limit:
                self._connecting.add(limit)
                try:
                    link = self._links[server.name] = await _linked(server, stack, errors)
                    await self._list(server, link.client)
                finally:
                    self._connecting.discard(limit)
            self.failed.pop(server.name, None)
            log.info("mcp: %s offers %d tools", server.name, sum(each.server == server.name for each in self.tools.values()))
            if not ready.done():
                ready.set_result(None)
            waiting = [asyncio.create_task(_listen(link)), asyncio.create_task(self._closing.wait())]
            try:
                while not link.lost and not self._closing.is_set():
                    news = asyncio.create_task(link.news.wait())
                    await asyncio.wait((news, waiting[1]), return_when=asyncio.FIRST_COMPLETED)
                    news.cancel()
                    if link.news.is_set() and not link.lost:
                        link.news.clear()
                        await self._list(server, link.client)
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    def _forget(self, server: McpServer, but: Collection[str] = ()) -> None:
        """Offer nothing of a server any more, `but` for what has these names."""
        for found in (self.tools, self.resources, self.prompts):
            for name in [name for name, each in found.items() if each.server == server.name and name not in but]:
                del found[name]

    async def _list(self, server: McpServer, client: Client) -> None:
        """Offer what a server has now."""
        has, names = client.server_capabilities, set[str]()
        if has.tools is not None:
            async for tool in _pages(client.list_tools, "tools"):
                name = NAME.sub("_", tool.name)[:64]
                if name in names or (name in self.tools and self.tools[name].server != server.name):
                    name = NAME.sub("_", f"{server.name}_{tool.name}")[:64]
                about = tool.description or ""
                self.tools[name] = McpTool(name, about, tool.input_schema, server.name, tool.name in server.allowed)
                self._names[name] = tool.name
                names.add(name)
        if has.resources is not None:
            async for each in _pages(client.list_resources, "resources"):
                found = McpResource(each.name, each.description or "", server.name, str(each.uri))
                names.add(key := f"{server.name}:{each.name}")
                self.resources[key] = found
        if has.prompts is not None:
            async for each in _pages(client.list_prompts, "prompts"):
                arguments = tuple((one.name, bool(one.required)) for one in each.arguments or ())
                names.add(key := f"{server.name}:{each.name}")
                self.prompts[key] = McpPrompt(each.name, each.description or "", server.name, arguments)
        self._forget(server, names)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> McpResult:
        """The result of a tool. The caller has asked the user."""
        tool = self.tools.get(name)
        if tool is None:
            return McpResult(f"there is no tool {name}", True)
        there = self._names[name]
        work = self._asked(tool.server, lambda client: client.call_tool(there, dict(arguments), read_timeout_seconds=CALLING))
        try:
            result = await work
        except EdgeError as error:
            return McpResult(str(error), True)
        pictures = tuple(uri for part in result.content if (uri := _picture(part)))
        return McpResult("\n".join(map(_text, result.content))[:MOST_RESULT], bool(result.is_error), pictures)

    async def read(self, name: str) -> str:
        """The text of a resource, by its server and name. Raises OptionError, BackendError."""
        found = self.resources.get(name)
        if found is None:
            raise OptionError(f"no MCP server offers the resource {name[:80]!r}.")
        result = await self._asked(found.server, lambda client: client.read_resource(found.uri))
        return "\n".join(map(_text, result.contents))[:MOST_RESULT]

    async def fill(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt, by its server and name. Raises OptionError, BackendError."""
        found = self.prompts.get(name)
        if found is None:
            raise OptionError(f"no MCP server offers the prompt {name[:80]!r}.")
        missing = [argument for argument, required in found.arguments if required and not arguments.get(argument)]
        if missing:
            raise OptionError(f"the prompt {name} needs {', '.join(missing)}; give {missing[0]}=TEXT.")
        result = await self._asked(found.server, lambda client: client.get_prompt(found.name, dict(arguments)))
        return "\n\n".join(_text(each.content) for each in result.messages)[:MOST_RESULT]

    async def _asked(self, server: str, ask: Callable[[Client], Awaitable[Any]]) -> Any:  # Any: of the mcp package
        """The answer of a server. Raises BackendError."""
        link = self._links.get(server)
        if link is None:
            raise BackendError(f"the MCP server {server} is not connected.")
        try:
            return await ask(link.client)
        except Exception as error:
            if getattr(getattr(error, "error", None), "code", 0) == CLOSED:
                link.lose()
                raise BackendError(f"the MCP server {server} has ended; it is started again.") from error
            raise BackendError(_reason(error)) from error

    async def close(self) -> None:
        """End all connections, and the commands behind them. Tasks that end theirs aren't cancelled: that would leave commands."""
        self._closing.set()
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING)


async def _linked(server: McpServer, stack: contextlib.AsyncExitStack, errors: TextIO) -> McpLink:
    """A connection, which ends with the stack. `errors`: for the standard error of a command."""
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def heard(message: object) -> None:
        if type(message).__name__.endswith("ListChangedNotification"):
            link.news.set()

    if server.url:
        http = await stack.enter_async_context(create_mcp_http_client(headers=dict(server.headers)))
        link = McpLink(Client(streamable_http_client(server.url, http_client=http), message_handler=heard))
    else:
        environment = {**os.environ, **server.environment}
        command = StdioServerParameters(command=server.command, args=list(server.arguments), env=environment, cwd=server.folder)
        link = McpLink(Client(stdio_client(command, errors), message_handler=heard))
    await stack.enter_async_context(link.client)
    return link


async def _listen(link: McpLink) -> None:
    """Hear of changed lists, where the protocol has a stream for them."""
    from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

    try:
        async with link.client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as events:
            link.news.set()  # of what has changed before this
            async for _ in events:
                link.news.set()
    except ListenNotSupportedError:
        pass
    except SubscriptionLost:
        link.lose()
    except Exception as error:
        log.debug("mcp: no news: %s", _reason(error))


async def _pages(list_page: Callable[..., Awaitable[Any]], name: str) -> AsyncIterator[Any]:  # Any: of the mcp package
    """All that a server lists."""
    cursor: str | None = None
    while True:
        page = await list_page(cursor=cursor)
        for each in getattr(page, name):
            yield each
        cursor = page.next_cursor
        if cursor is None:
            return


def _text(part: Any) -> str:  # Any: a part of a result, of many types
    """The text of a part; the kind of one that is none."""
    inner = getattr(part, "resource", part)
    text, uri = getattr(inner, "text", None), getattr(inner, "uri", None)
    kind = getattr(part, "mime_type", None) or getattr(part, "type", "data")
    return text if isinstance(text, str) else f"({kind}{f': {uri}' if uri else ''})"


def _picture(part: Any) -> str:  # Any: a part of a result, of many types
    """The data URI of a part that is a picture of a usual size, else ""."""
    kind, data = getattr(part, "mime_type", None), getattr(part, "data", None)
    usual = isinstance(kind, str) and kind.startswith("image/") and isinstance(data, str) and len(data) <= MOST_PICTURE
    return f"data:{kind};base64,{data}" if usual else ""


def _reason(error: BaseException) -> str:
    """The innermost error of a group, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
