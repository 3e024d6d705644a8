"""OpenAI's API under /v1."""

from __future__ import annotations

from typing import Any  # Any: JSON

from edgellm.server.models import Models
from edgellm.server.openai.chat import Chat
from edgellm.server.openai.listing import Listing
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["problem_body", "routes"]
KINDS = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_error"}


def problem_body(problem: Problem) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    kind = KINDS.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    return {"error": {"message": problem.message, "type": kind, "param": None, "code": problem.code}}


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    listing, chat = Listing(models), Chat(models, settings)
    return [
        ("GET", "/v1/models", listing.all),
        ("GET", "/v1/models/{name:path}", listing.one),
        ("POST", "/v1/chat/completions", chat.answer),
    ]
