"""The Hugging Face cache as it lies on disk: files are found, read in place, and put where every program of the hub finds them.

Layout: models--OWNER--NAME/{refs/main, snapshots/COMMIT/PATH -> ../../blobs/SHA256}; llama.cpp shares it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

LATER_PART = re.compile(r"-(?!0*1-of-)\d{5}-of-\d{5}\.gguf$")


def hub_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of the hub's libraries: HF_HOME, else in the user's cache folder."""
    if environment.get("HF_HOME"):
        return Path(os.path.expanduser(environment["HF_HOME"]))
    return Path(os.path.expanduser(environment.get("XDG_CACHE_HOME") or "~/.cache")) / "huggingface"


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the hub's libraries keep files: HF_HUB_CACHE, then HF_HOME, then the user's cache folder."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return Path(os.path.expanduser(environment[variable]))
    return hub_home(environment) / "hub"


def repository_folder(repository: str, root: Path | None = None) -> Path:
    """The folder of `owner/name`; it need not exist."""
    return (root or cache_root()) / ("models--" + repository.replace("/", "--"))


def snapshots(repository: str, revision: str | None = None) -> list[Path]:
    """Folders that hold versions of `owner/name`: the wanted commit, then what `main` was, then the newest first."""
    folder = repository_folder(repository)
    try:
        versions = sorted((folder / "snapshots").iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
    except OSError:
        return []
    preferred = [revision, _read(folder / "refs" / "main")]
    return sorted(versions, key=lambda p: preferred.index(p.name) if p.name in preferred else len(preferred))


def find_file(repository: str, path: str, revision: str | None = None) -> Path | None:
    """A file of a repository, if its bytes are here: a link to a blob that is still loading does not count."""
    candidates = (folder / path for folder in snapshots(repository, revision))
    return next((found for found in candidates if found.is_file()), None)


def is_model(name: str) -> bool:
    """True if a file name is a model's: no image projector, of split files the first part only."""
    return name.lower().endswith(".gguf") and not is_projector(name) and not LATER_PART.search(name)


def is_projector(name: str) -> bool:
    """True if a file name is that of a model's image projector."""
    return name.lower().endswith(".gguf") and "mmproj" in name.lower()


def model_files(repository: str) -> list[Path]:
    """The .gguf files of the best version that has any: no image projectors, of split files the first part only."""
    for folder in snapshots(repository):
        models = [p for p in sorted(folder.rglob("*.gguf")) if p.is_file() and is_model(p.name)]
        if models:
            return models
    return []


def blob_path(repository: str, sha256: str) -> Path:
    """Where the bytes of a file lie."""
    return repository_folder(repository) / "blobs" / sha256


def publish(part: Path, blob: Path) -> None:
    """Give a finished download its final name, then make it read-only: a part must stay writable, whenever we are killed."""
    os.replace(part, blob)
    if sys.platform != "win32":  # there a read-only file could not even be deleted by its owner
        blob.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    _sync(blob.parent)


def link(blob: Path, repository: str, commit: str, path: str, *, branch: str | None = None) -> Path:
    """Let `path` of a version lead to a blob, and `branch` to that version; returns the path in the cache.

    Where links are not possible (Windows without the right to make them) the file itself moves there, as in the hub's libraries.
    """
    folder = repository_folder(repository)
    place = folder / "snapshots" / commit / path
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists() or not os.path.samefile(place, blob):
        temporary = place.with_name(f".{os.getpid()}.link")
        temporary.unlink(missing_ok=True)
        try:
            temporary.symlink_to(os.path.relpath(blob, place.parent))
        except (OSError, NotImplementedError):
            temporary = blob
        os.replace(temporary, place)
    if branch is not None:
        reference = folder / "refs" / branch
        reference.parent.mkdir(parents=True, exist_ok=True)
        temporary = reference.with_name(f".{os.getpid()}.ref")
        temporary.write_text(commit, encoding="ascii")
        os.replace(temporary, reference)
    return place


def unlink(place: Path) -> int:
    """Remove a file of the cache: its link, its blob if no other version uses it, and folders that are empty then.

    Returns the bytes that became free.
    """
    folder = next(parent for parent in place.parents if parent.name == "snapshots").parent
    blob = place.resolve()
    freed = blob.stat().st_size if blob.exists() else 0
    place.unlink()
    others = (folder / "snapshots").rglob("*")
    if blob != place and any(other.is_symlink() and other.resolve() == blob for other in others):
        freed = 0
    elif blob.parent == folder.resolve() / "blobs":
        blob.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty
        for parent in place.parents:
            if parent == folder:
                break
            parent.rmdir()
    return freed


def _sync(folder: Path) -> None:
    """Let a new name survive a power cut, where the system can be asked for that."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
