"""edgellm runs language models on this machine: GGUF files, offline, from Python or the terminal.

    import edgellm

    with edgellm.load("model.gguf") as model:
        print(model.generate("Once upon a time", max_tokens=100).text)
        for piece in model.chat([{"role": "user", "content": "Name three rivers."}], stream=True):
            print(piece, end="", flush=True)

Importing this package imports nothing else; each name below brings what it needs on first use.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm.engine.load import load, load_tokenizer
    from edgellm.engine.model import Model
    from edgellm.engine.records import Event, Generation, ModelInfo, Piece, Stats
    from edgellm.engine.stream import Stream
    from edgellm.errors import EdgeError
    from edgellm.sampling import SamplingOptions

_HOMES = {
    "load": "edgellm.engine.load", "load_tokenizer": "edgellm.engine.load", "Model": "edgellm.engine.model",
    "Event": "edgellm.engine.records", "Generation": "edgellm.engine.records", "ModelInfo": "edgellm.engine.records",
    "Piece": "edgellm.engine.records", "Stats": "edgellm.engine.records", "Stream": "edgellm.engine.stream",
    "EdgeError": "edgellm.errors", "SamplingOptions": "edgellm.sampling",
}

__all__ = ["EdgeError", "Event", "Generation", "Model", "ModelInfo", "Piece", "SamplingOptions", "Stats", "Stream", "load",
           "load_tokenizer"]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'edgellm' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
