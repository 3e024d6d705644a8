"""How MLX evaluates each op of a graph: one function per op, in files by family, found by the op's name."""

from __future__ import annotations

import importlib
import pkgutil

from edgellm.backends.mlx.ops._table import OPS

__all__ = ["OPS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
