"""Where weights lie: in the file's map, in a copy of it, locked into physical memory or not."""

from __future__ import annotations

import sys

from edgellm.backends.base import Backend, Progress
from edgellm.errors import OptionError
from edgellm.formats.gguf import GGUFFile

WHAT = "reading the model into memory"


def check(backend: Backend, *, copied: bool, locked: bool) -> None:
    """Raises OptionError for a back end with weights of its own."""
    if backend.copies_weights and (copied or locked):
        raise OptionError(
            f"is not possible with {backend.name}, which copies weights to the GPU",
            option="mmap" if copied else "mlock",
            value=not copied,
            advice="leave it out, or take the back end cpu",
        )


def hold(gguf: GGUFFile, *, copied: bool, locked: bool, progress: Progress | None) -> None:
    """Copies the files, locks them. Raises MemoryError, OptionError and the FormatErrors."""
    before, total = 0, sum(file.size for file in gguf.files)  # an MLX folder's `nbytes` are its tensors' alone
    for file in gguf.files if copied else ():

        def show(done: int, start: int = before) -> None:
            if progress is not None:
                progress(WHAT, start + done, total)

        file.copy(show)
        before += file.size
    try:
        for file in gguf.files if locked else ():
            file.lock()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OptionError(
            f"cannot lock {gguf.nbytes / 1e9:.2f} GB into memory ({reason}{_limit()})",
            option="mlock",
            value=True,
            advice="raise the limit, or leave it out",
        ) from error


def _limit() -> str:
    """How much this process may lock, where that is limited."""
    if sys.platform == "win32":
        return ""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "" if soft == resource.RLIM_INFINITY else f"; ulimit -l allows {soft / 1e6:.0f} MB"
