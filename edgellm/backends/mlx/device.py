"""Where MLX computes on this machine: the GPU of a Mac or the CPU build elsewhere, its memory limits and its cache."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from edgellm.backends.cpu.system import usable_cores
from edgellm.errors import BackendError, EdgeError

CACHE_BYTES = 256 << 20  # freed buffers that MLX may keep for the next step; its own default is most of the memory
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)  # MLX's: of the device, shapes, types, indices, memory
MULTIPLIED = ("matrix", "experts", "heads")  # roles of weights that are copied as they are
MAX_OUTPUTS = 128  # rows of logits in one step; 128k words in f32 are half a MiB a row
_open = 0
_before = 0
_lock = threading.RLock()  # a garbage collection may release a model anywhere
_workers: ThreadPoolExecutor | None = None
cores = cache(usable_cores)


def require() -> None:
    """Raises BackendError, with what to install, where MLX is missing."""
    if importlib.util.find_spec("mlx") is None:
        raise BackendError(
            "the MLX back end needs the package mlx, which is not installed; install it with "
            'pip install "edgellm[mlx]", or use the back end cpu.'
        )
    try:
        import mlx.core  # noqa: F401
    except ImportError as error:  # on Linux the package mlx alone has no library in it
        raise BackendError(
            f'mlx is installed but cannot be loaded ({error}); install it with pip install "edgellm[mlx]" (on Linux '
            "that is mlx[cpu]), or use the back end cpu."
        ) from error


@contextmanager
def own_errors(doing: str, kinds: tuple[type[Exception], ...] = ERRORS) -> Iterator[None]:
    """Raises BackendError for exceptions that MLX has."""
    try:
        yield
    except EdgeError:
        raise
    except kinds as error:
        raise BackendError(f"MLX could not {doing}: {error}; use the back end cpu.") from error


def one_blas_thread() -> AbstractContextManager[Any]:
    """NumPy's BLAS in this thread alone: others of its own would spin on the cores on which MLX decodes weights meanwhile."""
    libraries = _blas()
    return nullcontext() if libraries is None else libraries.limit(limits=1, user_api="blas")


@cache
def _blas() -> Any:  # a ThreadpoolController, or None
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def is_apple_silicon() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def has_metal() -> bool:
    """True if MLX is there and computes on an Apple GPU."""
    if not is_apple_silicon() or importlib.util.find_spec("mlx") is None:
        return False
    try:
        import mlx.core as mx
    except ImportError:
        return False
    return bool(mx.metal.is_available())


def on_gpu() -> bool:
    """True if MLX's default device is a GPU."""
    import mlx.core as mx

    return bool(mx.default_device() == mx.Device(mx.gpu))


def working_set() -> int:
    """Bytes that the GPU may hold without being slowed down, as Metal recommends."""
    import mlx.core as mx

    return int(mx.device_info()["max_recommended_working_set_size"])


def describe() -> str:
    """The line about the device in `edgellm doctor`."""
    import mlx.core as mx

    if not on_gpu():
        return f"{mx.__version__} on the processor: exact but slow, for tests"
    return f"{mx.__version__} on {mx.device_info()['device_name']}, {working_set() / 1e9:.1f} GB for models"


def hold() -> None:
    """One more model is open: the first one bounds MLX's cache of freed buffers."""
    global _open, _before
    import mlx.core as mx

    with _lock:
        if _open == 0:
            _before = mx.set_cache_limit(CACHE_BYTES)
        _open += 1


def release() -> None:
    """One model less: freed buffers go back to the system; after the last one MLX's own limit holds again, and threads end."""
    global _open, _workers
    import mlx.core as mx

    with _lock:
        _open -= 1
        if _open == 0:
            mx.set_cache_limit(_before)
            if _workers is not None:
                _workers.shutdown(wait=False)
                _workers = None
        mx.clear_cache()


def for_each(work: Callable[[int], object], items: Sequence[int]) -> None:
    """Call `work` with each item: in this thread and others, one for each core, that live as long as a model is open."""
    global _workers
    rest = iter(items)

    def some() -> None:
        for item in rest:  # an iterator gives each item to one thread
            work(item)

    with _lock:
        if _open and _workers is None and cores() > 1:
            _workers = ThreadPoolExecutor(cores() - 1, "edgellm-mlx")
        helpers = 0 if _workers is None else min(cores(), len(items)) - 1
        begun = [_workers.submit(some) for _ in range(helpers)] if _workers is not None else []
    some()
    for each in begun:
        each.result()


def _forked() -> None:
    """A fork has none of the threads."""
    global _workers, _lock
    _workers, _lock = None, threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
