"""Finds and opens the projector file of a model."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.catalogue.projectors import projectors_beside
from edgellm.checkpoints.opening import open_model
from edgellm.errors import FormatError, OptionError, shown
from edgellm.loading.loaded import Encoders, Projector

if TYPE_CHECKING:
    from edgellm.loading.audio_encoder import AudioEncoder
    from edgellm.loading.image_encoder import ImageEncoder


def find_projector(model: Path, n_embd: int, asked: str | os.PathLike[str] | None) -> Path | None:
    """The projector file that was asked for; None: the one beside the model, whose rows are as wide as its embeddings.

    `asked`: "none" for none. Of several the one with the most precise weights is taken. In a version of a hub's repository the top
    folder counts as well, and in Ollama's store the manifest.
    """
    if asked is not None:
        return None if asked == "none" else Path(asked)
    return next((path for path in projectors_beside(model) if _fits(path, n_embd)), None)


def own_projector(model: Path) -> Path | None:
    """The projector beside a model's file, None where there is none that fits."""
    with contextlib.suppress(FormatError, OSError), open_model(model) as gguf:
        n_embd = gguf.metadata.get(f"{gguf.metadata.get('general.architecture')}.embedding_length")
        return find_projector(model, n_embd, None) if isinstance(n_embd, int) else None
    return None


def media_beside(model: Path) -> tuple[bool, bool]:
    """True for images, and for audio, if the projector beside a model's file encodes them."""
    path = own_projector(model)
    if path is None:
        return False, False
    from edgellm.arch._projector import media_of  # with all encoders, which a text model does not need

    with open_model(path) as gguf:
        return media_of(gguf)


def _fits(path: Path, n_embd: int) -> bool:
    """True if a file is a projector whose rows are so wide."""
    from edgellm.arch.vision import is_projector, rows_width

    with contextlib.suppress(FormatError, OSError), open_model(path) as gguf:
        return is_projector(gguf) and rows_width(gguf) == n_embd
    return False


def open_encoders(model: Path, n_embd: int, asked: str | os.PathLike[str] | None, threads: int | None) -> tuple[Encoders, str]:
    """The encoders of a model, and why one that lies beside it can't be used. Raises the FormatErrors where a file that was asked
    for has none that can be, and OptionError where it belongs to another model.
    """
    path = find_projector(model, n_embd, asked)
    if path is None:
        return Encoders(), ""
    from edgellm.arch._projector import media_of  # with all encoders, which a text model does not need

    with open_model(path) as gguf:
        sees, hears = media_of(gguf)
    found, errors = Encoders(), dict[str, FormatError]()
    if sees or not hears:
        from edgellm.loading.image_encoder import ImageEncoder

        try:
            found = found._replace(image=ImageEncoder(path, threads))
        except FormatError as error:
            errors["images"] = error
    if hears:
        from edgellm.loading.audio_encoder import AudioEncoder

        try:
            found = found._replace(audio=AudioEncoder(path, threads))
        except FormatError as error:
            errors["audio"] = error
    if asked is not None and not found.all:
        raise next(iter(errors.values()))
    wrong = next((encoder.keys.n_out for encoder in (found.image, found.audio) if encoder and encoder.keys.n_out != n_embd), None)
    if wrong is not None:
        for encoder in found.all:
            encoder.close()
        raise OptionError(
            f"mmproj={shown(str(path))} makes rows of {wrong} values, and {model.name} takes {n_embd}; give the "
            "projector that was made for this model."
        )
    return found, "; ".join(f"no {medium}: {error}" for medium, error in errors.items())


def projector_of(encoder: ImageEncoder | AudioEncoder | None) -> Projector | None:
    """The record of an encoder."""
    if encoder is None:
        return None
    return Projector(Path(encoder.path), encoder.keys.projector_type, encoder.file_bytes, encoder.n_out)
