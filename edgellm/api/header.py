"""The header of a model file, for programs that list models before they load any."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgellm.arch import embeds
from edgellm.catalogue import resolve
from edgellm.chat import Thinking, template_variants, thinking_of
from edgellm.checkpoints.opening import open_model
from edgellm.errors import EdgeError
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_file_type import file_type
from edgellm.formats.gguf_values import StringArray
from edgellm.loading.projector import media_beside
from edgellm.tokenizer.special_texts import FILL_IN_ROLES

FILL_IN = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")
LONGEST = 4096  # characters of a text among the metadata


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """`metadata`: the file's keys with texts, numbers and truth values; lists and long texts are left out."""

    path: Path
    name: str  # `general.name`, else the file's
    architecture: str
    parameters: int
    file_bytes: int
    type: str  # of most of its tensors
    context_train: int  # tokens, 0 where the file does not say
    template: str  # its chat template, "" without one
    tools: bool  # whether the template shows tools
    thinking: Thinking
    embedding: bool  # whether it makes vectors of texts
    fill_in: bool  # whether the vocabulary has tokens for filling in the middle
    vision: bool  # whether a projector for images lies beside it
    audio: bool  # whether one for clips does
    metadata: Mapping[str, str | int | float | bool]


def read_header(path_or_name: str | os.PathLike[str]) -> ModelHeader:
    """The header of a model file, found as `load` finds it. Raises ModelNotFound, and a FormatError for a damaged file."""
    path = resolve(path_or_name)
    vision, audio = media_beside(path)
    with open_model(path) as gguf:
        plain = {
            key: value
            for key, value in gguf.metadata.items()
            if isinstance(value, str | int | float) and not (isinstance(value, str) and len(value) > LONGEST)
        }
        architecture, name = plain.get("general.architecture"), plain.get("general.name")
        variants = template_variants(gguf.metadata, file=str(path))
        template = variants.get("default", "") or next(iter(variants.values()), "")
        context = plain.get(f"{architecture}.context_length")
        return ModelHeader(
            path=path,
            name=name if isinstance(name, str) else path.stem,
            architecture=str(architecture or ""),
            parameters=sum(math.prod(tensor.shape) for tensor in gguf.tensors.values()),
            file_bytes=gguf.nbytes,
            type=file_type(gguf),
            context_train=context if isinstance(context, int) else 0,
            template=template,
            tools="tools" in template,
            thinking=thinking_of(template),
            embedding=_embeds(gguf),
            fill_in=any(key in plain for key in FILL_IN) or _names_fill_in(gguf),
            vision=vision,
            audio=audio,
            metadata=plain,
        )


def _names_fill_in(gguf: GGUFFile) -> bool:
    """True if one of its tokens has a text with which families begin a prefix."""
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    data = tokens.encoded() if isinstance(tokens, StringArray) else b""
    return any(len(text).to_bytes(8, "little") + text in data for text in map(str.encode, FILL_IN_ROLES["prefix"]))


def _embeds(gguf: GGUFFile) -> bool:
    try:
        return embeds(gguf)
    except EdgeError:  # an architecture that cannot be run
        return False
