"""The header of one GGUF file, read with every count, length, type and offset checked before anything depends on it.

Format: ggml/docs/gguf.md; rules: `gguf_init_from_file` in ggml/src/gguf.cpp, stricter where that one accepts nonsense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import BadAlignment, BadHParam, BadMagic, BadType, BadVersion, Duplicate, LimitExceeded, Truncated
from .gguf_cursor import AGAIN, MADE, MAX_KEYS_BYTES, U32, U64, Cursor
from .gguf_tensors import MAX_TENSORS, TensorInfo, read_tensors
from .gguf_values import (
    ARRAY,
    BOOL,
    SCALARS,
    STRING,
    TYPE_NAMES,
    BadString,
    LazyNumbers,
    LazyText,
    Metadata,
    StringArray,
    scan_strings,
)
from .mapped import MappedFile

# With MAX_TENSORS and MAX_STRINGS this keeps the worst header we accept at 59 MiB (measured), 24 of them the file.
MAX_KEYS = 1 << 14  # real files have fewer than 200
MAX_KEY_BYTES = 65535  # gguf.md
MAX_STRING_BYTES = 1 << 30  # gguf.cpp
MAX_ELEMENTS = 1 << 30  # of one array: gguf.cpp
MAX_BOOLS = 1 << 20  # of one array: they are all looked at; real files have one per layer

_FOREIGN = (
    (b"<!DOC", "a web page"),
    (b"<html", "a web page"),
    (b"vers", "a Git LFS pointer, which stands for the file"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint"),
    (b"\x80", "a Python pickle"),
    (b"ggml", "GGML, an older format"),
    (b"lmgg", "GGML, an older format"),
    (b"tjgg", "GGJT, an older format"),
    (b"fmgg", "GGMF, an older format"),
    (b"FUGG", "GGUF with its bytes swapped"),
)


@dataclass(frozen=True, slots=True)
class Header:
    """The declarations of one GGUF file: its `version`, `alignment` (bytes), metadata, and tensors in file order."""

    version: int
    alignment: int
    metadata: Metadata
    types: dict[str, int]  # GGUF value type id of each key
    tensors: tuple[TensorInfo, ...]


def read_header(file: MappedFile, part: int = 0) -> Header:
    """The header of `file`, which is split file number `part`. Raises the FormatErrors."""
    cursor = Cursor(file)
    version = _read_version(cursor)
    n_tensors = cursor.count("n_tensors", MAX_TENSORS, 8 + 1 + 4 + 4 + 8)  # name, n_dims, type, offset
    n_keys = cursor.count("n_kv", MAX_KEYS, 8 + 1 + 4 + 1)  # key, type, value
    items: dict[str, Any] = {}
    types: dict[str, int] = {}
    alignment = 32
    for index in range(n_keys):
        begin = cursor.at
        key = _read_key(cursor, index)
        if key in items:
            cursor.fail(Duplicate, f"the key occurs twice{MADE}", key, begin)
        value_at = cursor.at
        types[key] = kind = cursor.number(U32, key, "the value's type")
        items[key] = _read_value(cursor, key, kind)
        if key == "general.alignment":
            alignment = _check_alignment(cursor, kind, items[key], value_at)
    tensors = read_tensors(cursor, n_tensors, alignment, part)
    return Header(version, alignment, Metadata(file, items), types, tensors)


def _read_version(cursor: Cursor) -> int:
    start = cursor.file.buffer[:8]
    if start[:4] != b"GGUF"[: len(start)]:
        kind = next((f" but {name}" for magic, name in _FOREIGN if start.startswith(magic)), "")
        cursor.fail(BadMagic, f"not a GGUF file{kind}; give the path of a GGUF model", "magic")
    cursor.take(4, "magic", "the magic number")
    version = int(cursor.number(U32, "version", "the version"))
    if version in (2, 3):
        return version
    if version and version & 0xFFFF == 0:
        advice = "convert it with gguf_convert_endian of the gguf package"
        cursor.fail(BadVersion, f"is a big-endian GGUF file; {advice}", "version", 4)
    advice = "update edgellm" if version > 3 else "convert the original model again"
    cursor.fail(BadVersion, f"is GGUF version {version} and edgellm reads 2 and 3; {advice}", "version", 4)


def _read_key(cursor: Cursor, index: int) -> str:
    field, at = f"key {index}", cursor.at
    n = cursor.number(U64, field, "the key's length")
    if n == 0:
        cursor.fail(BadHParam, f"the key is empty{MADE}", field, at)
    if n > MAX_KEY_BYTES:
        cursor.fail(LimitExceeded, f"a key of {n} bytes is longer than {MAX_KEY_BYTES}{AGAIN}", field, at)
    raw = cursor.take(n, field, "the key")
    cursor.key_bytes_left -= n
    if cursor.key_bytes_left < 0:
        cursor.fail(LimitExceeded, f"the keys have more than {MAX_KEYS_BYTES} bytes together{MADE}", field, at)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        cursor.fail(BadHParam, f"the key {raw[:40]!r} is not UTF-8{AGAIN}", field, at)


def _read_value(cursor: Cursor, key: str, kind: int) -> Any:
    if kind == BOOL:
        byte = cursor.take(1, key, "the bool")[0]
        if byte > 1:
            cursor.fail(BadType, f"the bool is {byte} and must be 0 or 1{AGAIN}", key, cursor.at - 1)
        return byte == 1
    if kind in SCALARS:
        return cursor.number(SCALARS[kind], key, f"the {TYPE_NAMES[kind]}")
    if kind == STRING:
        return _read_string(cursor, key)
    if kind == ARRAY:
        return _read_array(cursor, key)
    cursor.fail(BadType, f"value type {kind} does not exist{AGAIN}", key, cursor.at - 4)


def _read_string(cursor: Cursor, key: str) -> LazyText:
    at = cursor.at
    n = cursor.number(U64, key, "the string's length")
    if n > MAX_STRING_BYTES:
        cursor.fail(LimitExceeded, f"a string of {n} bytes is longer than {MAX_STRING_BYTES}{AGAIN}", key, at)
    return LazyText(cursor.skip(n, key, "the string"), n)


def _read_array(cursor: Cursor, key: str) -> LazyNumbers | StringArray:
    at = cursor.at
    kind = cursor.number(U32, key, "the array's type")
    n = cursor.number(U64, key, "the array's length")
    if kind == ARRAY:
        cursor.fail(BadType, f"is an array of arrays, which no model needs{MADE}", key, at)
    if kind != STRING and kind not in SCALARS:
        cursor.fail(BadType, f"array type {kind} does not exist{AGAIN}", key, at)
    if n > {STRING: cursor.strings_left, BOOL: MAX_BOOLS}.get(kind, MAX_ELEMENTS):
        cursor.fail(LimitExceeded, f"an array of {n} elements is more than any real file has{AGAIN}", key, at + 4)
    if kind == STRING:
        return _read_strings(cursor, key, n)
    start = cursor.skip(n * SCALARS[kind].size, key, f"the array of {n} {TYPE_NAMES[kind]}")
    if kind == BOOL and n and (worst := int(cursor.file.data[start : start + n].max())) > 1:
        cursor.fail(BadType, f"a bool of the array is {worst} and must be 0 or 1{AGAIN}", key, start)
    return LazyNumbers(kind, start, n)


def _read_strings(cursor: Cursor, key: str, n: int) -> StringArray:
    cursor.need(8 * n, key, f"the array of {n} strings")
    cursor.strings_left -= n
    start = cursor.at
    try:
        ends = scan_strings(cursor.file, start, n)
    except BadString as bad:
        cursor.fail(Truncated, f"string {bad.index} of {n} runs past the end of the file{AGAIN}", key, bad.offset)
    cursor.at = start + int(ends[-1])
    return StringArray(cursor.file, start, ends)


def _check_alignment(cursor: Cursor, kind: int, value: Any, at: int) -> int:
    field = "general.alignment"
    if TYPE_NAMES[kind] != "u32":
        cursor.fail(BadAlignment, f"has type {TYPE_NAMES[kind]} and must be u32{MADE}", field, at)
    if value == 0 or value & (value - 1):
        cursor.fail(BadAlignment, f"{value} is not a power of two{MADE}", field, at + 4)
    return int(value)
