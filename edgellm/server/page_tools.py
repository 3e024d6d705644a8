"""Tools, resources and prompts for the chat page: which there are, and calls that the user allowed there."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any  # Any: JSON

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm import BackendError
from edgellm.server.bodies import read
from edgellm.server.mcp import McpTools
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.streaming import unless_gone


class CallBody(BaseModel):
    """`confirmed`: the user said yes to this call."""

    name: str
    arguments: dict[str, Any] = {}
    confirmed: bool = False


class PageTools:
    """Endpoints that answer this server's own page alone: no program and no other page has tools run."""

    def __init__(self, tools: McpTools | None) -> None:
        self._tools = tools

    async def listed(self, request: Request) -> Response:
        """All tools, and why some servers have none."""
        _check_page(request)
        tools = self._tools
        if tools is None:
            return JSONResponse({"tools": [], "items": [], "failed": {}})
        found = [{"allowed": each.allowed, "server": each.server, **each.description_for_models} for each in tools.tools.values()]
        items: list[dict[str, Any]] = [
            {"kind": "resource", "key": key, "description": each.description, "arguments": []}
            for key, each in tools.resources.items()
        ]
        for key, each in tools.prompts.items():
            given = [{"name": name, "required": required} for name, required in each.arguments]
            items.append({"kind": "prompt", "key": key, "description": each.description, "arguments": given})
        return JSONResponse({"tools": found, "items": items, "failed": tools.failed})

    async def call(self, request: Request) -> Response:
        """The result of a call. Raises Problem for one that nobody allowed."""
        _check_page(request)
        body, tools = await read(request, CallBody), self._tools
        tool = tools.tools.get(body.name) if tools is not None else None
        if tools is None or tool is None:
            raise Problem(404, f"no MCP server offers the tool {body.name[:80]!r}.", code="not_found")
        if not (body.confirmed or tool.allowed):
            raise Problem(403, f"the call of {tool.name} was not confirmed.", code="not_confirmed")
        result = await unless_gone(request.receive, tools.call(tool.name, body.arguments))
        return JSONResponse({"content": result.text, "images": list(result.pictures), "failed": result.failed})

    async def resource(self, request: Request) -> Response:
        """The text of a resource, which the user chose."""
        _check_page(request)
        body = await read(request, CallBody)
        return await _text(request, (self._tools or McpTools(())).read(body.name))

    async def prompt(self, request: Request) -> Response:
        """The text of a prompt, which the user chose."""
        _check_page(request)
        body = await read(request, CallBody)
        given = {name: str(value) for name, value in body.arguments.items()}
        return await _text(request, (self._tools or McpTools(())).fill(body.name, given))


async def _text(request: Request, work: Coroutine[Any, Any, str]) -> Response:
    """The text that a server answers. Raises Problem where it fails."""
    try:
        return JSONResponse({"content": await unless_gone(request.receive, work)})
    except BackendError as error:
        raise Problem(502, str(error), code="mcp_server_failed") from error


def _check_page(request: Request) -> None:
    """Browsers set this header, and no page can."""
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise Problem(403, "tools of MCP servers are for the chat page of this server.", code="forbidden_origin")


def routes(tools: McpTools | None) -> Routes:
    """Methods, paths and endpoints."""
    page = PageTools(tools)
    return [
        ("GET", "/page/tools", page.listed),
        ("POST", "/page/tools/call", page.call),
        ("POST", "/page/resource", page.resource),
        ("POST", "/page/prompt", page.prompt),
    ]
