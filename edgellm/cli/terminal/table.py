"""Rows of text in columns, as wide as the terminal allows; into pipes and files as wide as they are."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from edgellm.cli.terminal.filter import clean

BETWEEN = "  "


def line_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is a pipe or file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, indent: int = 0) -> str:
    """A sentence over as many lines as the terminal needs; all but the first are indented."""
    width = line_width()
    if width is None or len(text) <= width:
        return text
    return textwrap.fill(
        text, max(width, 2 * indent), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), optional: Sequence[int] = ()) -> str:
    """Lines with columns as wide as their widest cell; those numbered in `right` are set to the right.

    On a terminal that is too narrow, the columns of `optional` are left out one after the other; where that is not enough, the
    first column, which names the row, gets a line of its own.
    """
    cells = [[clean(cell) for cell in row] for row in (head, *rows)]
    kept, width = list(range(len(head))), line_width()
    for column in optional:
        if width is None or _width(cells, kept) <= width:
            break
        kept.remove(column)
    if width is not None and _width(cells, kept) > width:
        return _stacked(cells, [column for column in kept if column], right)
    return "\n".join(_lines(cells, kept, right))


def _stacked(cells: Sequence[Sequence[str]], kept: Sequence[int], right: Sequence[int]) -> str:
    below = _lines(cells, kept, right)
    return "\n".join(f"{row[0]}\n    {line}" for row, line in zip(cells, below, strict=True))


def _lines(cells: Sequence[Sequence[str]], kept: Sequence[int], right: Sequence[int]) -> list[str]:
    widths = {column: max(len(row[column]) for row in cells) for column in kept}
    lines = (BETWEEN.join(_set(row[k], widths[k], k in right) for k in kept) for row in cells)
    return [line.rstrip() for line in lines]


def _width(cells: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    return max(len(line) for line in _lines(cells, kept, ()))


def _set(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
