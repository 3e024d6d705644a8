"""Collects for a frozen program: modules that are imported by name, data, and the sources that name the kernel cache."""

from __future__ import annotations

from typing import Any


def hook(hook_api: Any) -> None:  # Any: PyInstaller ships no types
    """Called by PyInstaller for programs that import edgellm."""
    from importlib.util import find_spec

    from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

    unwanted = ("edgellm.cli", "edgellm.__pyinstaller") + (() if find_spec("mlx") else ("edgellm.backends.mlx",))
    hook_api.add_imports("llguidance", *collect_submodules("edgellm", filter=lambda name: not name.startswith(unwanted)))
    metadata = [entry for name in ("numba", "llvmlite", "llguidance") for entry in copy_metadata(name)]
    hook_api.add_datas(collect_data_files("edgellm") + metadata)
    hook_api.set_module_collection_mode("edgellm", "pyz+py")
