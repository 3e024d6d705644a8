"""Chat templates that mean to hang, to fill memory, or to be deaf to Ctrl-C; measured in a process of its own."""

from __future__ import annotations

import random
from pathlib import Path

import test_chat_hostile as hostile

from attacks import Figure

AT_ONCE = 500  # templates of one process: its memory only ever grows


def _measured(sources: list[tuple[str, str]]) -> tuple[str, list[str]]:
    seconds = deaf = mebibytes = 0.0
    faults, refused = list[str](), 0
    for at in range(0, len(sources), AT_ONCE):
        some = sources[at : at + AT_ONCE]
        peak, rows = hostile.meter([source for _, source in some])
        for (name, source), row in zip(some, rows, strict=True):
            grown, peak = float(row["mebibytes"]) - peak, float(row["mebibytes"])
            seconds, deaf = max(seconds, float(row["seconds"])), max(deaf, float(row["deaf"]))
            mebibytes = max(mebibytes, grown)
            refused += row["end"] != "text"
            if float(row["seconds"]) > 1 or float(row["deaf"]) > 0.3 or grown > 64:
                faults.append(f"{name}: {row} {source[:200]}")
    return (
        f"{refused:,} refused, {len(sources) - refused:,} rendered; at most {seconds:.2f} s of processor time, "
        f"{mebibytes:.0f} MiB, {deaf:.2f} s without a look at signals"
    ), faults


def attacks(folder: Path, seed: int, n: int) -> Figure:
    """Figure 8: templates that people wrote to do harm."""
    ended, faults = _measured(list(hostile.ATTACKS.items()))
    return Figure(f"{len(hostile.ATTACKS)} hostile chat templates", ended, faults)


def generated(folder: Path, seed: int, n: int) -> Figure:
    """Figure 8: long texts, sizes and loops put together at random."""
    ended, faults = _measured([(f"seed {seed} {i}", hostile.generated(random.Random(f"{seed} {i}"))) for i in range(n)])
    return Figure(f"{n:,} random chat templates", ended, faults)
