"""OpenAI's API under /v1."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from edgellm.server.models import Models
from edgellm.server.openai.chat import Chat, problem_body
from edgellm.server.openai.completions import Completions
from edgellm.server.openai.embeddings import Embeddings
from edgellm.server.openai.listing import Listing
from edgellm.server.openai.rerank import Rerank
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["problem_body", "routes"]


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    listing, chat, embeddings = Listing(models), Chat(models, settings), Embeddings(models)
    completions = Completions(models, settings)
    return [
        ("GET", "/v1/models", listing.all),
        ("GET", "/v1/models/{name:path}", listing.one),
        ("POST", "/v1/chat/completions", chat.answer),
        ("POST", "/v1/completions", completions.answer),
        ("POST", "/v1/embeddings", embeddings.answer),
        ("POST", "/v1/rerank", Rerank(models).answer),
        *[(method, path, _unsupported) for path in ("/v1/files", "/v1/batches") for method in ("GET", "POST")],
    ]


async def _unsupported(request: Request) -> Response:
    raise Problem(501, "files and batches are not supported; send requests one by one, many at a time.", code="unsupported")
