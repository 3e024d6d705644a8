"""Files that tools read and write: never is a source written to, and an existing file only with --force."""

from __future__ import annotations

import os
from collections.abc import Iterable

from edgellm.errors import OptionError
from edgellm.formats.gguf import GGUFFile, open_gguf
from edgellm.formats.whole_file import PART

Path = str | os.PathLike[str]


def open_source(path: Path) -> GGUFFile:
    """A GGUF file. Raises OptionError for a folder, and the FormatErrors."""
    if os.path.isdir(path):
        raise OptionError(f"{os.fspath(path)} is a folder; make a GGUF file of it first (edgellm convert).")
    return open_gguf(path)


def checkpoint_files(folder: Path) -> list[str]:
    """The files of a checkpoint, those of folders in it included; of it no GGUF file is read."""
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if not name.endswith(".gguf")]


def check_out(out: Path, sources: Iterable[Path], *, force: bool) -> None:
    """Raises OptionError where `out`, or what stands beside it until it is complete, is one of the sources; where it is a folder;
    and where it exists, unless `force`.
    """
    name, real = os.fspath(out), os.path.realpath(out)
    sources = [source for source in sources if os.path.isfile(source)]
    for path in (real, real + PART):
        if os.path.exists(path) and any(os.path.samefile(path, source) for source in sources):
            what = "belongs to the source itself" if path == real else f"is written as {name}{PART} at first, which is a source"
            raise OptionError(f"{name} {what}; give another name.")
    if os.path.isdir(real):
        raise OptionError(f"{name} is a folder; give the name of a file.")
    if os.path.exists(real) and not force:
        raise OptionError(f"{name} exists; give another name, or --force to replace it.")
