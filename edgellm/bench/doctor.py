"""A look at this machine as a place to run models: what is there, what is wrong, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.backends import ACCELERATOR, HOST
from edgellm.backends.base import Finding
from edgellm.bench.thermal import thermal
from edgellm.catalogue import hub_cache, stores
from edgellm.catalogue.machine import memory
from edgellm.catalogue.paths import ENTRIES_FILE, config_folder
from edgellm.catalogue.registry import entries, own
from edgellm.catalogue.stores import bundled
from edgellm.errors import EdgeError

if TYPE_CHECKING:
    from edgellm.catalogue.hub import Hub

SMALL_MEMORY = 1 << 30  # bytes: less holds no model that is of use
SLOW_MEMORY = 4e9  # bytes a second: a Raspberry Pi 4 reads as much


def examine(*, timing: bool = True) -> list[Finding]:
    """Look at everything. A look that fails is a finding, never an error."""
    looks: dict[str, Callable[[], Finding]] = dict(HOST.looks())
    if thermal() is not None:
        looks["temperature"] = _temperature
    if timing:
        looks["bandwidth"] = _bandwidth
    looks |= {"memory": _memory, **ACCELERATOR.looks(), "models": _models, "catalogue": _catalogue, "hub": _hub}
    return [_look(what, look) for what, look in looks.items()]


def _look(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except (EdgeError, OSError) as error:
        return Finding(what, "unknown", str(error))
    except ModuleNotFoundError as error:
        return Finding(what, "unknown", f"this Python was built without its module {error.name}; use a complete one")


def _temperature() -> Finding:
    now = thermal()
    if now is None:
        return Finding("temperature", "not reported by this board")
    return Finding("temperature", f"{now.warmest:.0f} °C ({now.sensor})", now.advice)


def _memory() -> Finding:
    free = memory()
    limit = "" if free.address_space is None else f", {free.address_space / 1e9:.1f} GB of address space left (ulimit -v)"
    advice = "close other programs, or raise the limit of this container" if free.available < SMALL_MEMORY else ""
    return Finding("memory", f"{free.available / 1e9:.1f} GB free{limit}", advice)


def _bandwidth() -> Finding:
    from edgellm.bench.speed import speed

    rate = speed()
    slow = rate.bytes_per_second < SLOW_MEMORY
    advice = "memory is slow here, which bounds the speed of every model; take small ones" if slow else ""
    return Finding("bandwidth", f"{rate.bytes_per_second / 1e9:.1f} GB/s, of which models reach {rate.efficiency:.0%}", advice)


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
    from edgellm.catalogue.hub import Hub  # brings ssl, which not every Python has

    hub, root = Hub(), hub_cache.cache_root()
    value = f"{hub.endpoint}, {'with' if hub.has_token else 'without'} a token, cache {root}"
    return Finding("hub", value, "".join(_hub_faults(hub, root)))


def _hub_faults(hub: Hub, root: Path) -> Iterator[str]:
    existing = next(parent for parent in (root, *root.absolute().parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield f"{existing} cannot be written: correct its permissions, or set HF_HUB_CACHE"
    elif hub.offline:
        yield "HF_HUB_OFFLINE is set, so nothing is fetched; unset it to pull models"
