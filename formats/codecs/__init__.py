"""One codec per block type, found by listing this folder: `CODECS["Q4_0"].dequantize(raw)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from ._codec import Codec

__all__ = ["CODECS", "Codec"]


class _Codecs(Mapping[str, Codec]):
    """By the name of the type; a codec's module is imported when it is first asked for, as few starts need more than one."""

    def __init__(self) -> None:
        self._modules = {
            module.name.upper(): f"{__name__}.{module.name}" for module in iter_modules(__path__) if not module.name.startswith("_")
        }

    def __getitem__(self, name: str) -> Codec:
        codec: Codec = import_module(self._modules[name]).CODEC
        return codec

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


CODECS: Mapping[str, Codec] = _Codecs()
"""Every codec by the name of its type."""
