"""MCP servers in a chat: tools, resources and prompts. The user is asked before each call, unless the file allows it by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any  # Any: arguments of tools

from edgellm import Model
from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.keyboard import asked
from edgellm.cli.terminal.output import say
from edgellm.server.mcp import McpResult, McpServer, McpTool, McpTools

DENIED = "The user did not allow this call."
MOST_SHOWN = 500  # characters of a call's arguments


class ChatServers:
    """Connected servers, asked from the chat's thread."""

    def __init__(self, tools: McpTools, wait: Callable[[Any], Any]) -> None:  # Any: of any coroutine
        """`wait` runs a coroutine in the loop of `tools`."""
        self._tools, self._wait, self._without = tools, wait, set[str]()

    def options_for(self, model: Model) -> dict[str, Any]:
        """Options of `chat` that offer the tools that there are now; none where the model's template shows no tools."""
        tools = list(self._tools.tools.values())
        if tools and not (model.has_template and "tools" in model.template.source):
            name = model.path.stem
            if name not in self._without:
                self._without.add(name)
                say(f"the chat template of {name} doesn't support tools: MCP servers' are left out; /mcp attaches resources")
            return {}
        found = [_offered(tool, lambda name, given: self._wait(self._tools.call(name, given))) for tool in tools]
        return {"tools": found, "run_tools": True} if found else {}

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Everything that the servers offer, in two columns."""
        tools = self._tools
        found = [(f"{tool.server}:{tool.name}", f"tool: {tool.description}") for tool in tools.tools.values()]
        found += [(name, f"resource: {each.description or each.uri}") for name, each in tools.resources.items()]
        for name, each in tools.prompts.items():
            arguments = " ".join(f"{one}=TEXT" if needed else f"[{one}=TEXT]" for one, needed in each.arguments)
            found.append((f"{name} {arguments}".strip(), f"prompt: {each.description}"))
        return found + [(name, f"not connected: {reason}") for name, reason in tools.failed.items()]

    @property
    def names(self) -> list[str]:
        """Names of resources and prompts."""
        return [*self._tools.resources, *self._tools.prompts]

    def resource(self, name: str) -> str | None:
        """The text of a resource; None where none has the name. Raises BackendError."""
        return self._wait(self._tools.read(name)) if name in self._tools.resources else None

    def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """The text of a prompt. Raises OptionError, BackendError."""
        text: str = self._wait(self._tools.fill(name, arguments))
        return text


@contextlib.contextmanager
def chat_servers(servers: tuple[McpServer, ...]) -> Iterator[ChatServers]:
    """The servers, connected while the block lasts."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # what fails is said below
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="edgellm-mcp", daemon=True)
    thread.start()
    tools = McpTools(servers)

    def wait(work: Any) -> Any:  # Any: of any coroutine
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        wait(tools.start())
        for name, reason in tools.failed.items():
            say(f"the MCP server {name} doesn't answer: {reason}")
        yield ChatServers(tools, wait)
    finally:
        wait(tools.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _offered(tool: McpTool, call: Callable[[str, dict[str, Any]], McpResult]) -> dict[str, Any]:
    """A tool as `chat` takes it, with the function that runs it."""

    def run(**arguments: Any) -> str:
        shown = clean(json.dumps(arguments, ensure_ascii=False))[:MOST_SHOWN]
        if tool.allowed:
            say(f"{tool.name} {shown}")
        elif not asked(f"run {tool.name} of {tool.server} with {shown}?"):
            return DENIED
        result = call(tool.name, arguments)
        return f"error: {result.text}" if result.failed else result.text

    return {**tool.description_for_models, "run": run}
