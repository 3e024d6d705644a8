"""A look at this machine as a place to run models: what is there, what is wrong, and what to do about it."""
from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.jit import selftest
from edgellm.backends.cpu.jit.cache import ObjectCache
from edgellm.backends.mlx import device
from edgellm.catalogue import hub_cache, stores
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.machine import memory
from edgellm.catalogue.paths import ENTRIES_FILE, config_folder
from edgellm.catalogue.registry import entries, own
from edgellm.catalogue.stores import bundled
from edgellm.engine.thermal import thermal
from edgellm.errors import BackendError, EdgeError

SMALL_MEMORY = 1 << 30                           # bytes: less holds no model that is of use
SLOW_MEMORY = 4e9                                # bytes a second: a Raspberry Pi 4 reads as much


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `advice` is "" where nothing is wrong."""

    what: str
    value: str
    advice: str = ""


def examine(*, timing: bool = True) -> list[Finding]:
    """Look at everything. A look that fails is a finding, never an error."""
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("processor", _processor), ("cores", _cores), ("instructions", _instructions), ("memory", _memory),
        ("kernel cache", _kernel_cache), ("MLX", _mlx), ("models", _models), ("catalogue", _catalogue), ("hub", _hub),
    ]
    if timing:
        looks.insert(4, ("bandwidth", _bandwidth))
    if thermal() is not None:
        looks.insert(3, ("temperature", _temperature))
    return [_look(what, look) for what, look in looks]


def _look(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except (EdgeError, OSError) as error:
        return Finding(what, "cannot be told", str(error))


def _processor() -> Finding:
    python = f"Python {platform.python_version()}"
    return Finding("processor", f"{system.host_cpu()} ({platform.machine()}), {platform.system()}, {python}")


def _cores() -> Finding:
    """By class, where the system tells them apart."""
    classes = system.core_classes()
    kinds = " + ".join(f"{count} of {name}" for name, count in classes.items()) if len(classes) > 1 else ""
    usable, there = system.usable_cores(), os.cpu_count() or 1
    advice = "" if usable > 1 else "one core is slow; give this process or container more"
    return Finding("cores", f"{usable} used of {there} logical ones{f' ({kinds})' if kinds else ''}", advice)


def _instructions() -> Finding:
    best, used = system.usable_isas()[-1], jit.choose_isa()
    if used != best and not os.environ.get("EDGELLM_ISA"):
        return Finding("instructions", f"{used}; {best} is there, but a trial of it was {selftest.verdict()}")
    if used != best:
        return Finding("instructions", f"{used}, forced by EDGELLM_ISA", f"unset EDGELLM_ISA: {best} is faster")
    slow = best == "generic" and system.is_x86()
    return Finding("instructions", best, "this processor has no AVX2, so models run slowly; take small ones" if slow else "")


def _temperature() -> Finding:
    now = thermal()
    if now is None:
        return Finding("temperature", "not told by this board")
    return Finding("temperature", f"{now.warmest:.0f} °C ({now.sensor})", now.advice)


def _memory() -> Finding:
    free = memory()
    limit = "" if free.address_space is None else f", {free.address_space / 1e9:.1f} GB of address space left (ulimit -v)"
    advice = "close other programs, or raise the limit of this container" if free.available < SMALL_MEMORY else ""
    return Finding("memory", f"{free.available / 1e9:.1f} GB free{limit}", advice)


def _bandwidth() -> Finding:
    from edgellm.engine.speed import speed

    rate = speed()
    slow = rate.bytes_per_second < SLOW_MEMORY
    advice = "memory is slow here, which bounds the speed of every model; take small ones" if slow else ""
    return Finding("bandwidth", f"{rate.bytes_per_second / 1e9:.1f} GB/s, of which models reach {rate.efficiency:.0%}", advice)


def _kernel_cache() -> Finding:
    cache = ObjectCache(jit.choose_isa())
    try:
        kernels = sum(1 for file in cache.folder.iterdir() if file.is_file())
        return Finding("kernel cache", f"{cache.folder}, {kernels} files", cache.note and f"{cache.note}; set EDGELLM_CACHE")
    finally:
        cache.close()


def _mlx() -> Finding:
    apple = device.is_apple_silicon()
    if importlib.util.find_spec("mlx") is None:
        return Finding("MLX", "missing", "install edgellm again, with its dependencies") if apple else \
            Finding("MLX", "for Apple Silicon only; models run on the processor here")
    try:
        device.require()
    except BackendError as error:
        return Finding("MLX", "cannot be loaded", str(error) if apple else "")
    if apple and not device.has_metal():
        return Finding("MLX", "finds no GPU", "update macOS; models run on the processor until then")
    return Finding("MLX", device.describe())


def _models() -> Finding:
    models = stores.scan()
    places = sorted({model.store for model in models})
    value = f"{len(models)} on this machine" + (f" ({', '.join(places)})" if places else "")
    real = [model for model in models if model.store != bundled.NAME]
    return Finding("models", value, "" if real else "edgellm fit lists what fits here, edgellm pull NAME fetches one")


def _catalogue() -> Finding:
    path = config_folder() / ENTRIES_FILE
    return Finding("catalogue", f"{len(entries())} models, {len(own().entries)} of them from {path}")


def _hub() -> Finding:
    hub, root = Hub(), hub_cache.cache_root()
    value = f"{hub.endpoint}, {'with' if hub.has_token else 'without'} a token, cache {root}"
    return Finding("hub", value, "".join(_hub_faults(hub, root)))


def _hub_faults(hub: Hub, root: Path) -> Iterator[str]:
    existing = next(parent for parent in (root, *root.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield f"{existing} cannot be written: correct its permissions, or set HF_HUB_CACHE"
    elif hub.offline:
        yield "HF_HUB_OFFLINE is set, so nothing is fetched; unset it to pull models"
