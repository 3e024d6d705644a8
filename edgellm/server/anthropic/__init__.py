"""Anthropic's API under /v1/messages."""

from __future__ import annotations

from typing import Any  # Any: JSON

from edgellm.server.anthropic.messages import Messages
from edgellm.server.anthropic.shapes import problem_body as shape
from edgellm.server.models import Models
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["problem_body", "routes"]


def problem_body(problem: Problem) -> dict[str, Any]:
    """An error in Anthropic's shape."""
    return shape(problem)


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    messages = Messages(models)
    return [("POST", "/v1/messages", messages.answer), ("POST", "/v1/messages/count_tokens", messages.count)]
