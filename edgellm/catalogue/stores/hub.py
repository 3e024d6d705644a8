"""Models in the Hugging Face cache, which llama.cpp shares; a blob's name is its sha256."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgellm.catalogue.hub_cache import cache_root
from edgellm.catalogue.paths import Environment
from edgellm.catalogue.registry import entries
from edgellm.catalogue.stores.found import Found, found, gguf_files

NAME = "Hugging Face cache"
RANK = 0


def find(around: Environment) -> Iterator[Found]:
    """The models of all repositories, under their catalogue's name where they have one; the version that `main` is comes first."""
    known = {
        (file.repository, file.parts[0].path): (entry.name if file.type == entry.default else f"{entry.name}:{file.type}")
        for entry in entries().values()
        for file in entry.files
    }
    roots = {cache_root(around.environment), around.folder("LLAMA_CACHE")} - {None}
    for root in sorted(root for root in roots if root is not None):
        for folder in sorted(root.glob("models--*--*")):
            repository = folder.name.removeprefix("models--").replace("--", "/", 1)
            for version in _versions(folder):
                for path in gguf_files(version):
                    inside = path.relative_to(version).as_posix()
                    name = known.get((repository, inside), f"hf:{repository}:{inside}")
                    if (one := found(name, path, sha256=path.resolve().name)) is not None:
                        yield one


def _versions(folder: Path) -> list[Path]:
    try:
        main = (folder / "refs" / "main").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        main = ""
    return sorted((folder / "snapshots").glob("*"), key=lambda version: (version.name != main, version.name))
