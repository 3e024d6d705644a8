"""OpenAI's API under /v1."""

from __future__ import annotations

from edgellm.server.models import Models
from edgellm.server.openai.chat import Chat, problem_body
from edgellm.server.openai.completions import Completions
from edgellm.server.openai.embeddings import NATIVE, Embeddings
from edgellm.server.openai.listing import Listing
from edgellm.server.openai.rerank import Rerank
from edgellm.server.openai.transcriptions import Transcriptions
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["problem_body", "routes"]


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    listing, chat, embeddings = Listing(models), Chat(models, settings), Embeddings(models)
    completions = Completions(models, settings)
    rerank, transcriptions = Rerank(models), Transcriptions(models, settings)
    return [
        ("GET", "/v1/models", listing.all),
        ("GET", "/v1/models/{name:path}", listing.one),
        ("POST", "/v1/chat/completions", chat.answer),
        ("POST", "/v1/completions", completions.answer),
        ("POST", "/v1/embeddings", embeddings.answer),
        ("POST", NATIVE, embeddings.answer),
        ("POST", "/v1/audio/transcriptions", transcriptions.answer),
        ("POST", "/v1/rerank", rerank.answer),
        ("POST", "/v1/reranking", rerank.answer),
        ("POST", "/v2/rerank", rerank.answer),  # Cohere's
    ]
