"""For PyInstaller: where the hook lies that makes programs with edgellm in them whole. The wheel's entry point names it."""

from __future__ import annotations

import os


def get_hook_dirs() -> list[str]:
    """The folder of the hook."""
    return [os.path.dirname(__file__)]
