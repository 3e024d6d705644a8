"""Finds and opens the projector file of a model."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from edgellm.catalogue.file_selection import type_of
from edgellm.checkpoints.opening import open_model
from edgellm.errors import FormatError, OptionError, shown
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.loading.loaded import Vision

PREFERRED = ("F16", "BF16", "F32", "Q8_0")  # types of projectors, where a folder has several


def find_projector(model: Path, n_embd: int, asked: str | os.PathLike[str] | None) -> Path | None:
    """The projector file that was asked for; None: the one beside the model, whose rows are as wide as its embeddings.

    `asked`: "none" for none. Of several the one with the most precise weights is taken.
    """
    if asked is not None:
        return None if asked == "none" else Path(asked)
    fitting = []
    for path in sorted(model.parent.glob("*mmproj*.gguf")):
        with contextlib.suppress(FormatError, OSError), open_model(path) as gguf:
            if gguf.metadata.get("clip.vision.projection_dim") == n_embd:
                fitting.append((PREFERRED.index(kind) if (kind := type_of(path.name)) in PREFERRED else len(PREFERRED), path))
    return min(fitting)[1] if fitting else None


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
