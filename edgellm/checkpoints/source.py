"""Which of a checkpoint's tensors one of GGUF's is made of, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgellm.checkpoints.families import Shape, Slice, rows_of
from edgellm.errors import BadHParam, ShapeMismatch
from edgellm.formats.ggml_types import GGMLType, row_bytes
from edgellm.formats.mapped import Bytes
from edgellm.formats.safetensors import SafeTensorsFile

Rows = npt.NDArray[np.int64]
Config = Mapping[str, Any]  # Any: parsed JSON
WHOLE = Slice()


@dataclass(frozen=True, slots=True)
class Source:
    """`name`, and `others` that follow in the same tensor (experts); shape (NumPy order) and type of all of them together.

    `rows`, `columns`: which, in which order, None as they are. `shape`: after that, before the last two dimensions are `turned`.
    """

    name: str
    others: tuple[str, ...]
    type: GGMLType
    whole: Shape
    shape: Shape
    piece: Slice = WHOLE
    rows: Rows | None = None
    columns: Rows | None = None
    turned: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.others

    @property
    def out(self) -> Shape:
        """The shape of GGUF's tensor."""
        return (*self.shape[:-2], self.shape[-1], self.shape[-2]) if self.turned else self.shape

    @property
    def is_view(self) -> bool:
        return not self.others and self.rows is None and self.columns is None and not self.turned

    @property
    def is_stack(self) -> bool:
        """True if several tensors are concatenated, and nothing else changes."""
        return bool(self.others) and self.rows is None and replace(self, others=()).only_rows

    @property
    def only_rows(self) -> bool:
        """True if only the order of rows changes, so that packed rows can be moved as they are."""
        return (
            not self.others and self.columns is None and not self.turned and self.piece.values is None and self.piece.shape is None
        )

    def raw(self, file: SafeTensorsFile) -> Bytes:
        """The bytes in the checkpoint's type, before `piece.values`; a view where nothing changes."""
        data = file.raw(self.name) if not self.others else np.concatenate([file.raw(name) for name in self.names])
        if self.rows is not None:
            data = data.reshape(rows_of(self.whole), -1)[self.rows].reshape(-1)
        if self.columns is not None or self.turned:
            words = data.view(f"u{self.type.block_bytes}")
            if self.columns is not None:
                words = words.reshape(-1, self.whole[-1])[:, self.columns]
            if self.turned:
                words = words.reshape(self.shape).swapaxes(-1, -2)
            data = np.ascontiguousarray(words).reshape(-1).view(np.uint8)
        return data


def source_of(
    names: tuple[str, ...],
    kind: GGMLType,
    whole: Shape,
    piece: Slice,
    config: Config,
    file: str,
    *,
    rows: Rows | None = None,
    turned: bool = False,
) -> Source:
    """Where a tensor comes from. Raises BadHParam and ShapeMismatch where the configuration does not fit the shape."""
    try:
        rows = rows if piece.rows is None else piece.rows(config, whole)
        columns = None if piece.columns is None else piece.columns(config, whole)
        turned = turned or (piece.turned if isinstance(piece.turned, bool) else piece.turned(config, whole))
        n_rows = rows_of(whole) if rows is None else len(rows)
        n_columns = whole[-1] if columns is None else len(columns)
        plain = (n_rows,) if len(whole) < 2 else (*whole[:-2], n_rows // max(math.prod(whole[:-2]), 1), n_columns)
        shape = plain if piece.shape is None else piece.shape(config, plain)
    except KeyError as error:
        raise BadHParam("config.json lacks it; download the folder again", file=file, field=str(error.args[0])) from error
    except (TypeError, ValueError, ZeroDivisionError, IndexError) as error:
        raise ShapeMismatch(
            f"the shape {whole} does not fit what config.json says ({str(error)[:60]}); download the folder again",
            file=file,
            field=names[0],
        ) from error
    elements = n_rows * (n_columns if len(whole) > 1 else 1)
    changes = columns is not None or turned or piece.shape is not None
    if math.prod(shape) != elements or (turned and len(shape) < 2) or (changes and kind.block > 1):
        raise ShapeMismatch(
            f"the shape {whole} as {kind.name} does not fit the model's {shape}; download the folder again",
            file=file,
            field=names[0],
        )
    if rows is not None and (len(rows) == 0 or rows.min() < 0 or rows.max() >= rows_of(whole)):
        raise ShapeMismatch(f"the shape {whole} has too few rows; download the folder again", file=file, field=names[0])
    return Source(names[0], names[1:], kind, whole, shape, piece, rows, columns, turned)


def nbytes_of(kind: GGMLType, shape: Shape) -> int:
    return math.prod(shape[:-1]) * row_bytes(kind, shape[-1]) if shape else kind.block_bytes
