"""One token's walk through a model, in a file that runs: .venv/bin/python scripts/walk.py

A llama of one layer with synthetic weights takes three tokens and gives the next one, in plain NumPy, an op per line.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models"))
from tiny_models import tiny_model

from edgellm.arch import load_graph
from edgellm.formats.gguf import open_gguf
from edgellm.graph import Node
from edgellm.ops._spec import Array
from edgellm.passes import optimise
from edgellm.reference import Reference
from edgellm.weights import WeightStore

TOKENS = [7, 42, 3]  # what a tokenizer makes of a text, by the vocabulary in the model file
MEANINGS = {  # of ops without weights
    "rope": "rotates pairs of dims by the token's position",
    "kv_write": "keys and values join the KV cache",
    "attend": "queries weigh the cache's values by its keys",
    "add": "the residual",
    "silu": "the gate's activation",
    "mul": "the gate times what it lets through",
    "select": "the rows whose logits are wanted",
}


class Walk(Reference):
    """The reference interpreter, which prints each op, the shape of its value, and its weights."""

    def evaluate(self, node: Node, inputs: list[Array]) -> Array:
        value = super().evaluate(node, inputs)
        shape = f"({len(value)}, {node.n})" if node.n else "state"  # a KV cache is written: no value
        print(f"{node.op:9} {shape:8} {' '.join(node.weights) or MEANINGS[node.op]}")
        return value


def walk(path: Path) -> None:
    # The file's header names every tensor with its type and shape. Nothing of the weights is read yet: they are views on a map.
    gguf = open_gguf(path)

    # arch/llama.py reads the keys that it needs and emits a graph: nodes in the order in which they are computed.
    keys, graph = load_graph(gguf)

    # Passes fuse what kernels do in one go (a product with the sum behind it), and keep only the rows whose logits are wanted. The
    # interpreter computes every row of the graph as it was built; back ends take the shorter one.
    shorter = optimise(graph)

    # Each node takes the values of earlier nodes and weights by name. Rows are tokens: a prompt has many, a decoded token is one,
    # and sees the ones before it through the KV cache that kv_write fills and attend reads.
    logits = Walk(graph, WeightStore(gguf)).logits(TOKENS)

    # The last row says how likely each token of the vocabulary comes next. temperature=0 takes the most likely one.
    token = int(np.argmax(logits[-1]))
    print(f"{len(graph.nodes)} ops, {len(shorter.nodes)} when fused; token {token} of {keys.n_vocab} comes next")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        walk(tiny_model(Path(folder) / "tiny.gguf", "llama", n_layers=1))
