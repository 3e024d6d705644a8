"""Images in prompts: encoded, and their rows put in the place of tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from edgellm.arguments import as_int
from edgellm.chat import images
from edgellm.chat.provenance import Span
from edgellm.chat.templates import Message, Rendered
from edgellm.engine.prompts import PromptVectors, TokenIds, checked_ids
from edgellm.errors import OptionError, TemplateError
from edgellm.loading.image_encoder import UNWATCHED, EncodedImage, Rows, Watch
from edgellm.loading.loaded import LoadedModel
from edgellm.ops._spec import Given

MOST_ROWS = 16384  # of an image


def encode_image(
    model: LoadedModel, image: images.Source | images.Image, image_tokens: int | None = None, watch: Watch = UNWATCHED
) -> EncodedImage:
    """See `Model.embed_image`."""
    if model.encoder is None:
        raise OptionError(
            "this model takes no images: there is no projector (mmproj-*.gguf) beside it; download its projector, or name one "
            "with mmproj."
        )
    source = image.data if isinstance(image, images.Image) else image
    if isinstance(image, images.Image) and image_tokens is None:
        image_tokens = image.tokens
    most = None if image_tokens is None else as_int(image_tokens)
    if image_tokens is not None and (most is None or not 1 <= most <= MOST_ROWS):
        raise OptionError(option="image_tokens", value=image_tokens, advice=f"give a number from 1 to {MOST_ROWS}")
    return model.encoder.encode(images.read(source), most_rows=most, watch=watch)


# --- prompts with images ----------------------------------------------------------------------------------------------
class TextRun(NamedTuple):
    """A text with the spans in which names of control tokens are tokens."""

    text: str
    trusted: tuple[Span, ...] = ()


Runs = list["TextRun | TokenIds | EncodedImage"]


def mixed_runs(model: LoadedModel, prompt: Sequence[object], name: str, watch: Watch) -> Runs:
    """The parts of a list of texts, ids and images. Raises OptionError, ImageError."""
    runs: Runs = []
    ids: list[object] = []
    for part in [*prompt, ""]:
        if isinstance(part, str | images.Image) and ids:
            runs.append(checked_ids(cast("Sequence[int]", ids), model.n_vocab, name=name))
            ids = []
        if isinstance(part, images.Image):
            runs.append(encode_image(model, part, watch=watch))
        elif isinstance(part, str):
            runs.append(TextRun(part))
        else:
            ids.append(part)
    return runs


def with_marks(model: LoadedModel, messages: Sequence[Message], watch: Watch) -> tuple[list[Message], dict[str, EncodedImage]]:
    """Messages whose images are marks in texts, which nobody can have written, and the image of each mark."""
    found: dict[str, EncodedImage] = {}
    key = secrets.token_hex(8)

    def marked(part: object) -> object:
        source = _image_of(part)
        if source is None:
            return part
        mark = f"[image {key} {len(found)}]"
        found[mark] = encode_image(model, source, watch=watch)
        return {"type": "text", "text": mark}

    plain: list[Message] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list | tuple) and any(_image_of(part) is not None for part in content):
            message = {**message, "content": [marked(part) for part in content]}
        plain.append(message)
    return plain, found


def _image_of(part: object) -> images.Image | None:
    """The image of a content part: {"type": "image", "image": ...}, or OpenAI's image_url. Raises OptionError where it has none."""
    if not isinstance(part, Mapping) or part.get("type") not in ("image", "image_url", "input_image"):
        return None
    source = part.get("image", part.get("image_url"))
    if isinstance(source, Mapping):
        source = source.get("url")
    if source is None:
        raise OptionError('a part of the type image has no image; give {"type": "image", "image": "picture.png"}.')
    return source if isinstance(source, images.Image) else images.Image(source)


def marked_runs(model: LoadedModel, rendered: Rendered, found: Mapping[str, EncodedImage]) -> Runs:
    """A rendered conversation cut at its marks. Raises TemplateError where the template left one out."""
    trusted = rendered.trusted
    if not any(map(model.tokenizer.may_form_control, rendered.given)):
        trusted = ((0, len(rendered.text)),)
    runs, at = Runs(), 0
    places = sorted((rendered.text.find(mark), mark) for mark in found)
    for place, mark in places:
        if place < 0:
            raise TemplateError("the chat template leaves images out of the prompt; put the image into a message of the user.")
        runs += [_slice(rendered.text, trusted, at, place), found[mark]]
        at = place + len(mark)
    return [*runs, _slice(rendered.text, trusted, at, len(rendered.text))]


def _slice(text: str, trusted: Sequence[Span], first: int, end: int) -> TextRun:
    spans = ((max(a, first) - first, min(b, end) - first) for a, b in trusted)
    return TextRun(text[first:end], tuple((a, b) for a, b in spans if a < b))


def woven(model: LoadedModel, runs: Runs) -> tuple[TokenIds, PromptVectors | None]:
    """The ids of a prompt and the vectors in it: texts beside each other are tokenized together. Raises OptionError."""
    ids, rows, places = list[TokenIds](), list[Rows](), list[npt.NDArray[np.int64]]()
    pending, at = TextRun(""), 0

    def add_text(run: TextRun) -> None:
        nonlocal pending
        n = len(pending.text)
        pending = TextRun(pending.text + run.text, (*pending.trusted, *((a + n, b + n) for a, b in run.trusted)))

    def add_ids(found: TokenIds) -> None:
        nonlocal at
        ids.append(found)
        places.append(np.repeat(np.arange(at, at + len(found))[:, None], 3, axis=1))
        at += len(found)

    def flush() -> None:
        nonlocal pending
        if pending.text or not ids:
            first = not ids
            found = model.tokenizer.encode_trusted(pending.text, pending.trusted, add_special=first)
            bos = model.tokenizer.bos_id
            if first and bos is not None and found[:2] == [bos, bos]:  # the template has written one
                found = found[1:]
            add_ids(np.array(found, np.int32))
        pending = TextRun("")

    for run in runs:
        if isinstance(run, TextRun):
            add_text(run)
        elif isinstance(run, np.ndarray):
            flush()
            add_ids(run)
        else:
            for number, piece in enumerate(run.pieces):
                if isinstance(piece, str):
                    add_text(TextRun(piece, ((0, len(piece)),)))
                    continue
                flush()
                ids.append(_names(run.fingerprint, number, len(piece.rows)))
                rows.append(piece.rows)
                y, x = (each.ravel() for each in np.indices(piece.grid))
                places.append(np.stack([np.full_like(y, at), at + y, at + x], axis=1))
                at += max(piece.grid)
    flush()
    joined = np.concatenate(ids)
    if not len(joined):
        raise OptionError("the prompt is empty, and this model has no token that begins a text; give some text or token ids.")
    if not rows:
        return joined, None
    which = np.where(joined < 0, np.cumsum(joined < 0) - 1, -1).astype(np.int32)
    coordinates = np.concatenate(places) if model.turns_by_axes else None
    numbers = None
    if model.encoder is not None and model.encoder.spec.both_ways:
        many = [-1 if each[0] >= 0 else number for number, each in enumerate(ids) if len(each)]
        numbers = np.repeat(np.array(many, np.int32), [len(each) for each in ids if len(each)])
    return joined, PromptVectors(Given(which, np.concatenate(rows), coordinates, numbers), at - len(joined))


def _names(fingerprint: bytes, piece: int, n: int) -> TokenIds:
    """Negative numbers for the rows of an image, by which prefixes of conversations are compared: 31 bits of a hash for each."""
    digest = hashlib.shake_256(fingerprint + piece.to_bytes(4, "little") + n.to_bytes(4, "little")).digest(4 * n)
    return (-1 - (np.frombuffer(digest, np.uint32) & 0x7FFFFFFE).astype(np.int64)).astype(np.int32)
