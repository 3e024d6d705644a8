"""An MCP server for tests: two tools, over its pipes."""

from __future__ import annotations

import os

from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def price(item: str) -> str:
    """The price of an item."""
    return f"{item} costs {os.environ.get('PRICE', '3')} euros"


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("out of order")


if __name__ == "__main__":
    server.run("stdio")
