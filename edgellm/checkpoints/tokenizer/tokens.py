"""Tokens by id with their types, as GGUF lists them, and the text files that they are read from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from edgellm.errors import BadVocab
from edgellm.formats.mapped import MappedFile
from edgellm.formats.safetensors import read_json

Json = Mapping[str, Any]  # Any: parsed JSON
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MAX_BYTES = 64 << 20  # the largest published vocabularies have 20 MiB


class Tokens:
    """Texts and types of as many tokens as the embedding has rows. `path`: the file that names them."""

    def __init__(self, rows: int, path: str) -> None:
        self.texts, self.types, self.path = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows, path

    def put(self, token: Any, text: Any, kind: int) -> None:
        """Raises BadVocab for an id without a row."""
        if type(token) is not int or not 0 <= token < len(self.texts) or not isinstance(text, str):
            raise BadVocab(
                f"the token {str(text)[:40]!r} has the id {str(token)[:40]!r}, but the embedding has {len(self.texts)} rows; "
                "download the folder again",
                file=self.path,
                field="vocab",
            )
        self.texts[token], self.types[token] = text, kind

    def add(self, whole: Json, *, but: Any = None) -> None:
        """Enter the added tokens of a tokenizer.json except the one with the id `but`.

        Tokens beyond the last row never occur, such as Gemma 3's for images in models that see none.
        """
        for entry in entries(whole.get("added_tokens")):
            token, beyond = entry.get("id"), type(entry.get("id")) is int and entry["id"] >= len(self.texts)
            if isinstance(entry.get("content"), str) and not beyond and (but is None or token != but):
                self.put(token, entry["content"], CONTROL if entry.get("special") else USER)

    @property
    def keys(self) -> dict[str, Any]:
        return {"tokens": self.texts, "token_type": self.types}


def entries(listed: Any) -> Iterator[Json]:
    """The objects of a list."""
    return (entry for entry in listed if isinstance(entry, Mapping)) if isinstance(listed, list) else iter(())


def text_of(entry: Any) -> Any:
    """The text of a token that tokenizer_config.json names as a text or as an object."""
    return entry.get("content") if isinstance(entry, Mapping) else entry


def is_number(value: Any) -> bool:
    """True if a value of JSON is a number that float32 holds."""
    return type(value) in (int, float) and abs(value) < 3e38


def listed_by_id(settings: Json) -> Iterator[tuple[int, Json]]:
    """The added tokens of tokenizer_config.json, which have a text: ids and entries."""
    named = settings.get("added_tokens_decoder")
    for token, entry in named.items() if isinstance(named, Mapping) else ():
        if token.isdecimal() and len(token) < 10 and isinstance(entry, Mapping) and isinstance(entry.get("content"), str):
            yield int(token), entry


def steps(entry: Any, inner: str) -> Iterator[Json]:
    """The steps of a sequence in tokenizer.json, or the one that there is."""
    if isinstance(entry, Mapping):
        within = entry.get(inner)
        if entry.get("type") == "Sequence" and isinstance(within, list):
            for each in within:
                yield from steps(each, inner)
        else:
            yield entry


def optional(folder: str, name: str) -> Json:
    """A JSON file of the folder, {} where there is none."""
    path = os.path.join(folder, name)
    return read_json(MappedFile(path)) if os.path.isfile(path) else {}


def text_file(path: str) -> str:
    """Raises BadVocab for a file that is too large."""
    file = MappedFile(path)
    try:
        if file.size > MAX_BYTES:
            raise BadVocab(f"has {file.size} bytes, more than any vocabulary", file=path)
        return bytes(file.data).decode("utf-8", "replace")
    finally:
        file.close()
