"""How many columns of a scan's state lie together: a row of them for each number of a column's state."""

from __future__ import annotations

from typing import Final

OF_COLUMNS: Final = 16  # where every column decays in its own way
OF_HEADS: Final = 32  # where those of a head decay alike
