"""Models split over files `NAME-00001-of-000NN.gguf`: finds the parts, checks that they belong together, merges them.

Keys and naming: `llama_split_path` and `gguf-split` of llama.cpp.
"""

from __future__ import annotations

import os
import re

from .errors import BadHParam, Duplicate, LimitExceeded, Truncated, Unsupported
from .gguf_header import Header
from .gguf_tensors import TensorInfo
from .gguf_values import ARRAY, TYPE_NAMES

NO, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"
COMPARED_BYTES = 1 << 16  # of a text that parts repeat
MAX_PARTS = 1024  # llama.cpp's largest published models have fewer than 100
_NAME = re.compile(r"(?s)(.*)-(\d{5})-of-(\d{5})\.gguf")
_STRANGERS = "the parts do not belong together, download them again"
_INTEGERS = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"}


def split_paths(path: str, header: Header) -> list[str]:
    """The paths of all parts of the model that `path` belongs to, in order; [path] if it is not split.

    Raises BadHParam, LimitExceeded, Unsupported (the file's name is not its part's) and Truncated (a part is missing).
    """
    count = _integer(path, header, COUNT)
    if count is None or count <= 1:
        return [path]
    if count > MAX_PARTS:
        raise LimitExceeded(f"{count} parts are more than any real model has ({MAX_PARTS})", file=path, field=COUNT)
    number = _integer(path, header, NO)
    if number is None or number >= count:
        raise BadHParam(f"is {number} in a model of {count} parts; make the files again", file=path, field=NO)
    folder, name = os.path.split(path)
    match = _NAME.fullmatch(name)
    if match is None or (int(match[2]), int(match[3])) != (number + 1, count):
        needed = f"NAME-{number + 1:05d}-of-{count:05d}.gguf"
        message = f"is part {number + 1} of {count} under another name; rename it to {needed}"
        raise Unsupported(message, file=path, field=NO)
    paths = [os.path.join(folder, f"{match[1]}-{part + 1:05d}-of-{count:05d}.gguf") for part in range(count)]
    paths[number] = path
    for part, other in enumerate(paths):
        if not os.path.exists(other):
            missing = os.path.basename(other)
            raise Truncated(
                f"part {part + 1} of {count} is missing: {missing}; put all parts in one folder", file=path, field=COUNT
            )
    return paths


def check_part(path: str, header: Header, part: int, count: int) -> None:
    """Raise BadHParam unless the file says that it is part number `part` (from 0) of `count`."""
    for key, expected in ((NO, part), (COUNT, count)):
        if (value := _integer(path, header, key)) != expected:
            raise BadHParam(f"is {value} where {expected} is expected; {_STRANGERS}", file=path, field=key)


def merge(paths: list[str], headers: list[Header]) -> dict[str, TensorInfo]:
    """The tensors of all parts by name. Raises Duplicate, and BadHParam if their number is not the declared one, or a part
    contradicts the first one's keys.
    """
    tensors: dict[str, TensorInfo] = {}
    for path, header in zip(paths, headers, strict=True):
        if header is not headers[0]:
            _check_keys(path, header, headers[0])
        for info in header.tensors:
            if info.name in tensors:
                other = paths[tensors[info.name].part]
                raise Duplicate(f"the tensor is also in {other}; {_STRANGERS}", file=path, field=info.name)
            tensors[info.name] = info
    declared = _integer(paths[0], headers[0], TENSORS) if len(paths) > 1 else None
    if declared is not None and declared != len(tensors):
        raise BadHParam(
            f"is {declared} and the {len(paths)} parts hold {len(tensors)} tensors; {_STRANGERS}", file=paths[0], field=TENSORS
        )
    return tensors


def _check_keys(path: str, header: Header, first: Header) -> None:
    """Parts after the first usually have no keys; numbers and names that they repeat have the same values. Raises BadHParam."""
    for key, kind in header.types.items():
        if key in first.types and not key.startswith("split.") and kind != ARRAY:
            if max(part.metadata.text_bytes(key) for part in (header, first)) > COMPARED_BYTES:
                continue
            value, known = str(header.metadata[key]), str(first.metadata[key])
            if value != known:
                message = f"is {value[:80]!r} here and {known[:80]!r} in the first part; {_STRANGERS}"
                raise BadHParam(message, file=path, field=key)


def _integer(path: str, header: Header, key: str) -> int | None:
    if key not in header.types:
        return None
    kind = TYPE_NAMES[header.types[key]]
    if kind not in _INTEGERS:
        raise BadHParam(f"has type {kind} and must be an integer; make the file again", file=path, field=key)
    value = int(header.metadata[key])
    if value < 0:
        raise BadHParam(f"is {value} and cannot be negative; make the file again", file=path, field=key)
    return value
