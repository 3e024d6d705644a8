"""edgellm runs language models on this machine: GGUF files, offline, from Python or the terminal.

    import edgellm

    with edgellm.load("model.gguf") as model:
        print(model.generate("Once upon a time", max_tokens=100).text)
        for piece in model.chat([{"role": "user", "content": "Name three rivers."}], stream=True):
            print(piece, end="", flush=True)

Importing this package imports nothing else; each name below brings what it needs on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing typing takes ten times as long as this package

if TYPE_CHECKING:
    from edgellm.api.answer import Piece
    from edgellm.api.async_ import AsyncStream
    from edgellm.api.chat_options import ChatKeywords
    from edgellm.api.embed import EmbedKeywords
    from edgellm.api.generation_options import GenerationKeywords
    from edgellm.api.header import ModelHeader, read_header
    from edgellm.api.infill import InfillKeywords
    from edgellm.api.installed import InstalledModel, find_installed, installed, pull, remove
    from edgellm.api.load import load, load_tokenizer
    from edgellm.api.model import Model, Session
    from edgellm.api.records import CallProblem, Event, Generation, LoadStats, ParsedGeneration, Stats, TokenLogprobs
    from edgellm.api.stream import Stream
    from edgellm.catalogue.machine import free_memory
    from edgellm.chat.audio import Audio
    from edgellm.chat.images import Image
    from edgellm.chat.tools import CallDelta, ToolCall
    from edgellm.errors import (
        AudioError,
        BackendError,
        BadAlignment,
        BadCatalogue,
        BadHParam,
        BadMagic,
        BadTensorInfo,
        BadType,
        BadVersion,
        BadVocab,
        ContextFull,
        DownloadError,
        Duplicate,
        EdgeError,
        FormatError,
        ImageError,
        LimitExceeded,
        ModelClosed,
        ModelNotFound,
        NotEnoughMemory,
        NoTokenizer,
        NumericError,
        OptionError,
        QueueFull,
        SchemaError,
        SessionError,
        ShapeMismatch,
        TemplateError,
        Truncated,
        Unreadable,
        Unsupported,
        Unwritable,
    )
    from edgellm.loading.loaded import ModelInfo
    from edgellm.sampling import SamplingKeywords, SamplingOptions
    from edgellm.tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "AsyncStream",
    "Audio",
    "AudioError",
    "BackendError",
    "BadAlignment",
    "BadCatalogue",
    "BadHParam",
    "BadMagic",
    "BadTensorInfo",
    "BadType",
    "BadVersion",
    "BadVocab",
    "CallDelta",
    "CallProblem",
    "ChatKeywords",
    "ContextFull",
    "DownloadError",
    "Duplicate",
    "EdgeError",
    "EmbedKeywords",
    "Event",
    "FormatError",
    "Generation",
    "GenerationKeywords",
    "Image",
    "ImageError",
    "InfillKeywords",
    "InstalledModel",
    "LimitExceeded",
    "LoadStats",
    "Model",
    "ModelClosed",
    "ModelHeader",
    "ModelInfo",
    "ModelNotFound",
    "NoTokenizer",
    "NotEnoughMemory",
    "NumericError",
    "OptionError",
    "ParsedGeneration",
    "Piece",
    "QueueFull",
    "SamplingKeywords",
    "SamplingOptions",
    "SchemaError",
    "Session",
    "SessionError",
    "ShapeMismatch",
    "Stats",
    "Stream",
    "TemplateError",
    "TokenLogprobs",
    "Tokenizer",
    "ToolCall",
    "Truncated",
    "Unreadable",
    "Unsupported",
    "Unwritable",
    "find_installed",
    "free_memory",
    "installed",
    "load",
    "load_tokenizer",
    "pull",
    "read_header",
    "remove",
]

_HOMES = {
    "load": "edgellm.api.load",
    "load_tokenizer": "edgellm.api.load",
    "Model": "edgellm.api.model",
    "CallProblem": "edgellm.api.records",
    "Event": "edgellm.api.records",
    "Generation": "edgellm.api.records",
    "Audio": "edgellm.chat.audio",
    "Image": "edgellm.chat.images",
    "LoadStats": "edgellm.api.records",
    "ParsedGeneration": "edgellm.api.records",
    "ModelInfo": "edgellm.loading.loaded",
    "TokenLogprobs": "edgellm.api.records",
    "Piece": "edgellm.api.answer",
    "Session": "edgellm.api.model",
    "Stats": "edgellm.api.records",
    "Stream": "edgellm.api.stream",
    "CallDelta": "edgellm.chat.tools",
    "ToolCall": "edgellm.chat.tools",
    "AsyncStream": "edgellm.api.async_",
    "InstalledModel": "edgellm.api.installed",
    "find_installed": "edgellm.api.installed",
    "free_memory": "edgellm.catalogue.machine",
    "installed": "edgellm.api.installed",
    "pull": "edgellm.api.installed",
    "remove": "edgellm.api.installed",
    "ModelHeader": "edgellm.api.header",
    "read_header": "edgellm.api.header",
    "SamplingOptions": "edgellm.sampling",
    "SamplingKeywords": "edgellm.sampling",
    "GenerationKeywords": "edgellm.api.generation_options",
    "ChatKeywords": "edgellm.api.chat_options",
    "InfillKeywords": "edgellm.api.infill",
    "EmbedKeywords": "edgellm.api.embed",
    "Tokenizer": "edgellm.tokenizer",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'edgellm' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES.get(name, "edgellm.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
