"""The header of a GGUF model from the first bytes of its files: for models that are not here yet."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from struct import error as StructError

import numpy as np

from .errors import FormatError, Truncated
from .gguf import GGUFFile
from .gguf_header import Header, read_header
from .gguf_split import merge
from .mapped import MappedFile

NEAR_END = 1 << 17  # bytes: a fault this near the end may be a key or text that is cut short


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first bytes of a file: what to call it, its bytes so far, and its whole size."""

    name: str
    data: bytes
    size: int


class _Beginning(MappedFile):
    """A file of which only the first bytes are here; past them the map ends and nothing may be read."""

    def __init__(self, prefix: Prefix) -> None:
        self.path, self.size = prefix.name, prefix.size
        self._map = mmap.mmap(-1, len(prefix.data))
        self._map.write(prefix.data)
        self._data = np.frombuffer(self._map, np.uint8)

    def changed(self) -> bool:
        return False

    def close(self) -> None:
        self._data = self._map = None


def gguf_from_prefixes(parts: Sequence[Prefix]) -> GGUFFile | None:
    """The model that all files of `parts` are, in order; None if a header is longer than what is here of it.

    Its metadata and tensors are those of the whole model; the tensors' bytes are not there. Raises the FormatErrors for headers
    that no more bytes could mend.
    """
    for prefix in parts:
        if not prefix.size:
            raise Truncated("the file is empty; its makers must put it there again", file=prefix.name, offset=0)
        if not prefix.data:
            return None
    files: list[MappedFile] = [_Beginning(prefix) for prefix in parts]
    headers: list[Header] = []
    for index, (file, prefix) in enumerate(zip(files, parts, strict=True)):
        whole = len(prefix.data) >= prefix.size
        try:
            header = read_header(file, index)
        except FormatError as error:
            if whole or (error.offset or 0) < len(prefix.data) - NEAR_END:
                raise
            return None
        except StructError:  # a number past the end
            return None
        if not whole and header.tensors and header.tensors[0].offset > len(prefix.data):
            return None  # the list of tensors ends where their data begin
        headers.append(header)
    return GGUFFile(files, headers, merge([file.path for file in files], headers))
