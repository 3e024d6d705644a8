"""Images and audio in prompts: encoded, and their rows put in the place of tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from edgellm.api.context_policy import Mark
from edgellm.arguments import as_int
from edgellm.chat import audio, images
from edgellm.chat.media import decoded
from edgellm.chat.provenance import Span
from edgellm.chat.templates import AUDIO_PARTS, IMAGE_PARTS, Message, Rendered
from edgellm.engine.prompts import UNWATCHED, PromptVectors, TokenIds, Watch, checked_ids
from edgellm.errors import AudioError, OptionError, OptionValue, TemplateError
from edgellm.loading.encoder import Encoded, Rows, RowsOfClip, RowsOfLines
from edgellm.loading.loaded import LoadedModel
from edgellm.memory.pictures import CLIP, MORE
from edgellm.ops._spec import Given

MOST_ROWS = 16384  # of an image
Medium = images.Image | audio.Audio


def encode_image(
    model: LoadedModel, image: images.Source | images.Image, image_tokens: int | None = None, watch: Watch = UNWATCHED
) -> Encoded:
    """See `Model.embed_image`."""
    if model.encoders.image is None:
        convert = "write it with edgellm convert DIR DIR/mmproj-model.gguf --mmproj"
        get = convert if model.path.is_dir() else "download its projector"
        raise OptionError(
            f"this model takes no images: there is no projector (mmproj-*.gguf) beside it; {get}, or give ",
            OptionValue("mmproj", "FILE"),
            ".",
        )
    source = image.data if isinstance(image, images.Image) else image
    if isinstance(image, images.Image) and image_tokens is None:
        image_tokens = image.tokens
    most = None if image_tokens is None else as_int(image_tokens)
    if image_tokens is not None and (most is None or not 1 <= most <= MOST_ROWS):
        raise OptionError(option="image_tokens", value=image_tokens, advice=f"give a number from 1 to {MOST_ROWS}")
    return model.encoders.image.encode(images.read(source), most_rows=most, watch=watch)


def encode_audio(model: LoadedModel, clip: audio.Source | audio.Audio, watch: Watch = UNWATCHED) -> Encoded:
    """See `Model.embed_audio`."""
    if model.encoders.audio is None:
        raise OptionError(
            "this model takes no audio: there is no projector (mmproj-*.gguf) with an audio encoder beside it; download its "
            "projector, or give ",
            OptionValue("mmproj", "FILE"),
            ".",
        )
    return model.encoders.audio.encode(audio.read(clip if isinstance(clip, audio.Audio) else audio.Audio(clip)), watch=watch)


def encode(model: LoadedModel, medium: Medium, watch: Watch) -> Encoded:
    """The rows of an image or a clip. Raises OptionError, ImageError, AudioError."""
    return encode_audio(model, medium, watch) if isinstance(medium, audio.Audio) else encode_image(model, medium, watch=watch)


# --- prompts with images and audio ----------------------------------------------------------------------------------------------
class TextRun(NamedTuple):
    """A text with the spans in which names of control tokens are tokens."""

    text: str
    trusted: tuple[Span, ...] = ()


Runs = list["TextRun | TokenIds | Encoded"]
MEDIA = (images.Image, audio.Audio)


def is_mixed(prompt: Sequence[object]) -> bool:
    """True if it has texts, images or audio, not ids alone."""
    return any(isinstance(part, (str, *MEDIA)) for part in prompt)


def mixed_runs(model: LoadedModel, prompt: Sequence[object], name: str, watch: Watch) -> Runs:
    """The parts of a list of texts, ids, images and audio. Raises OptionError, ImageError, AudioError."""
    runs: Runs = []
    ids: list[object] = []
    for part in [*prompt, ""]:
        if isinstance(part, (str, *MEDIA)) and ids:
            runs.append(checked_ids(cast("Sequence[int]", ids), model.n_vocab, name=name))
            ids = []
        if isinstance(part, MEDIA):
            runs.append(encode(model, part, watch))
        elif isinstance(part, str):
            runs.append(TextRun(part))
        else:
            ids.append(part)
    return runs


def with_marks(model: LoadedModel, messages: Sequence[Message], watch: Watch) -> tuple[list[Message], dict[str, Encoded]]:
    """Messages whose images and clips are marks in texts, which nobody can have written, and what each mark stands for."""
    found: dict[str, Encoded] = {}
    key = secrets.token_hex(8)

    def marked(part: object) -> object:
        medium = _medium_of(part)
        if medium is None:
            return part
        mark = f"[medium {key} {len(found)}]"
        found[mark] = encode(model, medium, watch)
        return {"type": "text", "text": mark}

    plain: list[Message] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, list | tuple) and any(_medium_of(part) is not None for part in content):
            message = {**message, "content": [marked(part) for part in content]}
        plain.append(message)
    return plain, found


def _medium_of(part: object) -> Medium | None:
    """The image of a content part: {"type": "image", "image": ...}, or OpenAI's image_url; the clip of {"type": "audio", "audio":
    ...}, or OpenAI's input_audio. Raises OptionError where it has none, AudioError.
    """
    if isinstance(part, Mapping) and part.get("type") in AUDIO_PARTS:
        return _clip_of(part)
    if not isinstance(part, Mapping) or part.get("type") not in IMAGE_PARTS:
        return None
    source = part.get("image", part.get("image_url"))
    if isinstance(source, Mapping):
        source = source.get("url")
    if source is None:
        raise OptionError('a part of the type image has no image; give {"type": "image", "image": "picture.png"}.')
    return source if isinstance(source, images.Image) else images.Image(source)


def _clip_of(part: Mapping[str, object]) -> audio.Audio:
    source = part.get("audio", part.get("input_audio"))
    if isinstance(source, Mapping):
        data = source.get("data")
        source = decoded(data, "the data of input_audio", AudioError) if isinstance(data, str) else data
    if source is None:
        raise OptionError('a part of the type audio has no audio; give {"type": "audio", "audio": "clip.wav"}.')
    return source if isinstance(source, audio.Audio) else audio.Audio(cast("audio.Source", source))


def marked_runs(model: LoadedModel, rendered: Rendered, found: Mapping[str, Encoded]) -> Runs:
    """A rendered conversation cut at its marks. Raises TemplateError where the template left one out."""
    trusted = rendered.trusted
    if not any(map(model.tokenizer.may_form_control, rendered.given)):
        trusted = ((0, len(rendered.text)),)
    runs, at = Runs(), 0
    places = sorted((rendered.text.find(mark), mark) for mark in found)
    for place, mark in places:
        if place < 0:
            raise TemplateError("the chat template leaves images or audio out of the prompt; put them into a message of the user.")
        runs += [_slice(rendered.text, trusted, at, place), found[mark]]
        at = place + len(mark)
    return [*runs, _slice(rendered.text, trusted, at, len(rendered.text))]


def _numbered(model: LoadedModel, number: int) -> str:
    """The text before a prompt's image of this number, of models that number them."""
    return "" if model.encoders.image is None else model.encoders.image.spec.number.format(number=number)


def marks_of(model: LoadedModel, rendered: Rendered, found: Mapping[str, Encoded]) -> tuple[Mark, ...]:
    """The places of images and clips in a rendered conversation, in order."""

    images_before = np.cumsum([0, *(one.is_image for one in found.values())]).tolist()

    def mark(number: int, text: str, one: Encoded) -> Mark:
        start = rendered.text.find(text)
        around = "".join(piece for piece in one.pieces if isinstance(piece, str))
        around = _numbered(model, number) + around if one.is_image else around
        rows = sum(len(piece.rows) for piece in one.pieces if not isinstance(piece, str))
        return Mark(start, start + len(text), rows + len(model.tokenizer.encode(around, parse_special=True)))

    return tuple(sorted(mark(number, text, one) for number, (text, one) in zip(images_before, found.items(), strict=False)))


def _slice(text: str, trusted: Sequence[Span], first: int, end: int) -> TextRun:
    spans = ((max(a, first) - first, min(b, end) - first) for a, b in trusted)
    return TextRun(text[first:end], tuple((a, b) for a, b in spans if a < b))


def woven(model: LoadedModel, runs: Runs) -> tuple[TokenIds, PromptVectors | None]:
    """The ids of a prompt and the vectors in it: texts beside each other are tokenized together. Raises OptionError."""
    ids, rows, places, images_before = list[TokenIds](), list[Rows](), list[npt.NDArray[np.int64]](), 0
    axes = 4 if model.encoders.image is not None and model.encoders.image.spec.line_rows else 3
    pending, at, seen_both_ways = TextRun(""), 0, set[int]()  # numbers of images in `ids`

    def add_text(run: TextRun) -> None:
        nonlocal pending
        n = len(pending.text)
        pending = TextRun(pending.text + run.text, (*pending.trusted, *((a + n, b + n) for a, b in run.trusted)))

    def add_places(n: int) -> None:
        nonlocal at
        places.append(np.repeat(np.arange(at, at + n)[:, None], axes, axis=1))
        at += n

    def add_ids(found: TokenIds) -> None:
        ids.append(found)
        add_places(len(found))

    def add_mark(text: str) -> None:
        if model.info.has_tokenizer:  # else the ids around a picture are the caller's
            add_text(TextRun(text, ((0, len(text)),)))

    def flush() -> None:
        nonlocal pending
        if pending.text or (not ids and model.info.has_tokenizer):
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
            if run.is_image:
                add_mark(_numbered(model, images_before))
                images_before += 1
            last = max(number for number, piece in enumerate(run.pieces) if not isinstance(piece, str))
            for number, piece in enumerate(run.pieces):
                if isinstance(piece, str):
                    add_mark(piece)
                    continue
                flush()
                ids.append(_names(run, number, len(piece.rows), more=number < last))
                rows.append(np.pad(piece.rows, ((0, 0), (0, model.encoders.width - piece.rows.shape[1]))))
                if isinstance(piece, RowsOfClip | RowsOfLines):
                    add_places(len(piece.rows))
                    if isinstance(piece, RowsOfLines):
                        y, x = (each.ravel() for each in np.indices(piece.grid))
                        places[-1][1:-1, 1:] = np.stack([x, y, np.full_like(y, images_before - 1)], axis=1)
                    continue
                seen_both_ways.add(len(ids) - 1)
                y, x = (each.ravel() for each in np.indices(piece.grid))
                places.append(np.stack([np.full_like(y, at), at + y, at + x], axis=1))
                at += max(piece.grid)
    flush()
    joined = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    if not len(joined):
        raise OptionError("the prompt is empty, and this model has no token that begins a text; give some text or token ids.")
    if not rows:
        return joined, None
    which = np.where(joined < 0, np.cumsum(joined < 0) - 1, -1).astype(np.int32)
    coordinates = np.concatenate(places) if model.turns_by_axes else None
    numbers = None
    if model.encoders.image is not None and model.encoders.image.spec.both_ways:
        many = [number if number in seen_both_ways else -1 for number, each in enumerate(ids) if len(each)]
        numbers = np.repeat(np.array(many, np.int32), [len(each) for each in ids if len(each)])
    return joined, PromptVectors(Given(which, np.concatenate(rows), coordinates, numbers), at - len(joined))


def _names(run: Encoded, piece: int, n: int, *, more: bool) -> TokenIds:
    """Negative numbers for the rows of an image or clip, by which prefixes of conversations are compared: 29 bits of a hash for
    each, and the bits of memory/pictures.py. `more`: the picture has further images.
    """
    digest = hashlib.shake_256(run.fingerprint + piece.to_bytes(4, "little") + n.to_bytes(4, "little")).digest(4 * n)
    numbers = (np.frombuffer(digest, np.uint32) & 0x7FFFFFFC).astype(np.int64) | MORE | (0 if run.is_image else CLIP)
    numbers[-1] &= -1 if more else ~MORE
    return (-1 - numbers).astype(np.int32)
