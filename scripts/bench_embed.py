"""How fast we embed short texts beside llama.cpp: same file, texts and threads, alternating in one run; medians.

    .venv/bin/python scripts/bench_embed.py MODEL.gguf ... --peer PYTHON [--texts 1000] [--threads 2] [--rounds 5]
                                                            [--clock cpu]

PYTHON is an interpreter that has llama-cpp-python. llama.cpp runs in several ways, with calls of 512 and of 2048 tokens, with and
without its repacked weights; each round's ratio is to the best of them. Both tokenize in the time that is measured. `--clock cpu`
counts processor seconds, for machines on which others compute. The last column is the least cosine of our vectors to llama.cpp's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import edgellm

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))
from story_text import story_text  # noqa: E402

WAYS = (("512", {}), ("2048", {}), ("512", {"PEER_PLAIN": "1"}), ("2048", {"PEER_PLAIN": "1"}))


def short_texts(n: int) -> list[str]:
    """Sentences of 4 to 40 words."""
    rng = random.Random(3)
    words = story_text(4 * n).split()
    return [" ".join(words[(at := rng.randrange(len(words) - 40)) : at + rng.randrange(4, 41)]) for _ in range(n)]


def compare(path: str, options: argparse.Namespace, texts: list[str], file: str) -> None:
    children = [
        subprocess.Popen(
            [options.peer, str(HERE / "peers" / "llama_cpp_embed.py"), path, str(options.threads), size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PEER_CLOCK=options.clock, **extra),
        )
        for size, extra in WAYS
    ]

    def ask(child: subprocess.Popen[str]) -> tuple[float, str]:
        assert child.stdin is not None and child.stdout is not None
        print(file, file=child.stdin, flush=True)
        seconds, name = child.stdout.readline().split()
        return float(seconds), name

    with edgellm.load(path, threads=options.threads, backend="cpu") as model:

        def run() -> float:
            clock = time.process_time if options.clock == "cpu" else time.perf_counter
            start = clock()
            model.embed(texts)
            return clock() - start

        run()
        names = [ask(child)[1] for child in children]
        rounds = [[run(), *(ask(child)[0] for child in children)] for _ in range(options.rounds)]
        theirs = np.array(json.loads(Path(f"{file}.{names[0]}.out").read_text()))
        theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
        cosine = (model.embed(texts[: len(theirs)]) * theirs).sum(axis=1).min()
        tokens = sum(len(model.tokenizer.encode(text, add_special=True)) for text in texts)
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    ratio = statistics.median(min(row[1:]) / row[0] for row in rounds)
    rates = ", ".join(f"{len(texts) / seconds:.0f}" for seconds in medians[1:])
    print(
        f"| {Path(path).stem} | {tokens / len(texts):.1f} | {len(texts) / medians[0]:.0f} | {rates} | {ratio:.2f} | {cosine:.5f} |",
        flush=True,
    )
    for child in children:
        child.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", required=True, help="python with llama_cpp")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    texts = short_texts(options.texts)
    print("| model | tokens a text | edgellm texts/s | llama.cpp 512, 2048, 512 plain, 2048 plain | ratio to best | least cosine |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps(texts))
        for path in options.models:
            compare(path, options, texts, str(file))


if __name__ == "__main__":
    main()
