"""Times decoding with a LoRA adapter on all linear layers beside decoding without, in turns.

    scripts/bench_lora.py MODEL.gguf [--rank 16] [--type F32|F16] [--rounds 7] [--threads N]

The adapter has random factors. The ratio of medians is printed; below 1 the adapter costs something.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

import edgellm
from edgellm.arch import load_graph
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import open_gguf
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.spec import matrices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--type", choices=("F32", "F16"), default="F32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        adapter = write(Path(folder) / "adapter.gguf", options.model, options.rank, options.type)
        with (
            edgellm.load(options.model, context=512, threads=options.threads) as plain,
            edgellm.load(options.model, context=512, threads=options.threads, adapters=[(adapter, 1.0)]) as adapted,
        ):
            rates: dict[edgellm.Model, list[float]] = {plain: [], adapted: []}
            for turn in range(options.rounds + 1):
                for model, found in rates.items():
                    done = model.generate([1, 2, 3], max_tokens=options.tokens, temperature=0, ignore_eos=True)
                    if turn:  # the first only warms up
                        found.append(done.stats.tokens_per_second)
    without, with_it = (statistics.median(found) for found in rates.values())
    print(f"{without:.1f} tokens/s, with rank {options.rank} in {options.type} {with_it:.1f}: {with_it / without:.2f} x")


def write(path: Path, model: Path, rank: int, kind: str) -> Path:
    """An adapter of all matrices in blocks."""
    with open_gguf(model) as gguf:
        keys, graph = load_graph(gguf)
        shapes = {name: shape for name, shape in matrices(graph).items() if name.startswith("blk.")}
        architecture = keys.architecture
    factors = {f"{name}.lora_a": (rank, columns) for name, (_, columns) in shapes.items()}
    factors |= {f"{name}.lora_b": (rows, rank) for name, (rows, _) in shapes.items()}
    facts = {"general.architecture": architecture, "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 16.0}
    chance, element = np.random.default_rng(1), np.float16 if kind == "F16" else np.float32
    with GGUFWriter(path, facts, [NewTensor(name, shape, TYPES_BY_NAME[kind]) for name, shape in factors.items()]) as writer:
        for name, shape in factors.items():
            writer.write(name, (chance.standard_normal(shape) * 0.002).astype(element).view(np.uint8))
    return path


if __name__ == "__main__":
    main()
