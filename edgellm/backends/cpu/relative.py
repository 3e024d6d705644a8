"""How biases of scores by distance lie in memory: a row for each head, from keys long before a query to keys long after it."""

from __future__ import annotations

from typing import Final

RELATIVE_FIRST: Final = 144  # where the bias of distance 0 is: 128 before it differ, 16 more are the first's
RELATIVE_ROW: Final = 2 * RELATIVE_FIRST  # biases of a row, so that 16 keys from any distance on have theirs in one piece
