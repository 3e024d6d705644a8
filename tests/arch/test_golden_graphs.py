"""Golden graphs: what each architecture's tiny model becomes behind all passes, line by line; `--update` writes them again.

A file of tests/data/graphs has the optimised graph with sinks in every state, the barriers that a layer adds to the CPU's plan, and
a digest of the built and the optimised graph of each variant.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from places import DATA
from tiny_encoders import ENCODERS
from tiny_models import tiny_model
from variants import CONTEXT, VARIANTS

from edgellm.arch import load_graph, names
from edgellm.backends.cpu.buffers import MODES
from edgellm.backends.cpu.executable import build_plan
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Graph
from edgellm.memory.layout import plan_memory
from edgellm.passes import drop_unused, fuse, optimise
from edgellm.weights import WeightStore

GRAPHS = DATA / "graphs"
WIDE = {"n_heads": 8, "n_kv_heads": 4, "head_dim": 32, "n_embd": 256, "n_ff": 512}


def optimised(graph: Graph) -> Graph:
    return optimise(graph, sinks=() if graph.embeds else range(len(graph.states)))


def barriers_of(path: Path) -> dict[int, list[int]]:
    """The number of barriers in each mode of a model's plan, by threads."""
    gguf = open_gguf(path)
    graph = load_graph(gguf, 64)[1]
    layout, weights = plan_memory(graph.states, context=64, sinks=4, chunk=8), WeightStore(gguf)
    graph = optimise(graph, layout.with_sinks)
    plans = {threads: build_plan(graph, weights, layout, kv_type="f16", threads=threads) for threads in (2, 3, 8)}
    return {threads: [sum(plan.barriers[mode].before) for mode in MODES] for threads, plan in plans.items()}


def barriers(arch: str, folder: Path) -> str:
    """Barriers that the third layer adds: in steps of one token, and in steps of several."""
    fewer, more = (
        barriers_of(tiny_model(folder / f"{layers}.gguf", arch, "Q8_0", seed=None, n_layers=layers, **WIDE)) for layers in (2, 3)
    )
    found = []
    for threads in fewer:
        counts = (long - short for long, short in zip(more[threads], fewer[threads], strict=True))
        found.append(f"{threads} threads {'/'.join(map(str, counts))}")
    return f"barriers of a layer, {'/'.join(MODES)}: {', '.join(found)}"


def digest(name: str, folder: Path) -> str:
    variant = VARIANTS[name]
    with open_gguf(variant.write(folder / "variant.gguf")) as gguf:
        graph = load_graph(gguf, min(CONTEXT, variant.sizes.get("context", 128)))[1]
    return hashlib.sha256(f"{graph}\n{optimised(graph)}".encode()).hexdigest()[:16]


@pytest.mark.parametrize("arch", names())
def test_graphs_stay(arch: str, tmp_path: Path, update: bool) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", arch, seed=None)) as gguf:
        lines = [str(optimised(load_graph(gguf)[1]))]
    if arch not in ENCODERS:
        lines.append(barriers(arch, tmp_path))
    lines += [f"variant {name}: {digest(name, tmp_path)}" for name in sorted(VARIANTS) if VARIANTS[name].arch == arch]
    text, path = "\n".join([*lines, ""]), GRAPHS / f"{arch}.txt"
    if update:
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing; review what --update writes, and commit it"
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), "if that is meant, run this test with --update"


def test_every_graph_is_of_an_architecture() -> None:
    assert sorted(path.stem for path in GRAPHS.iterdir()) == sorted(names())


@pytest.mark.parametrize("arch", names())
def test_nothing_fusible_is_left(arch: str, tmp_path: Path) -> None:
    with open_gguf(tiny_model(tmp_path / "m.gguf", arch, seed=None)) as gguf:
        graph = optimised(load_graph(gguf)[1])
    assert str(drop_unused(fuse(graph))) == str(graph)
