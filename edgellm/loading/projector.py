"""Finds and opens the projector file of a model."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from edgellm.catalogue.file_selection import projector_rank
from edgellm.catalogue.stores import ollama
from edgellm.checkpoints.opening import open_model
from edgellm.errors import FormatError, OptionError, shown
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.loading.loaded import Vision


def find_projector(model: Path, n_embd: int, asked: str | os.PathLike[str] | None) -> Path | None:
    """The projector file that was asked for; None: the one beside the model, whose rows are as wide as its embeddings.

    `asked`: "none" for none. Of several the one with the most precise weights is taken. In a version of a hub's repository the top
    folder counts as well, and in Ollama's store the manifest.
    """
    if asked is not None:
        return None if asked == "none" else Path(asked)
    folders = [model.parent]
    if model.parent.parent.parent.name == "snapshots":
        folders.append(model.parent.parent)
    beside = [path for folder in folders for path in sorted(folder.glob("*mmproj*.gguf"), key=_willingly)]
    if (named := ollama.projector_of(model)) is not None:
        beside.append(named)
    return next((path for path in beside if _fits(path, n_embd)), None)


def _willingly(path: Path) -> tuple[int, str]:
    return projector_rank(path.name), path.name


def _fits(path: Path, n_embd: int) -> bool:
    """True if a file is a projector whose rows are so wide."""
    with contextlib.suppress(FormatError, OSError), open_model(path) as gguf:
        return bool(gguf.metadata.get("clip.vision.projection_dim") == n_embd)
    return False


def open_encoder(
    model: Path, n_embd: int, asked: str | os.PathLike[str] | None, threads: int | None
) -> tuple[ImageEncoder | None, str]:
    """The encoder of a model, and why one that lies beside it can't be used. Raises the FormatErrors for one that was asked for,
    and OptionError where it belongs to another model.
    """
    path = find_projector(model, n_embd, asked)
    if path is None:
        return None, ""
    try:
        encoder = ImageEncoder(path, threads)
    except FormatError as error:
        if asked is not None:
            raise
        return None, f"no images: {error}"
    if encoder.keys.n_out != n_embd:
        encoder.close()
        raise OptionError(
            f"mmproj={shown(str(path))} makes rows of {encoder.keys.n_out} values, and {model.name} takes {n_embd}; give the "
            "projector that was made for this model."
        )
    return encoder, ""


def vision_of(encoder: ImageEncoder | None) -> Vision | None:
    """The record of a projector."""
    if encoder is None:
        return None
    return Vision(Path(encoder.path), encoder.keys.projector_type, encoder.file_bytes, encoder.n_out)
