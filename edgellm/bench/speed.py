"""A rough speed from a file's length alone: this machine's reading speed, measured once and kept, and what bench made of it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from dataclasses import dataclass
from typing import TypedDict, cast

from edgellm.backends import HOST
from edgellm.backends.base import Progress
from edgellm.folders import user_cache

FILE = "speed.json"
EFFICIENCY = 0.75  # of a pure read, until `edgellm bench` has measured a model here
FIXED = 1e-3  # seconds a token beside reading: some hundred barriers, and sampling
KEPT = 9  # results of bench that are remembered
REAL_MODEL = 50 << 20  # bytes: smaller ones stay in caches, and show nothing


class Kept(TypedDict):
    """The contents of the file."""

    machine: str
    bytes_per_second: float
    reached: list[float]


@dataclass(frozen=True, slots=True)
class Speed:
    """Bytes a second that this machine reads with all cores, and the part of that which models reach."""

    bytes_per_second: float
    efficiency: float = EFFICIENCY

    def tokens_per_second(self, nbytes: float) -> float:
        """For a model whose tokens read `nbytes` bytes each."""
        return 1 / (nbytes / (self.bytes_per_second * self.efficiency) + FIXED)


def speed(progress: Progress | None = None) -> Speed:
    """This machine's; measured the first time, which takes a second and one kernel."""
    kept = _read()
    if kept is None:
        if progress is not None:
            progress("measuring memory bandwidth (first run only)", 0, 1)
        probe = HOST.read_probe()
        try:
            kept = Kept(machine=_machine(), bytes_per_second=probe.measure(), reached=[])
        finally:
            probe.close()
        _write(kept)
    return Speed(float(kept["bytes_per_second"]), statistics.median(kept["reached"]) if kept["reached"] else EFFICIENCY)


def remember(nbytes: int, tokens_per_second: float) -> None:
    """Note what a measured model reached; later estimates follow. `nbytes`: what each of its tokens reads."""
    if nbytes < REAL_MODEL or not tokens_per_second > 0 or (kept := _read()) is None:
        return
    part = min(1.0, nbytes * tokens_per_second / kept["bytes_per_second"])
    _write(Kept(machine=kept["machine"], bytes_per_second=kept["bytes_per_second"], reached=[*kept["reached"], part][-KEPT:]))


def _machine() -> str:
    machine = HOST.machine()
    return f"{machine.processor} {machine.isa} {machine.cores}"


def _read() -> Kept | None:
    """The measurement kept on this machine; None where it is missing, damaged, or another machine's."""
    try:
        kept = json.loads((user_cache() / FILE).read_text(encoding="utf-8"))
        rates = [kept["bytes_per_second"], *kept["reached"]]
        sound = kept["machine"] == _machine() and all(isinstance(rate, float) and 0 < rate < 1e15 for rate in rates)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cast(Kept, kept) if sound else None


def _write(kept: Kept) -> None:
    """A folder that cannot be written only costs another measurement."""
    folder = user_cache()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        os.replace(temporary, folder / FILE)
