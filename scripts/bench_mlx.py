"""Times edgellm's MLX back end against mlx_lm on the same weights, alternating in one run, and prints a Markdown table.

    python scripts/bench_mlx.py                          # random 4-bit weights in the shapes of a small qwen3
    python scripts/bench_mlx.py --shape llama-1b         # or of another model; --list names them
    python scripts/bench_mlx.py path/to/mlx-folder       # a folder of the MLX community that both can load
    python scripts/bench_mlx.py --conversations 1 2 4 8  # so many at once, beside mlx_lm's batches

Needs mlx and mlx_lm. Each figure is the median of the rounds; the ratio is the median of each round's own ratio, so that a machine
that slows down or speeds up meanwhile counts for both. Peak memory is MLX's, of a process of its own each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-tiny": {
        "model_type": "qwen3",
        "hidden_size": 512,
        "num_hidden_layers": 8,
        "intermediate_size": 1536,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 16384,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    },
    "llama-1b": {
        "model_type": "llama",
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
    },
}
COMMON = {
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "rope_scaling": None,
}
CONTEXT = 4096


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(peak(options.folder, options.measure, options.prompt, options.tokens)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or make(Path(scratch) / options.shape, options.shape, options.bits, options.scales)
        if options.conversations:
            report_conversations(folder, options)
        else:
            report(folder, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="an MLX folder; without it, random weights are made")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument(
        "--scales",
        choices=("float16", "bfloat16", "float32"),
        default="float16" if on_gpu() else "float32",
        help="type of scales and norms, in which mlx_lm computes (its f16 is very slow on CPUs)",
    )
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="tokens to generate")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--conversations", type=int, nargs="+", metavar="N", help="measure so many conversations in shared steps")
    parser.add_argument("--measure", choices=("edgellm", "mlx_lm"), help=argparse.SUPPRESS)
    return parser.parse_args()


def on_gpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.gpu))


def make(folder: Path, shape: str, bits: int, scales: str) -> Path:
    """An MLX folder with random weights."""
    import mlx.nn as nn
    from mlx.utils import tree_flatten

    config = COMMON | SHAPES[shape] | {"quantization": {"group_size": 64, "bits": bits, "mode": "affine"}}
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(config))
    model.set_dtype(getattr(mx, scales))
    nn.quantize(model, group_size=64, bits=bits)
    folder.mkdir(parents=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


Run = Callable[[list[int], int], tuple[float, float]]  # (prompt, tokens) -> seconds of the prompt, and of the tokens


def edgellm_run(folder: Path) -> Run:
    """Prompt and greedy tokens through the public stream."""
    import edgellm

    model = edgellm.load(folder, backend="mlx", context=CONTEXT)

    def run(prompt: list[int], tokens: int) -> tuple[float, float]:
        start = time.perf_counter()
        stamps = [start]
        for _ in model.stream(prompt, max_tokens=tokens + 1, temperature=0, ignore_eos=True):
            stamps.append(time.perf_counter())
        result = model.generate(prompt[:1], max_tokens=1, temperature=0)  # the next prompt finds nothing in the cache
        assert result.token_ids
        return stamps[1] - start, stamps[-1] - stamps[1]

    return run


def mlx_lm_run(folder: Path) -> Run:
    """The same through mlx_lm's own loop, with its look-ahead."""
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)

    def run(prompt: list[int], tokens: int) -> tuple[float, float]:
        start = time.perf_counter()
        stamps = [start]
        for _ in generate_step(mx.array(prompt), model, max_tokens=tokens + 1):
            stamps.append(time.perf_counter())
        return stamps[1] - start, stamps[-1] - stamps[1]

    return run


RUNS = {"edgellm": edgellm_run, "mlx_lm": mlx_lm_run}


def peak(folder: Path, which: str, prompt: int, tokens: int) -> float:
    """MLX's peak memory in bytes, loading included."""
    RUNS[which](folder)(_prompt(folder, prompt), tokens)
    return float(mx.get_peak_memory())


def _prompt(folder: Path, n: int) -> list[int]:
    config = json.loads((folder / "config.json").read_text())
    ids: list[int] = np.random.default_rng(0).integers(0, config.get("vocab_size", 1000), n).tolist()
    return ids


def report(folder: Path, options: argparse.Namespace) -> None:
    """Rounds of both, one after the other, the first of which only warms up."""
    from importlib.metadata import version

    runs, prompt = {name: start(folder) for name, start in RUNS.items()}, _prompt(folder, options.prompt)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for count in range(options.rounds + 1):
        for name in list(runs) if count % 2 else list(reversed(runs)):
            measured = runs[name](prompt, options.tokens)
            if count:
                seconds[name].append(measured)
    peaks = {name: _child(folder, name, options) for name in runs}
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    device = "GPU" if on_gpu() else "CPU build"
    libraries = f"mlx {version('mlx')} ({device}), mlx_lm {version('mlx-lm')}"
    print(f"{folder.name}, {size / 1e6:.0f} MB; {libraries}, {platform.platform()}\n")
    print("|  | edgellm | mlx_lm | edgellm / mlx_lm |")
    print("| --- | ---: | ---: | ---: |")
    for column, (what, n) in enumerate((("prompt", options.prompt), ("generation", options.tokens))):
        ours, theirs = ([n / pair[column] for pair in seconds[name]] for name in ("edgellm", "mlx_lm"))
        ratio = _median_ratio(ours, theirs)
        print(f"| {what} of {n}, tokens/s | {statistics.median(ours):.1f} | {statistics.median(theirs):.1f} | {ratio:.2f} |")
    a, b = peaks["edgellm"], peaks["mlx_lm"]
    print(f"| peak memory, MB ({a / size:.2f} and {b / size:.2f} x the file) | {a / 1e6:.0f} | {b / 1e6:.0f} | {a / b:.2f} |")


def report_conversations(folder: Path, options: argparse.Namespace) -> None:
    """Tokens per second of N conversations together, after prompts of one length; rounds of all N and both programs alternate."""
    import edgellm
    from edgellm.bench import batched

    counts, tokens = options.conversations, options.tokens
    model = edgellm.load(folder, backend="mlx", context=CONTEXT, parallel=max(counts))
    theirs, prompt = _mlx_lm_batches(folder), _prompt(folder, options.prompt)
    found: dict[tuple[str, int], list[float]] = {}
    for count in range(options.rounds + 1):
        for n in counts:
            speeds = {"edgellm": batched.measure(model, n, options.prompt, tokens).speed, "mlx_lm": theirs(prompt, n, tokens)}
            for name, speed in speeds.items() if count else ():
                found.setdefault((name, n), []).append(speed)
    print("| conversations | edgellm, tokens/s | of one | mlx_lm, tokens/s | of one | edgellm / mlx_lm |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for n in counts:
        ours, other = found["edgellm", n], found["mlx_lm", n]
        own, own_other = (_median_ratio(found[name, n], found[name, counts[0]]) for name in ("edgellm", "mlx_lm"))
        ratio = _median_ratio(ours, other)
        cells = (f"{statistics.median(ours):.1f} | {own:.2f}", f"{statistics.median(other):.1f} | {own_other:.2f}", f"{ratio:.2f}")
        print(f"| {n} | {' | '.join(cells)} |")


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _mlx_lm_batches(folder: Path) -> Callable[[list[int], int, int], float]:
    """Greedy tokens per second of n rows in a step of mlx_lm's model, with its look-ahead."""
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)

    def run(prompt: list[int], n: int, tokens: int) -> float:
        cache = make_prompt_cache(model)
        y = mx.argmax(model(mx.array([prompt] * n), cache=cache)[:, -1], axis=-1)
        mx.eval(y)
        start = time.perf_counter()
        for _ in range(tokens):
            following = mx.argmax(model(y[:, None], cache=cache)[:, -1], axis=-1)
            mx.async_eval(following)
            mx.eval(y)
            y = following
        mx.eval(y)
        return n * tokens / (time.perf_counter() - start)

    return run


def _child(folder: Path, which: str, options: argparse.Namespace) -> float:
    command = [sys.executable, __file__, str(folder), "--measure", which, "-p", str(options.prompt), "-n", str(options.tokens)]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


if __name__ == "__main__":
    main()
