"""One codec per block type, found by listing this folder: `CODECS["Q4_0"].dequantize(raw)`."""
from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ._codec import Codec

__all__ = ["CODECS", "Codec"]

CODECS: dict[str, Codec] = {
    codec.name: codec
    for module in iter_modules(__path__) if not module.name.startswith("_")
    for codec in [import_module(f"{__name__}.{module.name}").CODEC]
}
"""Every codec by the name of its type."""
