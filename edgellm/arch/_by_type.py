"""Finds the encoders of a folder by projector type, after which their files are named: a point in a type is an underscore there."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from edgellm.errors import Unsupported

NAMES = {"qwen2_5vl_merger": "qwen2.5vl_merger", "qwen2_5o": "qwen2.5o"}  # of files, whose names have no points


def types_of(package: ModuleType) -> list[str]:
    """The projector types of a folder's files."""
    files = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    return sorted(NAMES.get(file, file) for file in files)


def encoder_of(package: ModuleType, kind: str, *, file: str, field: str, medium: str = "") -> ModuleType:
    """The module of a projector type; `field` is the key that names it. Raises Unsupported."""
    if kind not in (known := types_of(package)):
        what = f"{medium} projector type".lstrip()
        raise Unsupported(f"{what} '{kind[:64]}' isn't supported yet; these are: {', '.join(known)}", file=file, field=field)
    return importlib.import_module(f"{package.__name__}.{kind.replace('.', '_')}")
