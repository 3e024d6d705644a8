"""GGUF models: opens a file or a set of split files, checks them, and leaves the tensors in the memory map.

with open_gguf("model.gguf") as gguf:
    gguf.metadata["general.architecture"], gguf.tensors["output.weight"].shape, gguf.raw("output.weight")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .gguf_header import Header, read_header
from .gguf_split import check_part, merge, split_paths
from .gguf_tensors import TensorInfo
from .gguf_values import SCALARS
from .mapped import Bytes, MappedFile, TensorFiles

__all__ = ["GGUFFile", "TensorInfo", "open_gguf"]


class GGUFFile(TensorFiles[TensorInfo]):
    """An open model: `path` (the first file's), `version`, `alignment`, `metadata`, `tensors`; their bytes by `raw`."""

    def __init__(self, files: list[MappedFile], headers: list[Header], tensors: dict[str, TensorInfo]) -> None:
        super().__init__(files, tensors)
        first = headers[0]
        self.path = files[0].path
        self.version, self.alignment = first.version, first.alignment
        self.metadata: Mapping[str, Any] = first.metadata  # Any: a value's type is the file's choice
        self._header = first

    def typed_metadata(self) -> dict[str, Any]:
        """The metadata as `GGUFWriter` takes them to write the same bytes: numbers as NumPy scalars, strings as bytes."""
        header = self._header
        return {
            key: np.dtype(SCALARS[kind].format).type(header.metadata[key]) if kind in SCALARS else header.metadata.raw(key)
            for key, kind in header.types.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def own(self, name: str) -> Bytes | None:
        """`raw`, which can be written to, where the file was copied into memory; else None."""
        info = self.tensors[name]
        file = self.files[info.part]
        return file.own[info.offset : info.offset + info.nbytes] if file.copied else None

    def companions(self, name: str) -> tuple[Any, ...]:
        """Arrays that belong to a tensor beside its bytes: none in GGUF."""
        return ()

    def unread(self) -> str:
        """A sentence on settings that nothing has read, "" where there are none, as in GGUF."""
        return ""


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF v2 or v3 file, or all files of a split model by any one of them. Raises the FormatErrors.

    150k tokens and 280k merges take about 50 ms: strings are located, not decoded. No tensor byte is touched.
    """
    files = [MappedFile(path)]
    try:
        header = read_header(files[0])
        paths = split_paths(files[0].path, header)
        if paths[0] != files[0].path:
            files.pop().close()
            files.append(MappedFile(paths[0]))
            header = read_header(files[0])
            check_part(paths[0], header, 0, len(paths))
        headers = [header]
        for part, other in enumerate(paths[1:], start=1):
            files.append(MappedFile(other))
            headers.append(read_header(files[part], part))
            check_part(other, headers[part], part, len(paths))
        return GGUFFile(files, headers, merge(paths, headers))
    except BaseException:
        for file in files:
            file.close()
        raise
