"""Compares `quantize --target` with the usual mixes at the same size: mean KL from the unquantised model, as a Markdown table.

    .venv/bin/python scripts/check_target.py MODEL-F16.gguf ... [--types Q4_K_M,IQ4_XS]

Texts are what the model writes at temperature 1: some to calibrate on, others to judge with.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from children import json_of

import edgellm
from edgellm.formats.gguf import open_gguf

RUN = [sys.executable, "-c", "from edgellm.cli import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--types", default="Q4_K_M,IQ4_XS")
    parser.add_argument("--words", type=int, default=3000, help="tokens of each text")
    options = parser.parse_args()
    print("| model | type | bits per weight | mean KL | --target | mean KL |\n|---|---|--:|--:|--:|--:|")
    for path in options.models:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            calibration, judge = (written(path, folder / f"{seed}.txt", seed, options.words) for seed in (1, 1000))
            for kind in options.types.split(","):
                usual, ours = folder / f"{kind}.gguf", folder / f"target-{kind}.gguf"
                run("quantize", path, usual, kind)
                bits = bits_per_weight(usual)
                run("quantize", path, ours, "--target", f"{bits:.3f}", "--calibrate", calibration)
                print(
                    f"| {path.stem} | {kind} | {bits:.2f} | {divergence(usual, path, judge)} | {bits_per_weight(ours):.2f} | "
                    f"{divergence(ours, path, judge)} |",
                    flush=True,
                )


def written(path: Path, file: Path, seed: int, tokens: int) -> Path:
    """Texts that the model writes, each as long as its context."""
    texts, count = list[str](), 0
    with edgellm.load(path) as model:
        while count < tokens:
            answer = model.generate("The", max_tokens=min(model.context, 256) - 4, temperature=1.0, seed=seed + len(texts))
            texts.append(answer.text)
            count += max(1, len(answer.token_ids))
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def run(*arguments: object) -> None:
    done = subprocess.run([*RUN, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))} failed:\n{done.stderr}")


def bits_per_weight(path: Path) -> float:
    with open_gguf(path) as file:
        tensors = file.tensors.values()
        return 8 * sum(tensor.nbytes for tensor in tensors) / sum(math.prod(tensor.shape) for tensor in tensors)


def divergence(path: Path, base: Path, text: Path) -> str:
    command = [*RUN, "perplexity", str(path), str(text), "--kl-base", str(base), "--context", "256", "--json"]
    found = json_of(command)["kl"]
    return f"{found['mean']:.4f} ± {found['error']:.4f}"


if __name__ == "__main__":
    main()
