"""Predicts the speed on more cores: records of a step as one core computes them, spread over n, with barriers, limited by memory.

    .venv/bin/python scripts/simulate_cores.py MODEL.gguf [--cores 4,8,16] [--roof 60,200] [--prompt 256] [--depth 0] [--rounds 5]

Measured here: how long each record of the plan takes on one core, what memory gives one core and all of them, and a barrier of all
of them. Assumed: a record that threads share takes the larger of its time over n and of its bytes over the roof; one that every
thread computes for itself takes as long as ever; memory gives n cores n times what it gives one, up to the roof; a barrier costs as
much more as there are more threads. `--roof`: GB/s of other machines; this one's own is always there. The first rows hold the model
against what 1 core and all cores of this machine really take: the shortest of some rounds that take turns.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import edgellm
from edgellm.backends.cpu import abi, system
from edgellm.backends.cpu.bandwidth import CpuReadProbe
from edgellm.backends.cpu.executable import CpuExecutable
from edgellm.backends.cpu.pool import Program
from edgellm.backends.cpu.profile import Timed
from edgellm.engine.conversation import Conversation

BARRIERS = 2000  # of the program that measures one


@dataclass(frozen=True, slots=True)
class Work:
    """A record: seconds on one core, bytes from memory, the pieces that threads share (None: any), whether each does all."""

    seconds: float
    nbytes: int
    pieces: int | None
    alone: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes per second that one core reads and that all do, and seconds of a barrier of two."""

    core: float
    roof: float
    barrier: float


def predicted(works: Sequence[Work], barriers: int, cores: int, machine: Machine) -> float:
    """Seconds of a step on so many cores."""
    memory, total = min(cores * machine.core, max(machine.roof, machine.core)), 0.0
    for work in works:
        share = 1.0 if work.alone else -(-work.pieces // cores) / work.pieces if work.pieces else 1 / cores
        total += max(work.seconds * share, work.nbytes / memory if cores > 1 else 0.0)
    return total + (barriers * machine.barrier * cores / 2 if cores > 1 else 0.0)


def shortest(rounds: Sequence[Timed]) -> Timed:
    return min(rounds, key=lambda timed: timed.seconds)


def works_of(timed: Timed, *, single: bool, keys: int) -> list[Work]:
    """The records of a step. `single`: of one token; pieces and replicas are about these."""
    found = []
    for record, seconds in timed.records:
        nbytes = record.weight_bytes + (record.key_bytes * keys if record.memory_class is not None else 0)
        alone = single and record.replicated
        found.append(Work(seconds, nbytes, record.pieces if single and not alone else None, alone))
    return found


class Loaded:
    """A model with a number of threads, and steps of it with time stamps."""

    def __init__(self, path: str, threads: int, prompt: int, depth: int) -> None:
        self.model = edgellm.load(path, threads=threads, context=depth + prompt + 64)
        self.threads, self.depth = threads, depth
        executable = self.model.engine.check()
        assert isinstance(executable, CpuExecutable)
        self.executable = executable

    def step(self, tokens: int) -> Timed:
        """The second of two steps of so many tokens: the first warms up."""
        conversation, ids = (
            Conversation.empty(self.executable),
            np.array([random.randrange(self.model.n_vocab) for _ in range(self.depth + tokens)], np.int32),
        )
        for at in range(0, self.depth, self.executable.max_tokens):
            conversation.compute(self.executable, ids[at : min(at + self.executable.max_tokens, self.depth)])
        part, found = ids[self.depth :], None
        for _ in range(2):
            found = self.executable.timed(conversation.step(part, np.array([tokens - 1], np.int32)))
            if tokens == 1:
                conversation.sequence.extend(part)
        assert found is not None
        return found

    def barrier(self) -> float:
        """Seconds of a barrier of all threads with nothing before it."""
        timed = self.executable._timed["decode"][0]
        table = np.repeat(timed.table[:, :1], BARRIERS, axis=1)
        table[:, :, abi.BARRIER_AFTER] = 1
        program, pool = Program(table), self.executable._pool
        assert pool is not None
        pool.run(program)
        started = time.perf_counter()
        pool.run(program)
        return (time.perf_counter() - started) / BARRIERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--cores", default="4,8,16")
    parser.add_argument("--roof", default="", help="GB/s, with commas between")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    most = system.usable_cores()
    loaded = [Loaded(options.model, threads, options.prompt, options.depth) for threads in sorted({1, most})]
    probes = [CpuReadProbe(each.threads) for each in loaded]
    tests = {f"pp{options.prompt}": options.prompt, "tg": 1}
    found: dict[tuple[str, int], list[Timed]] = {(test, each.threads): [] for test in tests for each in loaded}
    reads: list[list[float]] = [[] for _ in probes]
    for _ in range(options.rounds):
        for test, tokens in tests.items():
            for each in loaded:
                found[test, each.threads].append(each.step(min(tokens, each.executable.max_tokens)))
        for i, probe in enumerate(probes):
            reads[i].append(probe.measure())
    barrier = min(loaded[-1].barrier() for _ in range(options.rounds)) * 2 / most if most > 1 else 0.0
    here = Machine(max(reads[0]), max(reads[-1]), barrier)
    print(
        f"{system.host_cpu()}: a core reads {here.core / 1e9:.1f} GB/s, {most} cores {here.roof / 1e9:.1f}; a barrier of two"
        f" {barrier * 1e6:.2f} us\n"
    )
    print("| test | cores | roof GB/s | tokens/s | measured | prediction / measured |\n|---|--:|--:|--:|--:|--:|")
    for test, tokens in tests.items():
        works = works_of(shortest(found[test, 1]), single=tokens == 1, keys=options.depth + 1)
        barriers, tokens = found[test, 1][0].barriers, min(tokens, loaded[0].executable.max_tokens)
        for cores in sorted({1, most}):
            rate = tokens / predicted(works, barriers, cores, here)
            real = tokens / shortest(found[test, cores]).seconds
            print(f"| {test} | {cores} | {here.roof / 1e9:.0f} | {rate:.1f} | {real:.1f} | {rate / real:.2f} |")
        for roof in [here.roof, *(float(roof) * 1e9 for roof in options.roof.split(",") if roof)]:
            for cores in map(int, options.cores.split(",")):
                rate = tokens / predicted(works, barriers, cores, Machine(here.core, roof, barrier))
                print(f"| {test} | {cores} | {roof / 1e9:.0f} | {rate:.1f} | | |")


if __name__ == "__main__":
    main()
