"""An MCP server for tests: tools, a resource and a prompt, over its pipes."""

from __future__ import annotations

import os

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("shop")


class Size(BaseModel):
    size: int


@server.tool()
def price(item: str) -> str:
    """The price of an item."""
    return f"{item} costs {os.environ.get('PRICE', '3')} euros"


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("out of order")


@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
async def grow(context: Context[object, object]) -> list[str | Image]:
    """Adds another tool; the result has a picture."""
    server.add_tool(fail, name="grown")
    await context.notify_tools_changed()
    return ["taller", Image(data=b"png", format="png")]


@server.tool()
async def ask_back(context: Context[object, object], how: str) -> str:
    """Asks the user, or the model, before it answers."""
    if how == "user":
        return str(await context.elicit("Which size?", Size))
    message = SamplingMessage(role="user", content=TextContent(type="text", text="Hi"))
    return str(await context.session.create_message([message], max_tokens=5))


@server.resource("shop://hours", name="hours", description="When it is open")
def hours() -> str:
    return "open from nine to five"


@server.prompt()
def order(item: str, count: str = "1") -> str:
    """Orders an item."""
    return f"I take {count} of {item}, price?"


if __name__ == "__main__":
    server.run("stdio")
