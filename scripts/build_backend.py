"""setuptools' build backend, with editable installs that type checkers follow and that a folder named edgellm cannot hide.

The finder that setuptools would install comes behind Python's own, which takes a checkout beside a program for a namespace package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the other hooks of PEP 517

ROOT = Path(__file__).resolve().parent.parent


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:  # Any: as PEP 660 has it
    """The editable wheel. Where git made no symlink of edgellm/formats, setuptools' finder has to do."""
    if (ROOT / "edgellm" / "formats").is_dir():
        config_settings = {"editable_mode": "compat"} | (config_settings or {})
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
