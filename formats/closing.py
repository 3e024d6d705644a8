"""The base of what a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """A context manager that ends with `close`."""

    __slots__ = ()

    def close(self) -> None:
        """Give back what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
