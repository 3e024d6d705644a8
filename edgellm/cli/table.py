"""Rows of text in columns, for terminals and pipes alike."""
from __future__ import annotations

from collections.abc import Sequence

from edgellm.cli.terminal import clean


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lines with columns as wide as their widest cell; those numbered in `right` are set to the right."""
    cells = [[clean(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = ["  ".join(_set(cell, widths[k], k in right) for k, cell in enumerate(row)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _set(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)
