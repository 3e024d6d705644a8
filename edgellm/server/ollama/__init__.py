"""Ollama's API under /api."""

from __future__ import annotations

from typing import Any  # Any: JSON

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.server.models import Models
from edgellm.server.ollama.answers import OllamaAnswers
from edgellm.server.ollama.embeddings import OllamaEmbeddings
from edgellm.server.ollama.store import Store
from edgellm.server.problems import Problem
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["problem_body", "routes"]
VERSION = "0.13.0"  # of Ollama, which clients compare with what they need


def problem_body(problem: Problem) -> dict[str, Any]:
    """An error in Ollama's shape."""
    return {"error": problem.message}


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    answers, embeddings, store = OllamaAnswers(models, settings), OllamaEmbeddings(models), Store(models, settings)
    return [
        ("GET", "/api/version", _version),
        ("GET", "/api/tags", store.tags),
        ("POST", "/api/show", store.show),
        ("GET", "/api/ps", store.running),
        ("POST", "/api/chat", answers.chat),
        ("POST", "/api/generate", answers.generate),
        ("POST", "/api/embed", embeddings.embed),
        ("POST", "/api/embeddings", embeddings.embed_one),
        ("POST", "/api/pull", store.pull),
        ("DELETE", "/api/delete", store.delete),
        ("POST", "/api/copy", store.copy),
    ]


async def _version(request: Request) -> Response:
    return JSONResponse({"version": VERSION})
