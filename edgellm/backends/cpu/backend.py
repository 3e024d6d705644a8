"""The CPU as a back end: what a model needs on it, and what it knows about this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgellm.backends.base import BackendNeed, BackendOptions, Executable, Finding, Machine, Progress, ReadProbe
from edgellm.formats.ggml_types import MLX, GGMLType
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.memory.layout import MemoryLayout
from edgellm.weights import WeightStore

LOOKUP_BYTES = 64 << 10  # a row that is looked up brings the 16 pages around it into memory


class CpuBackend:
    """Numba-compiled kernels; weights stay in the file's pages."""

    name = "cpu"
    chunk = 256  # enough to share one unpacking of the weights
    kv_tried: tuple[str, ...] = ("f16", "q8_0")
    copies_weights = False

    def require(self) -> None:
        """Everything is there."""

    def reads(self, kind: GGMLType) -> bool:
        return kind.origin != MLX

    def need(self, graph: Graph, header: GGUFFile, layout: MemoryLayout, options: BackendOptions) -> BackendNeed:
        """From the plan itself, over weights that are not read."""
        from edgellm.backends.cpu.executable import build_plan
        from edgellm.memory.sizes import kv_bytes
        from edgellm.synthetic_weights import SyntheticWeights

        plan = build_plan(
            graph,
            SyntheticWeights(header),
            layout,
            kv_type=options.kv_type,
            threads=options.threads,
            threads_batch=options.threads_batch,
        )
        work = plan.nbytes
        kv = options.parallel * kv_bytes(layout, options.kv_type)
        return BackendNeed(_resident_weights(header, graph, layout.context), kv, work)

    def start(self) -> None:
        """LLVM, which links kernels: loading it takes 40 MB for a moment."""
        from edgellm.backends.cpu.executable import start

        start()

    def prepare(
        self, graph: Graph, weights: WeightStore, layout: MemoryLayout, options: BackendOptions, progress: Progress | None = None
    ) -> Executable:
        from edgellm.backends.cpu.executable import prepare

        return prepare(
            graph,
            weights,
            layout,
            kv_type=options.kv_type,
            threads=options.threads,
            threads_batch=options.threads_batch,
            parallel=options.parallel,
            progress=progress,
        )

    def looks(self) -> Mapping[str, Callable[[], Finding]]:
        from edgellm.backends.cpu.findings import LOOKS

        return LOOKS

    def machine(self) -> Machine:
        from edgellm.backends.cpu import system

        return Machine(system.host_cpu(), system.usable_cores(), system.usable_isas()[-1])

    def read_probe(self, threads: int | None = None) -> ReadProbe:
        """With as many threads, or one per core."""
        from edgellm.backends.cpu.bandwidth import CpuReadProbe

        return CpuReadProbe(threads)


def _resident_weights(header: GGUFFile, graph: Graph, context: int) -> int:
    """Bytes of the file that stay in memory: all but tables of which only single rows are looked up."""
    from edgellm.spec import uses

    read = {use.name for use in uses(graph) if use.role != "table"}
    looked_up = {use.name for use in uses(graph) if use.role == "table"} - read
    return sum(header.tensors[name].nbytes for name in read if name in header.tensors) + sum(
        min(header.tensors[name].nbytes, context * LOOKUP_BYTES) for name in looked_up
    )
