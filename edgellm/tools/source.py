"""Opens what tools of GGUF files read."""

from __future__ import annotations

import os

from edgellm.errors import OptionError
from edgellm.formats.gguf import GGUFFile, open_gguf


def open_source(path: str | os.PathLike[str]) -> GGUFFile:
    """A GGUF file. Raises OptionError for a folder, and the FormatErrors."""
    if os.path.isdir(path):
        raise OptionError(f"{os.fspath(path)} is a folder; make a GGUF file of it first (edgellm convert).")
    return open_gguf(path)
