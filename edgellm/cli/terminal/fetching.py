"""How a download is shown: a bar with speed and time left on a terminal, a line at the start elsewhere; always on stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.format_stats import size
from edgellm.cli.terminal.output import say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class FetchProgress:
    """Takes `(file, bytes here, bytes of it)` reports while its block runs; `fetched` counts the bytes that came."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.fetched = 0
        self._quiet = quiet
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._here: dict[str, int] = {}

    def __call__(self, file: str, done: int, total: int) -> None:
        """Report."""
        if file not in self._here:
            self._begin(file, done, total)
        self.fetched += max(0, done - self._here[file])
        self._here[file] = done
        if self._bars is not None:
            self._bars.update(self._tasks[file], completed=done)

    def _begin(self, file: str, done: int, total: int) -> None:
        self._here[file] = done
        if self._quiet:
            return
        if not sys.stderr.isatty():
            say(f"fetching {file} ({size(total)}{f', {size(done)} of it are here' if done else ''})")
            return
        if self._bars is None:
            self._bars = _bars()
            self._bars.start()
        self._tasks[file] = self._bars.add_task(clean(file).rpartition("/")[2], total=total, completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
    )
