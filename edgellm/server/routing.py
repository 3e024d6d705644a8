"""How protocols name their endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Awaitable[Response]]
Routes = list[tuple[str, str, Endpoint]]  # method, path, endpoint
