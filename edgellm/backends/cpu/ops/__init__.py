"""From graph ops to records: an emitter per op and the signatures of its kernels, in files by family, found by listing it."""

from __future__ import annotations

import importlib
import pkgutil

from edgellm.backends.cpu.ops._table import EMITTERS, INTERLEAVED

__all__ = ["EMITTERS", "INTERLEAVED"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
