"""The walk itself: threads take records one after the other, meet at barriers, and wait for the next plan."""
from __future__ import annotations

from collections.abc import Callable

from edgellm.backends.cpu import control
from edgellm.backends.cpu.kernels._inline import inline
from edgellm.backends.cpu.simd import Isa

LINE_BYTES = control.LINE * 8
RECORD_BYTES = control.RECORD_WORDS * 8
EPOCH, ARRIVED, GENERATION = control.EPOCH * LINE_BYTES, control.ARRIVED * LINE_BYTES, control.GENERATION * LINE_BYTES
PLAN, RECORDS, STOP = control.PLAN * LINE_BYTES, control.RECORDS * LINE_BYTES, control.STOP * LINE_BYTES
SEEN = control.WORDS * LINE_BYTES
BARRIER_AFTER = control.BARRIER_AFTER * 8
BARRIER_SPINS, IDLE_SPINS = control.BARRIER_SPINS, control.IDLE_SPINS


def build(variant: str, isa: Isa) -> Callable[[int, int, int], None]:
    load, store, add = isa.atomic_load, isa.atomic_store, isa.atomic_add
    load_i64, call_kernel, pause, yield_cpu = isa.load_i64, isa.call_kernel, isa.pause, isa.sched_yield

    @inline
    def walk_records(block, ith, nth):
        plan = load_i64(block, PLAN)
        n = load_i64(block, RECORDS)
        generation = load(block + GENERATION)
        for i in range(n):
            record = plan + i * RECORD_BYTES
            call_kernel(load_i64(record, 0), record, ith, nth)
            if nth > 1 and load_i64(record, BARRIER_AFTER) == 1:
                if add(block + ARRIVED, 1) == nth - 1:
                    store(block + ARRIVED, 0)
                    store(block + GENERATION, generation + 1)
                else:
                    spins = 0
                    while load(block + GENERATION) == generation:
                        spins += 1
                        if spins < BARRIER_SPINS:
                            pause()
                        else:
                            yield_cpu()
                generation += 1

    def start(block, plan, records):
        """Publish a plan: workers see its address before they see the new epoch."""
        store(block + PLAN, plan)
        store(block + RECORDS, records)
        add(block + EPOCH, 1)

    def walk(block, ith, nth):
        walk_records(block, ith, nth)
        store(block + SEEN + ith * LINE_BYTES, load(block + EPOCH))

    def wait(block, ith, nth):
        """Walk each new plan; return when none has come for a while, or the pool is closing."""
        seen = block + SEEN + ith * LINE_BYTES
        spins = 0
        while load(block + STOP) == 0 and spins < IDLE_SPINS:
            epoch = load(block + EPOCH)
            if epoch != load(seen):
                walk_records(block, ith, nth)
                store(seen, epoch)
                spins = 0
            else:
                pause()
                spins += 1

    return {"start": start, "walk": walk, "wait": wait}[variant]
