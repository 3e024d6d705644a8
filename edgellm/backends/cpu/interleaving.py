"""Which weights of a model are interleaved in memory: matrices that only products read, or rows are looked up in as well."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from edgellm.backends.base import Progress
from edgellm.backends.cpu.ops import INTERLEAVED
from edgellm.formats.interleave import UNITS
from edgellm.graph import Graph
from edgellm.weights import Weight, WeightStore

WHAT = "repacking the weights"
ROWS = {"avx512vnni": 16, "amx": 16}             # of a group, by ISA level: `tile_rows` where kernels for it are worth it


def interleave(graph: Graph, weights: WeightStore, isa: str, threads: int, progress: Progress | None = None) -> None:
    """Interleave the rows of weights that are in memory of the process's own, where kernels of the ISA level read them so."""
    group = ROWS.get(isa)
    if not group or not weights.copied:
        return
    wanted = [name for name in candidates(graph, group) if _fits(weights[name], group)]
    total, done = sum(weights[name].data.nbytes for name in wanted), 0
    with ThreadPoolExecutor(threads) as pool:
        for name, moved in zip(wanted, pool.map(lambda name: weights.interleave(name, group), wanted), strict=True):
            done += weights[name].data.nbytes
            if moved and progress is not None:
                progress(WHAT, done, total)


def candidates(graph: Graph, group: int) -> list[str]:
    """Names of weights that some product reads by whole groups of rows, and nothing that wants them as the file has them."""
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


def _fits(weight: Weight, group: int) -> bool:
    return weight.type.name in UNITS and len(weight.shape) > 1 and weight.shape[-2] % group == 0
