"""Which weights of a model are interleaved in memory: matrices that only products read, or rows are looked up in as well."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from edgellm.backends.base import Progress
from edgellm.backends.cpu import jit, system
from edgellm.backends.cpu.levels import LEVELS
from edgellm.backends.cpu.ops import INTERLEAVED
from edgellm.backends.cpu.record import Signature
from edgellm.backends.cpu.traits import TRAITS
from edgellm.formats.interleave import PACKED, UNITS, pieces
from edgellm.formats.interleave import interleave as interleave_rows
from edgellm.formats.mapped import Bytes
from edgellm.graph import Graph
from edgellm.weights import Weight, WeightStore

REPACK = Signature("source row_bytes n k out")
WHAT = "repacking the weights"
SLOW_ROWS = frozenset({"Q2_K", "Q3_K", "MXFP4"})  # types that a Zen 5 cannot read at the speed of memory as the file has them


def interleave(graph: Graph, weights: WeightStore, isa: str, threads: int, parallel: int, progress: Progress | None = None) -> None:
    """Interleave the rows of weights that are in memory of the process's own, where kernels of the ISA level read them so and steps
    of up to `parallel` conversations gain by it.
    """
    group = LEVELS[isa].interleaved_rows
    if not group or not weights.copied:
        return
    wanted = [name for name in candidates(graph, group) if _fits(weights[name], group) and gains(weights[name].type.name, parallel)]
    total, done = sum(weights[name].data.nbytes for name in wanted), 0
    mover = Mover({weights[name].type.name for name in wanted}, isa, progress)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for name, moved in zip(wanted, pool.map(lambda name: weights.interleave(name, group, mover.move), wanted), strict=True):
                done += weights[name].data.nbytes
                if moved and progress is not None:
                    progress(WHAT, done, total)
        except BaseException:  # Ctrl-C: wait for those only that are being moved
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class Mover:
    """Moves rows to their places, by a kernel where their bits move as well."""

    def __init__(self, types: Collection[str], isa: str, progress: Progress | None = None) -> None:
        self._linker = jit.Linker()  # the code lives as long as it does
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
        addresses = jit.kernel_addresses({f"repack:{name}" for name in types if name in PACKED}, isa, self._linker, progress)
        self._kernels = {kernel.partition(":")[2]: signature(address) for kernel, address in addresses.items()}

    def move(self, name: str, rows: Bytes, group: int) -> None:
        """See formats.interleave.interleave."""
        if name not in self._kernels:
            interleave_rows(name, rows, group)
            return
        k = rows.shape[1] // TRAITS[name].block_bytes * TRAITS[name].block
        for some in pieces(rows, group):
            source = some.copy()
            record = REPACK.record(source=source.ctypes.data, row_bytes=rows.shape[1], n=len(some), k=k, out=some.ctypes.data)
            self._kernels[name](record.ctypes.data, 0, 1)


def candidates(graph: Graph, group: int) -> list[str]:
    """Names of weights that some product reads by groups of rows, and that nothing needs in the file's layout."""
    products, others = dict[str, None](), set[str]()
    for node in graph.nodes:
        first, *rest = [*node.weights] or [""]
        others.update(rest)
        rows = INTERLEAVED[node.op](node) if node.op in INTERLEAVED else (1,)
        if any(row % group for row in rows):
            others.add(first)
        elif rows:
            products[first] = None
    return [name for name in products if name not in others]


def gains(name: str, parallel: int) -> bool:
    """True if weights of a type gain by interleaving: not on a Zen 5 for one conversation, where rows of most types are read at
    the speed of memory as they are, and interleaved ones up to a fifth slower.
    """
    return parallel > 1 or system.zen() < 5 or name in SLOW_ROWS


def _fits(weight: Weight, group: int) -> bool:
    return weight.type.name in UNITS and len(weight.shape) > 1 and weight.shape[-2] % group == 0
