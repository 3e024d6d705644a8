"""Architectures, found by file name: edgellm/arch/<general.architecture>.py builds that family's graph."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Protocol, cast

from edgellm.arch.blocks.pooling import pooling_of
from edgellm.errors import BadHParam, Unreadable, Unsupported
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Builder, Graph
from edgellm.hparams import MAX_WIDTH, Keys, architecture_of
from edgellm.ops import GraphError
from edgellm.spec import verify

# What a family that cannot be run yet is closest to, for the error's advice.
CLOSEST = {
    "gemma": "gemma3",
    "phi": "phi3",
    "gpt": "gpt2",
    "qwen2": "qwen2",
    "qwen": "qwen3",
    "granite": "granite",
    "olmo": "olmo2",
    "cohere": "cohere2",
    "exaone": "exaone4",
    "glm": "glm4",
    "hunyuan": "hunyuan-dense",
    "ernie": "ernie4_5",
    "nemotron": "nemotron",
    "falcon": "falcon",
    "mistral": "mistral3",
}


class Architecture(Protocol):
    """The interface of a file in this folder. `CAUSAL = False`: its files are encoders although no key says so."""

    def build(self, keys: Keys, g: Builder) -> None:
        """Emit the graph and name its outputs; `g.tensors` are the shapes of the tensors that the file has."""
        ...


_NAMES = list[str]()  # filled by `names`, unless the folder cannot be listed


def names() -> list[str]:
    """All architectures that can be run."""
    if not _NAMES:
        modules = pkgutil.iter_modules(__path__)
        _NAMES.extend(sorted(module.name for module in modules if not module.ispkg and not module.name.startswith("_")))
    return _NAMES


def _refused(file: str | os.PathLike[str]) -> list[str]:
    """Raises Unreadable with the reason for which this package's own folder cannot be listed, which pkgutil keeps to itself."""
    try:
        return os.listdir(__path__[0])
    except OSError as error:
        raise Unreadable(
            f"cannot be loaded, for edgellm's own files can't be read ({error.strerror}); where too many files are open, raise the "
            "limit: ulimit -n",
            file=file,
        ) from error


def find(name: str, file: str | os.PathLike[str] = "") -> Architecture:
    """The module of an architecture. Raises Unsupported in one sentence that names it and what can be run."""
    known = names() or _refused(file)
    if name == "clip":
        raise Unsupported(
            "is a projector, which encodes images for a model; load the model, and give this file as mmproj", file=file,
            field="general.architecture"
        )  # fmt: skip
    if name not in known:
        closest = next((CLOSEST[start] for start in CLOSEST if name.startswith(start)), "llama")
        raise Unsupported(
            f"architecture '{name[:64]}' cannot be run yet; take one that can, such as {closest} "
            f"(docs/models.md lists all {len(known)})",
            file=file,
            field="general.architecture",
        )
    return cast(Architecture, importlib.import_module(f"edgellm.arch.{name}"))


def embeds(gguf: GGUFFile) -> bool:
    """True if a file is an embedding model. Raises Unsupported, BadHParam."""
    return pooling_of(_open(gguf)[1]) is not None


def rope_axes(gguf: GGUFFile) -> tuple[int, ...]:
    """The coordinate that each rotary pair of a model turns by where images have rows and columns (M-RoPE): time, row or column;
    in `hunyuan_vl` the position, column, row, and number of the image.

    () for a model that turns by positions alone. `INTERLEAVED_AXES` of an architecture: pairs take turns, where they are not in
    sections.
    """
    architecture, keys = _open(gguf)
    sections = keys.integers("rope.dimension_sections")[:4]
    if len(sections) < 3 or not any(sections[1:]) or sum(map(abs, sections)) > MAX_WIDTH:
        return ()
    if not getattr(architecture, "INTERLEAVED_AXES", False):
        return tuple(axis for axis, n in enumerate(sections) for _ in range(n))
    return tuple(pair % 3 if pair < 3 * sections[pair % 3] else 0 for pair in range(sum(sections)))


def _open(gguf: GGUFFile) -> tuple[Architecture, Keys]:
    architecture = find(architecture_of(gguf), gguf.path)
    return architecture, Keys(gguf, causal=getattr(architecture, "CAUSAL", True))


def load_graph(gguf: GGUFFile, context: int | None = None) -> tuple[Keys, Graph]:
    """Keys and verified graph of an open file; `context` defaults to what the model was trained for.

    Raises Unsupported, BadHParam, BadVocab, BadTensorInfo and ShapeMismatch.
    """
    keys, graph, left_out = build_graph(gguf, context)
    try:
        verify(graph, gguf.tensors, file=keys.file, left_out=left_out)
    except GraphError as error:
        raise BadHParam(
            f"its sizes do not fit together ({error}); the file is damaged or was made by a faulty converter",
            file=keys.file,
            field="general.architecture",
        ) from error
    return keys, graph


def build_graph(gguf: GGUFFile, context: int | None = None) -> tuple[Keys, Graph, tuple[str, ...]]:
    """Keys, graph, and how names of tensors begin that it leaves out, before anything is held against the file's tensors."""
    architecture, keys = _open(gguf)
    shapes = {name: tuple(info.shape) for name, info in gguf.tensors.items()}
    builder = Builder(shapes, context or keys.context_length, pooling_of(keys))
    architecture.build(keys, builder)
    return keys, builder.graph(), builder.left_out
