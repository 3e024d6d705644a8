"""OpenAI's API under /v1."""

from __future__ import annotations

from edgellm.server.models import Models
from edgellm.server.openai.chat import Chat, problem_body
from edgellm.server.openai.completions import Completions
from edgellm.server.openai.embeddings import Embeddings
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
    found: Routes = [("POST", "/v2/rerank", rerank.answer)]  # Cohere's
    for base in ("/v1", ""):  # as llama-server, which clients ask without /v1 too
        found += [
            ("GET", f"{base}/models", listing.all),
            ("GET", f"{base}/models/{{name:path}}", listing.one),
            ("POST", f"{base}/chat/completions", chat.answer),
            ("POST", f"{base}/completions", completions.answer),
            ("POST", f"{base}/embeddings", embeddings.answer),
            ("POST", f"{base}/audio/transcriptions", transcriptions.answer),
            ("POST", f"{base}/rerank", rerank.answer),
            ("POST", f"{base}/reranking", rerank.answer),
        ]
    return found
