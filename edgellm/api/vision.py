"""Images for models that take them: the projector beside a model, and `embed_image`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

from edgellm.api.records import Vision
from edgellm.arguments import as_int
from edgellm.catalogue.file_selection import type_of
from edgellm.chat import images
from edgellm.checkpoints.opening import open_model
from edgellm.errors import FormatError, OptionError, shown
from edgellm.loading.image_encoder import EncodedImage, ImageEncoder, Rows

MOST_ROWS = 16384  # of an image
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


class Seeing:
    """`embed_image` of a model."""

    encoder: ImageEncoder | None

    def embed_image(self, image: images.Source | images.Image, *, image_tokens: int | None = None) -> Rows:
        """The rows (n, d) float32 that stand for an image in a prompt, tile by tile where the model cuts it, its overview last.

        `image`: a path, bytes, a data URI, a Pillow image, an array (h, w, 3) of uint8, or an `edgellm.Image`. `image_tokens`: rows
        that it may take at most. With deepstack (Qwen3-VL) a row is followed by those that are added at the first layers.

        Raises ImageError, OptionError where the model takes no images, ModelClosed, NumericError.
        """
        return np.concatenate(self.seen(image, image_tokens).rows)

    def seen(self, image: images.Source | images.Image, image_tokens: int | None = None) -> EncodedImage:
        """An image encoded."""
        if self.encoder is None:
            raise OptionError(
                "this model takes no images: no projector (mmproj-*.gguf) lies beside it; get its projector, or give "
                "load(..., mmproj=FILE)."
            )
        source = image.data if isinstance(image, images.Image) else image
        if isinstance(image, images.Image) and image_tokens is None:
            image_tokens = image.tokens
        most = None if image_tokens is None else as_int(image_tokens)
        if image_tokens is not None and (most is None or not 1 <= most <= MOST_ROWS):
            raise OptionError(option="image_tokens", value=image_tokens, advice=f"give a number from 1 to {MOST_ROWS}")
        return self.encoder.encode(images.read(source), most_rows=most)


def vision_of(encoder: ImageEncoder) -> Vision:
    """What is known of a projector."""
    return Vision(Path(encoder.path), encoder.keys.projector_type, encoder.file_bytes, encoder.n_out)
