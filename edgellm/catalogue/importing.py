"""Taking a user's own model file into edgellm's folder: checked, linked or copied, and named."""

from __future__ import annotations

import contextlib
import os
import re
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.catalogue import ledger
from edgellm.catalogue.entries import NAME
from edgellm.catalogue.file_selection import parts_of
from edgellm.catalogue.paths import models_folder
from edgellm.catalogue.registry import entries
from edgellm.errors import OptionError, Unreadable
from edgellm.formats.gguf import open_gguf

if TYPE_CHECKING:
    from edgellm.catalogue.download import Progress

BLOCK = 1 << 22
LEFT = re.compile(r"\..+\.gguf\.([0-9]{1,9})")  # what `_copy` writes, until it has its name
SETTLED = 10.0  # seconds: a copy that still grows may be of another machine's process


def import_model(
    file: Path,
    name: str | None = None,
    *,
    projector: Path | None = None,
    copy: bool = False,
    progress: Progress = lambda file, done, total: None,
) -> tuple[str, Path]:
    """Give `file` (of a split model, any part) a name in our folder: a hard link, else a symbolic one; with `copy` its bytes. Its
    `projector` comes along.

    Returns the name and the new path. Raises the FormatErrors for a file that is not a sound model, and OptionError for a name that
    is taken or cannot be one.
    """
    sweep()
    if Path(file).is_dir():
        raise Unreadable(
            "is a folder, and folders cannot be imported; give a .gguf file, or use a model's folder by its path", file=file
        )
    with open_gguf(file) as gguf:
        sources = [Path(path).absolute() for path in gguf.paths]
    called = _name(sources[0], name)
    folder = models_folder()
    targets = [folder / part for part in _targets(called, len(sources))]
    if projector is not None:
        sources.append(projector.absolute())
        targets.append(folder / projector_name(called))
    made: list[Path] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for source, target in zip(sources, targets, strict=True):
            if copy:
                _copy(source, target, progress)
            else:
                _link(source, target)
            made.append(target)
        for target in made:
            ledger.note(target)
    except BaseException as error:
        for target in made:  # some parts of a model are none
            target.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise Unreadable(
            f"cannot be taken into {folder} ({error.strerror}); check its permissions and the free space", file=file
        ) from error
    return called, targets[0]


def projector_name(called: str) -> str:
    """The file name of an imported model's projector."""
    return f"mmproj-{called}.gguf"


def sweep() -> None:
    """Remove what imports left half copied that were killed: files named after a process which is no longer there."""
    import psutil

    with contextlib.suppress(OSError):
        for path in models_folder().glob(".*.gguf.*"):
            match = LEFT.fullmatch(path.name)
            if match and not psutil.pid_exists(int(match[1])) and time.time() - path.stat().st_mtime > SETTLED:
                path.unlink(missing_ok=True)


def _name(file: Path, name: str | None) -> str:
    stem = re.sub(r"-00001-of-\d{5}$", "", file.stem)
    plain = unicodedata.normalize("NFKD", stem.lower()).encode("ascii", "ignore").decode()  # letters without their accents
    called = name or re.sub(r"[^a-z0-9.-]+", "-", plain).strip("-.")
    if not NAME.fullmatch(called) or ".." in called:
        raise OptionError(f"{called!r} cannot be a name: give one of lower case letters, digits, dots and dashes")
    if called in entries():
        raise OptionError(f"{called} is in the catalogue; give another name after the file")
    if any(models_folder().glob(f"{called}.gguf")) or any(models_folder().glob(f"{called}-00001-of-*.gguf")):
        raise OptionError(f"{called} exists already: give another name after the file, or remove it with edgellm rm {called}")
    return called


def _targets(name: str, count: int) -> list[str]:
    return [f"{name}.gguf"] if count == 1 else parts_of(f"{name}-00001-of-{count:05d}.gguf")


def _link(source: Path, target: Path) -> None:
    """A hard link outlives the first name; across disks only a symbolic one is possible."""
    real = source.resolve()
    with contextlib.suppress(OSError):
        os.link(real, target)
        return
    target.symlink_to(real)


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """The bytes; the name appears when all are on the disk."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")  # as LEFT has it
    try:
        total = source.stat().st_size
        with source.open("rb") as read, temporary.open("xb") as write:
            done = 0
            progress(source.name, done, total)
            while block := read.read(BLOCK):
                write.write(block)
                done += len(block)
                progress(source.name, done, total)
            write.flush()
            os.fsync(write.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
