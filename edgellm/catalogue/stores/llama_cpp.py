"""Models that older versions of llama.cpp have fetched: flat files; newer ones use the Hugging Face cache."""

from __future__ import annotations

from collections.abc import Iterator

from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found, found

NAME = "llama.cpp"
RANK = 3


def find(around: Environment) -> Iterator[Found]:
    """The files that lie directly in its folder."""
    caches = around.caches()
    for folder in (around.folder("LLAMA_CACHE"), caches / "llama.cpp" if caches else None):
        for path in sorted(folder.glob("*.gguf")) if folder else ():
            if (one := found(str(path), path)) is not None:
                yield one
