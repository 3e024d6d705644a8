"""Where the time of a step goes: its records walked one by one, each with a barrier of its own, and timed."""
from __future__ import annotations

import time
from collections.abc import Sequence

from edgellm.backends.base import KindTime
from edgellm.backends.cpu import abi
from edgellm.backends.cpu.plan import Record
from edgellm.backends.cpu.pool import Pool, Program

REPETITIONS = 3                                  # the shortest counts: a neighbour can only slow a kernel down


def profile(pool: Pool, program: Program, records: Sequence[Record], visible: Sequence[int]) -> list[KindTime]:
    """Walk `program`, whose records these are, with `visible` keys per memory class; times by kind of kernel, longest first.

    Starting a program costs time that a walk does not have: that of the shortest record is taken off each.
    """
    seconds = []
    for index in range(len(records)):
        table = program.table[:, index : index + 1].copy()
        table[:, 0, abi.BARRIER_AFTER] = 1
        single = Program(table)
        times = []
        for _ in range(REPETITIONS):             # a record never overwrites what it reads
            started = time.perf_counter()
            pool.run(single)
            times.append(time.perf_counter() - started)
        seconds.append(min(times))
    overhead = min(seconds)
    found: dict[str, KindTime] = {}
    for record, took in zip(records, seconds, strict=True):
        keys = visible[record.memory_class] if record.memory_class is not None else 0
        kind = found.get(record.kernel, KindTime(record.kernel, 0, 0.0, 0))
        found[record.kernel] = KindTime(record.kernel, kind.calls + 1, kind.seconds + took - overhead,
                                        kind.nbytes + record.weight_bytes + record.key_bytes * keys)
    return sorted(found.values(), key=lambda kind: -kind.seconds)
