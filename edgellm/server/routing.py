"""How protocols name their endpoints, and the spellings of their paths."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Awaitable[Response]]
Routes = list[tuple[str, str, Endpoint]]  # method, path, endpoint
BASES = re.compile(r"^(?:/(?:v1|api|openai))+(?=/(?:v1|v2|api)(?:/|$))")  # of a base URL, before what the client adds to it
WITHOUT_V1 = re.compile(r"^/(?:models|chat|completions|embeddings|audio|rerank|reranking|responses|messages)(?:/|$)")


def path_of(given: str) -> str:
    """The path that a request means: one slash between segments and none at the end, the last of several bases, and OpenAI's and
    Anthropic's paths with their /v1, which some base URLs lack.
    """
    path = BASES.sub("", re.sub("/+", "/", f"/{given}").rstrip("/"))
    return f"/v1{path}" if WITHOUT_V1.match(path) else path or "/"
