"""Tools of MCP servers in a chat: the user is asked before each call, unless the file allows it by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any  # Any: arguments of tools

from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.keyboard import asked, typed_ahead
from edgellm.cli.terminal.output import say
from edgellm.server.mcp import McpServer, McpTool, McpTools

DENIED = "The user did not allow this call."
MOST_SHOWN = 500  # characters of a call's arguments


@contextlib.contextmanager
def chat_tools(servers: tuple[McpServer, ...]) -> Iterator[dict[str, Any]]:
    """Options of `chat` that offer the servers' tools."""
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
        yield {"tools": [_offered(tool, lambda name, given: wait(tools.call(name, given))) for tool in tools.tools.values()]}
    finally:
        wait(tools.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _offered(tool: McpTool, call: Callable[[str, dict[str, Any]], tuple[str, bool]]) -> dict[str, Any]:
    """A tool as `chat` takes it, with the function that runs it."""

    def run(**arguments: Any) -> str:
        shown = clean(json.dumps(arguments, ensure_ascii=False))[:MOST_SHOWN]
        if tool.allowed:
            say(f"{tool.name} {shown}")
        else:
            typed_ahead()  # a key that was pressed before the question is no answer
            if not asked(f"run {tool.name} of {tool.server} with {shown}?"):
                return DENIED
        text, failed = call(tool.name, arguments)
        return f"error: {text}" if failed else text

    return {**tool.description_for_models, "run": run}
