"""The walk itself: threads take records one after the other, meet at barriers, and wait for the next plan."""

from __future__ import annotations

from typing import Any  # what an IR value is to the type checker

from numba import types

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.kernels.inline import inline
from edgellm.backends.cpu.simd import Isa, KernelFunction
from edgellm.backends.cpu.simd.base import I32, I64
from edgellm.backends.cpu.simd.generic import Generic
from edgellm.backends.cpu.system import FUTEX_CALL, YIELD_SYMBOL

LINE_BYTES = abi.LINE * 8
RECORD_BYTES = abi.RECORD_WORDS * 8
EPOCH, ARRIVED, GENERATION = abi.EPOCH * LINE_BYTES, abi.ARRIVED * LINE_BYTES, abi.GENERATION * LINE_BYTES
PLAN, RECORDS, STOP = abi.PLAN * LINE_BYTES, abi.RECORDS * LINE_BYTES, abi.STOP * LINE_BYTES
SLEEPERS, SEEN = abi.SLEEPERS * LINE_BYTES, abi.WORDS * LINE_BYTES
STRIDE, THREADS, MOST_THREADS = abi.STRIDE * LINE_BYTES, abi.PROGRAM_THREADS * 8, abi.MOST_THREADS
FUTEX_WAIT, FUTEX_WAKE = 128, 129  # private to this process
EVERYBODY = 2**31 - 1
TAKEN, CHUNKS = SEEN + abi.TAKEN * 8, abi.CHUNKS * 8
REPLICATED, BARRIER_AFTER = abi.REPLICATED * 8, abi.BARRIER_AFTER * 8
AHEAD, AHEAD_BYTES = abi.AHEAD * 8, abi.AHEAD_BYTES * 8
BARRIER_SPINS = abi.BARRIER_SPINS
SLICED_KERNEL, SLICED_RECORD, SLICE, SLICES = (8 * (abi.FIRST_ARGUMENT + i) for i in range(4))


def build(variant: str, isa: Isa) -> KernelFunction:
    load, store, add = isa("atomic_load atomic_store atomic_add")
    load_i64, call_kernel, pause = isa("load_i64 call_kernel pause")
    fetch = isa.make("fetch", types.void, (types.int64,), lambda e, at: e.prefetch(at, to_first=False))
    sleep_while = isa.make("sleep_while", types.void, (types.int64,) * 3, _sleep_while)
    wake_all = isa.make("wake_all", types.void, (types.int64,), _wake_all)

    @inline
    def take_chunks(block, ith, nth, record, last, chunks):
        """Walk the records up to `last` for one chunk after the other: of this thread's share, whose chunks follow each other, then
        of the other threads', as long as there are any that no thread has taken.
        """
        for turn in range(nth):
            whose = (ith + turn) % nth
            first, end, taken = chunks * whose // nth, chunks * (whose + 1) // nth, block + TAKEN + whose * LINE_BYTES
            while load(taken) < end - first:  # of those that are through, nobody writes to the count again
                chunk = first + add(taken, 1)
                if chunk >= end:
                    break
                at = record
                while at <= last:
                    call_kernel(load_i64(at, 0), at, chunk, chunks)
                    at += RECORD_BYTES

    @inline
    def walk_records(block, ith, nth):
        """Returns the address of weights that may be prefetched for the next program, and their end."""
        plan = load_i64(block, PLAN) + ith * load_i64(block, STRIDE)
        end = plan + load_i64(block, RECORDS) * RECORD_BYTES
        next_weights = load_i64(end - RECORD_BYTES, AHEAD)
        next_end = next_weights + load_i64(end - RECORD_BYTES, AHEAD_BYTES)
        generation = load(block + GENERATION)
        record = plan - RECORD_BYTES
        while record + RECORD_BYTES < end:
            record += RECORD_BYTES
            chunks = load_i64(record, CHUNKS)
            if chunks > 0 and nth > 1:
                first = record
                while record + RECORD_BYTES < end and load_i64(record, BARRIER_AFTER) == 0:
                    record += RECORD_BYTES
                take_chunks(block, ith, nth, first, record, chunks)
            elif load_i64(record, REPLICATED) == 1:
                call_kernel(load_i64(record, 0), record, 0, 1)
            else:
                call_kernel(load_i64(record, 0), record, ith, nth)
            if nth > 1 and load_i64(record, BARRIER_AFTER) == 1:
                if add(block + ARRIVED, 1) == nth - 1:
                    store(block + ARRIVED, 0)
                    if chunks > 0:
                        for i in range(nth):
                            store(block + TAKEN + i * LINE_BYTES, 0)
                    add(block + GENERATION, 1)
                    if load(block + SLEEPERS) > 0:
                        wake_all(block + GENERATION)
                else:
                    spins, ahead = 0, load_i64(record, AHEAD)
                    until = ahead + load_i64(record, AHEAD_BYTES)
                    while load(block + GENERATION) == generation:
                        if ahead < until:  # memory has nothing else to do for this core
                            fetch(ahead)
                            ahead += LINE_BYTES
                        elif spins < BARRIER_SPINS:
                            spins += 1
                            pause()
                        else:
                            add(block + SLEEPERS, 1)
                            sleep_while(block + GENERATION, generation, block + SLEEPERS + 8)
                            add(block + SLEEPERS, -1)
                generation += 1
        return next_weights, next_end

    def start(block, program, unused):
        """Publish a program: workers see its records before they see the new epoch."""
        store(block + PLAN, load_i64(program, 0))
        store(block + RECORDS, load_i64(program, 8))
        store(block + STRIDE, load_i64(program, 16))
        store(block + EPOCH, (load(block + EPOCH) // MOST_THREADS + 1) * MOST_THREADS + load_i64(program, THREADS))

    def walk(block, ith, unused):
        epoch = load(block + EPOCH)
        walk_records(block, ith, epoch % MOST_THREADS)
        store(block + SEEN + ith * LINE_BYTES, epoch)

    def wait(block, ith, unused):
        """Walk each new program for which this thread is wanted; return when none has come for a while, or the pool is closing.

        The epoch says how many threads walk, so that one that is not wanted never looks at the records of the next program.
        """
        seen = block + SEEN + ith * LINE_BYTES
        spins, most, ahead, until = 0, load_i64(block, STOP + 8), 0, 0
        while load(block + STOP) == 0 and spins < most:
            epoch = load(block + EPOCH)
            if epoch != load(seen) and ith < epoch % MOST_THREADS:
                ahead, until = walk_records(block, ith, epoch % MOST_THREADS)
                store(seen, epoch)
                spins = 0
            elif ahead < until:
                fetch(ahead)
                ahead += LINE_BYTES
            else:
                pause()
                spins += 1

    def sliced(op, ith, nth):
        """One slice of another record's work, which threads share: see `parts.py`."""
        at, count = load_i64(op, SLICE), load_i64(op, SLICES)
        call_kernel(load_i64(op, SLICED_KERNEL), load_i64(op, SLICED_RECORD), at * nth + ith, count * nth)

    return {"start": start, "walk": walk, "wait": wait, "slice": sliced}[variant]


def _sleep_while(e: Generic, address: Any, value: Any, timeout: Any) -> None:
    """Give the core away until the low half of the word at `address` is no longer `value`, or for the time at `timeout`.

    A sleeper that is woken goes before threads that have used up their time; one that yields goes behind them. With four busy
    loops on the same two cores a 1B model decodes at 4-7 tokens/s this way, and at 1.2 when it yields.
    """
    if FUTEX_CALL is None:
        e.call(YIELD_SYMBOL, I32)
    else:
        e.call("syscall", I64, I64(FUTEX_CALL), address, I64(FUTEX_WAIT), value, timeout, I64(0), I64(0))


def _wake_all(e: Generic, address: Any) -> None:
    if FUTEX_CALL is not None:
        e.call("syscall", I64, I64(FUTEX_CALL), address, I64(FUTEX_WAKE), I64(EVERYBODY), I64(0), I64(0), I64(0))
