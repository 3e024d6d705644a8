"""OpenAI's /v1/responses."""

from __future__ import annotations

from edgellm.server.models import Models
from edgellm.server.responses.answers import Responses
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["routes"]


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    responses = Responses(models, settings)
    return [
        ("POST", "/v1/responses", responses.answer),
        ("POST", "/v1/responses/input_tokens", responses.count),
        ("GET", "/v1/responses/{id}", responses.stored),
        ("DELETE", "/v1/responses/{id}", responses.remove),
        ("POST", "/v1/responses/{id}/cancel", responses.cancel),
        ("GET", "/v1/responses/{id}/input_items", responses.input_items),
    ]
