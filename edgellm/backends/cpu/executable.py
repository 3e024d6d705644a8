"""A model made ready for the CPU: the plan, its threads and its memory, behind the interface that all back ends share."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Progress, StepBatch, StepSize, StepStopped, StepTimes, never
from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.buffers import MODES, Mode
from edgellm.backends.cpu.interleaving import interleave
from edgellm.backends.cpu.ops import EMITTERS
from edgellm.backends.cpu.page_release import forget_library
from edgellm.backends.cpu.parts import Slicer, parts
from edgellm.backends.cpu.plan import PlanBuilder
from edgellm.backends.cpu.pool import Pool
from edgellm.backends.cpu.profile import KERNEL, Clock, Timed, TimedProgram, by_kind
from edgellm.backends.cpu.state import CpuState
from edgellm.errors import BackendError
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore

MAX_OUTPUTS = 32  # rows of logits in one step; 128k words in f32 are half a MiB a row
MAX_SEGMENTS = 32  # conversations in one step
PART = 1 << 30  # bytes of weights times tokens that are computed before `stop` is asked again
ATTENTION_SHARE = 4  # bytes of a key times the tokens that see it are as much work as so many of weights
EXECUTOR = ("executor:start", "executor:walk", "executor:wait")
SLICE = "executor:slice"  # for encoders, single products of whose steps take long


def start() -> None:
    """Load LLVM, and give the pages back that only loading takes."""
    jit.Linker()
    forget_library("libllvmlite")


def prepare(
    graph: Graph,
    weights: WeightStore,
    layout: MemoryLayout,
    *,
    kv_type: str,
    threads: int | None,
    threads_batch: int | None = None,
    parallel: int = 1,
    progress: Progress | None = None,
) -> CpuExecutable:
    """Build the plan of an optimised graph and link its kernels, compiling those that this machine has not seen yet.

    `threads` compute single tokens (None: as many as there are cores), `threads_batch` prompts (None: as many as that).
    """
    isa = jit.choose_isa(progress)
    interleave(graph, weights, isa, system.usable_cores(), parallel, progress)
    plan = build_plan(graph, weights, layout, kv_type=kv_type, threads=threads, threads_batch=threads_batch)
    linker = jit.Linker()
    addresses = jit.kernel_addresses(plan.kernels | set(EXECUTOR) | ({SLICE} if plan.encodes else set()), isa, linker, progress)
    forget_library("libllvmlite")
    return CpuExecutable(plan, addresses, linker, isa)


def build_plan(
    graph: Graph, weights: WeightStore, layout: MemoryLayout, *, kv_type: str, threads: int | None, threads_batch: int | None = None
) -> PlanBuilder:
    """The plan of an optimised graph with all its buffers, whose pages nothing has touched yet; no kernel is needed for it."""
    threads = system.usable_cores() if threads is None else threads
    plan = PlanBuilder(
        graph,
        weights,
        layout,
        max_tokens=layout.chunk,
        max_outputs=min(max(MAX_OUTPUTS, layout.outputs), layout.chunk),
        max_segments=MAX_SEGMENTS,
        threads=threads,
        threads_batch=threads if threads_batch is None else threads_batch,
        kv_type=kv_type,
    )
    for index, node in enumerate(graph.nodes):
        if node.op not in EMITTERS:
            raise BackendError(f"the CPU back end has no op {node.op}, which this model needs.")
        EMITTERS[node.op](plan, index, node)
        plan.release_after(index)
    return plan


class CpuStep(NamedTuple):
    """A step that its waiter computes."""

    executable: CpuExecutable
    batch: StepBatch

    def wait(self, stop: Callable[[], bool] = never) -> Mapping[str, npt.NDArray[np.float32]]:
        """See backends.base.Pending."""
        return self.executable.run(self.batch, stop)


class CpuExecutable:
    """Runs steps of one model. Everything it needs is allocated here once; a step allocates nothing."""

    backend = "cpu"
    runs_ahead = False
    max_segments = MAX_SEGMENTS

    def __init__(self, plan: PlanBuilder, addresses: dict[str, int], linker: jit.Linker, isa: str) -> None:
        self.layout, self.max_tokens, self.max_outputs, self.isa = plan.layout, plan.max_tokens, plan.max_outputs, isa
        self._plan, self._linker = plan, linker
        self._timed = dict[Mode, tuple[TimedProgram, Clock]]()
        self.busy_seconds = 0.0  # inside plans, of all steps
        self._programs = {mode: plan.program(addresses, mode) for mode in MODES}
        self._weight_bytes = {mode: np.array([plan.records[number].weight_bytes for number in plan.chosen(mode)]) for mode in MODES}
        self._slice = addresses.get(SLICE, 0)
        self.step_size = StepSize(plan.max_tokens)
        self._outputs = {
            name: (plan.graph.nodes[value].rows, plan.output_array(value)) for name, value in plan.graph.outputs.items()
        }
        self._pool: Pool | None = Pool(
            plan.most_threads, *(addresses[name] for name in EXECUTOR), code=(linker, plan, self._programs)
        )
        weakref.finalize(self, self._pool.close).atexit = False  # for a pool that is never closed: Ctrl-C during `load`

    @property
    def threads(self) -> int:
        return self._plan.threads

    @property
    def threads_batch(self) -> int:
        return self._plan.threads_batch

    def new_state(self) -> CpuState:
        return CpuState.empty(self.layout, self._plan.kv, self._plan.recurrent)

    def load_state(self, file: BinaryIO) -> CpuState:
        """See backends.base.Executable."""
        return CpuState.load(self.layout, self._plan.kv, self._plan.recurrent, file)

    def submit(self, batch: StepBatch) -> CpuStep:
        """The step; a waiting caller computes it."""
        if self._pool is None:
            raise BackendError("this model is closed.")
        assert 0 < len(batch.tokens) <= self.max_tokens and len(batch.output_rows) <= self.max_outputs
        assert len(batch.segments) <= self.max_segments
        return CpuStep(self, batch)

    def run(self, batch: StepBatch, stop: Callable[[], bool]) -> dict[str, npt.NDArray[np.float32]]:
        """One walk over the plan. The outputs are views that the next step overwrites."""
        pool, mode = self._fill(batch)
        started = time.perf_counter()
        try:
            if mode == "decode":
                pool.run(self._programs[mode])
            else:
                self._run_parts(pool, mode, batch, stop)
        finally:
            self.busy_seconds += time.perf_counter() - started
        rows, outputs = {"R": len(batch.output_rows), "S": len(batch.segments)}, dict[str, npt.NDArray[np.float32]]()
        for name, (kind, array) in self._outputs.items():
            outputs[name] = array[: rows[kind]]
        return outputs

    def _fill(self, batch: StepBatch) -> tuple[Pool, Mode]:
        """Set the step block to a step, once an interrupted one has come to its end; which program it needs."""
        if self._pool is None:
            raise BackendError("this model is closed.")
        self._pool.settle()
        self._pool.state = batch.segments  # an interrupted plan keeps writing to their states
        self._plan.step.fill(batch)
        return self._pool, "decode" if len(batch.tokens) == 1 else "ragged" if self._plan.step.has_merges else "batch"

    def _run_parts(self, pool: Pool, mode: Mode, batch: StepBatch, stop: Callable[[], bool]) -> None:
        """Walk the plan in parts, so that Ctrl-C and `stop` need not wait for all of it."""
        tokens, longest, began, done = len(batch.tokens), 0.0, time.perf_counter(), 0
        work, slicer = self._weight_bytes[mode] * tokens, None
        if batch.patches is not None:
            records = [self._plan.records[number] for number in self._plan.chosen(mode)]
            seen = [int(span[:, 3].sum(dtype=np.int64)) for span in batch.spans]
            work = work + [
                0 if each.memory_class is None else each.key_bytes * seen[each.memory_class] // ATTENTION_SHARE for each in records
            ]
            slicer = Slicer(records, self._plan.step.attention_lists(), self._slice)
        total = max(int(work.sum()), 1)
        for part, size in parts(self._programs[mode], work, PART, slicer):
            if stop():
                raise StepStopped
            pool.run(part)
            ended, done = time.perf_counter(), done + size
            longest, began = max(longest, ended - began), ended
            if batch.advanced is not None:
                batch.advanced(min(done / total, 1.0))
        self.step_size.note(tokens, longest)

    def release_buffers(self) -> None:
        """See backends.base.Idle."""
        if self._pool is not None:
            self._pool.settle()
            self._plan.release_buffers()

    def profile(self, batch: StepBatch) -> StepTimes:
        """Run a step with time stamps; times by kind of kernel, longest first."""
        visible = [int(span[-1, 1] + span[-1, 3]) for span in batch.spans]
        return by_kind(self.timed(batch), visible)

    def timed(self, batch: StepBatch) -> Timed:
        """A step with time stamps: how long each record took."""
        pool, mode = self._fill(batch)
        if mode not in self._timed:
            address = jit.kernel_addresses({KERNEL}, self.isa, self._linker)[KERNEL]
            self._timed[mode] = TimedProgram(self._programs[mode], address), Clock(address)
        program, clock = self._timed[mode]
        return program.run(pool, clock, [self._plan.records[number] for number in self._plan.chosen(mode)])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
