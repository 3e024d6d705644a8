"""The Hugging Face cache as it lies on disk: found and read in place, never written, no network.

Layout: models--OWNER--NAME/{refs/main, snapshots/COMMIT/PATH -> ../../blobs/SHA256}; llama.cpp shares it.
"""
from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

LATER_PART = re.compile(r"-(?!0*1-of-)\d{5}-of-\d{5}\.gguf$")


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the hub's libraries keep files: HF_HUB_CACHE, then HF_HOME, then the user's cache folder."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return Path(os.path.expanduser(environment[variable]))
    if environment.get("HF_HOME"):
        return Path(os.path.expanduser(environment["HF_HOME"])) / "hub"
    caches = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(caches)) / "huggingface" / "hub"


def snapshots(repository: str, revision: str | None = None) -> list[Path]:
    """Folders that hold versions of `owner/name`: the wanted commit, then what `main` was, then the newest first."""
    folder = cache_root() / ("models--" + repository.replace("/", "--"))
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


def model_files(repository: str) -> list[Path]:
    """The .gguf files of the best version that has any: no image projectors, of split files the first part only."""
    for folder in snapshots(repository):
        files = sorted(p for p in folder.rglob("*.gguf") if p.is_file())
        models = [p for p in files if not p.name.startswith("mmproj") and not LATER_PART.search(p.name)]
        if models:
            return models
    return []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
