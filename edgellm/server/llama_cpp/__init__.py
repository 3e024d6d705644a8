"""llama-server's own API, which editors' plugins use, and what vLLM says of a tokenizer."""

from __future__ import annotations

from edgellm.server.llama_cpp.completions import NativeCompletions
from edgellm.server.llama_cpp.endpoints import LlamaCpp
from edgellm.server.models import Models
from edgellm.server.routing import Routes
from edgellm.server.settings import Settings

__all__ = ["routes"]


def routes(models: Models, settings: Settings) -> Routes:
    """Methods, paths and endpoints."""
    texts, llama = NativeCompletions(models, settings), LlamaCpp(models, settings)
    return [
        ("POST", "/completion", texts.completion),
        ("POST", "/infill", texts.infill),
        ("POST", "/tokenize", llama.tokenize),
        ("POST", "/detokenize", llama.detokenize),
        ("GET", "/tokenizer_info", llama.tokenizer_info),
        ("POST", "/apply-template", llama.apply_template),
        ("GET", "/slots", llama.slots),
        ("GET", "/props", llama.props),
        ("GET", "/lora-adapters", llama.adapters),
        ("POST", "/lora-adapters", llama.scale_adapters),
    ]
