"""From what a user typed to one file: a path, a catalogue name, or hf:owner/repo."""
from __future__ import annotations

import difflib
import os
import re
import shutil
import stat
import sys
from pathlib import Path

from edgellm.catalogue.entries import REPOSITORY, Entry, ModelFile, entries
from edgellm.catalogue.hub_cache import cache_root, find_file, model_files
from edgellm.errors import ModelNotFound

HUB_PREFIX = "hf:"
HUB_DEFAULT = "Q4_K_M"                      # llama.cpp's choice too, where a repository holds several


def resolve(name: str | os.PathLike[str]) -> Path:
    """The model file that `name` means: a path, `NAME[:TYPE]` of the catalogue, or `hf:owner/repo[:type|file]`.

    Names lead to files that are already here; nothing is fetched. Raises ModelNotFound with what to do.
    """
    text = os.fspath(name)
    if "\0" in text or not text.strip():
        raise ModelNotFound(f"{_shown(text)} is no name of a model: give a .gguf file or a name of the catalogue")
    if text.startswith(HUB_PREFIX):
        return _from_hub(text)
    found = _lookup(text)
    if found is not None:
        return _from_catalogue(*found)
    return _from_path(text)


def entry_of(name: str | os.PathLike[str]) -> Entry | None:
    """The catalogue entry that a name (with or without a type) refers to; None for paths and other names."""
    found = _lookup(os.fspath(name))
    return found[0] if found else None


def installed() -> list[tuple[str, Path]]:
    """(name, file) of every catalogue entry that is on this machine; `NAME:TYPE` where it is not the default type."""
    result = []
    for entry in entries().values():
        for file in sorted(entry.files, key=lambda f: f.type != entry.default):
            path = _on_disk(file)
            if path is not None:
                result.append((entry.name if file.type == entry.default else f"{entry.name}:{file.type}", path))
    return result


def _lookup(text: str) -> tuple[Entry, str | None] | None:
    """The entry and the type asked for. A file that exists under exactly this name wins over the catalogue."""
    name, _, type_name = text.partition(":")
    entry = entries().get(name.lower())
    if entry is None or _kind(text) == "file":
        return None
    return entry, type_name or None


def _from_catalogue(entry: Entry, type_name: str | None) -> Path:
    file = entry.file(type_name)
    if file is None:
        has = ", ".join(f.type for f in entry.files)
        raise ModelNotFound(f"{entry.name} has no {_shown(type_name or '')} file in the catalogue: it has {has}")
    path = _on_disk(file)
    if path is None:
        raise ModelNotFound(
            f"{entry.name}:{file.type} is not on this machine; fetch it ({file.size / 1e9:.1f} GB) with: "
            f"{fetch_command(entry, type_name)}"
        )
    return path


def _on_disk(file: ModelFile) -> Path | None:
    """The first part of a file, if every part is here."""
    found = [find_file(file.repository, part.path, file.revision) for part in file.parts]
    return found[0] if all(found) else None


def _from_hub(text: str) -> Path:
    repository, _, wanted = text.removeprefix(HUB_PREFIX).partition(":")
    if repository.count("/") > 1 and not wanted:
        owner, name, wanted = repository.split("/", 2)
        repository = f"{owner}/{name}"
    if not REPOSITORY.fullmatch(repository):
        raise ModelNotFound(f"{_shown(text)} is no model of the hub: write hf:owner/repository[:TYPE or :FILE.gguf]")
    files = model_files(repository)
    if not files:
        file = wanted if re.fullmatch(r"[\w./-]+\.gguf", wanted) else "FILE.gguf"
        command = download_command(repository, file)
        raise ModelNotFound(f"hf:{repository} is not in {cache_root()}; fetch a file of it with: {command}")
    matches = [p for p in files if _matches(p, wanted)] if wanted else files
    if len(matches) > 1:
        matches = [p for p in matches if _matches(p, HUB_DEFAULT)] or matches
    if len(matches) == 1:
        return matches[0]
    problem = f"has no file for {_shown(wanted)} here" if not matches else "has several files here"
    names = _some([p.name for p in files])
    raise ModelNotFound(f"hf:{repository} {problem}; write hf:{repository}:FILE with one of {names}")


def _matches(path: Path, wanted: str) -> bool:
    """Whether a file is called `wanted`, lies at that path, or names it as its type."""
    if wanted.lower().endswith(".gguf"):
        return path.as_posix().endswith("/" + wanted)
    return bool(re.search(rf"(?:^|[-._/]){re.escape(wanted)}(?:[-.]|$)", path.name, re.IGNORECASE))


def _from_path(text: str) -> Path:
    path = Path(os.path.expanduser(text))
    kind = _kind(path)
    if kind == "file":
        return path
    if kind == "folder":
        inside = sorted(p.name for p in path.glob("*.gguf"))
        advice = f"name a file in it: {_some(inside)}" if inside else "give a .gguf file (there is none in it)"
        raise ModelNotFound(f"{_shown(text)} is a folder: {advice}")
    if kind:
        raise ModelNotFound(f"{_shown(text)} is {kind}, not a model file")
    raise ModelNotFound(f"{_shown(text)} {_not_found(text, path)}")


def _kind(path: str | Path) -> str:
    """What lies at a path: "file", "folder", what else it is in words, or "" for nothing."""
    try:
        mode = os.stat(path).st_mode
    except PermissionError:
        return "not readable for you"
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


def _not_found(text: str, path: Path) -> str:
    """Why a name led nowhere, with the nearest names that do exist."""
    if os.sep in text or "/" in text or text.lower().endswith(".gguf"):
        try:
            names = [p.name for p in path.parent.iterdir() if p.suffix == ".gguf"]
        except (OSError, ValueError):
            names = []
        near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
        meant = f": did you mean {_some([str(path.parent / n) for n in near])}?" if near else ": check the path"
        return f"does not exist{meant}"
    near = difflib.get_close_matches(text.partition(":")[0].lower(), entries(), n=3, cutoff=0.6)
    known = _some(list(entries()))
    meant = f"did you mean {_some(near)}?" if near else f"give a .gguf file, hf:owner/repository, or one of {known}"
    return f"is neither a file nor a name of the catalogue: {meant}"


def fetch_command(entry: Entry, type_name: str | None = None) -> str:
    """The command line that fetches an entry's file of that type, or its default one. KeyError if there is none."""
    file = entry.file(type_name)
    if file is None:
        raise KeyError(type_name)
    return download_command(file.repository, *(part.path for part in file.parts))


def download_command(repository: str, *arguments: str) -> str:
    """The command line that fetches files with the hub's own tool, which comes with edgellm's dependencies."""
    beside = Path(sys.executable).parent / "hf"
    tool = "hf" if shutil.which("hf") or not beside.exists() else str(beside)
    return " ".join([tool, "download", repository, *arguments])


def _some(names: list[str]) -> str:
    listed = ", ".join(name if name.isprintable() else repr(name) for name in names[:12])
    return listed + (", ..." if len(names) > 12 else "")


def _shown(text: str) -> str:
    """A name as it may stand in a message: quoted, control characters escaped, not longer than a line."""
    return repr(text if len(text) <= 100 else text[:97] + "...")
