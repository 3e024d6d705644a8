"""Our speed against llama.cpp's, in one run: same file, threads and tokens, alternating; a Markdown table of medians of ratios.

    .venv/bin/python scripts/bench_peers.py MODEL.gguf ... --peer PYTHON [--threads 1,2] [--tests pp512,tg128] [--rounds 5]

PYTHON is an interpreter that has llama-cpp-python built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON). A test is ppN (a prompt
of N tokens), tgN (N tokens one by one) or tgN@D (the same after D tokens). Each configuration of llama.cpp (with and without its
repacked or AMX weights) is a peer of its own; the ratio is to the best of them. `--isa` forces our instruction set.
"""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent / "peers"
PEERS = {"llama.cpp": {}, "llama.cpp, plain weights": {"PEER_PLAIN": "1"}}


class Child:
    """A program that has loaded the model and runs one test per line of its input; it answers with seconds."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=dict(os.environ, **environment))

    def ask(self, test: str) -> float:
        """Seconds that the test took."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(test, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended at {test}")
        return float(answer)

    def close(self) -> None:
        self._process.communicate()


def tokens_of(test: str) -> int:
    return int(test[2:].split("@")[0])


def compare(model: str, threads: int, tests: Sequence[str], options: argparse.Namespace) -> None:
    ours = {"EDGELLM_ISA": options.isa} if options.isa else {}
    common = [model, str(threads), str(options.context)]
    children = [Child("edgellm", [sys.executable, str(HERE / "edgellm_child.py"), *common], ours)]
    if options.peer:
        children += [Child(name, [options.peer, str(HERE / "llama_cpp_child.py"), *common], extra)
                     for name, extra in PEERS.items()]
    probe = Child("probe", [sys.executable, str(HERE / "probe_child.py"), str(threads)], {})
    for test in tests:
        for child in children:
            child.ask(test)                      # warms caches up
        rounds = [[tokens_of(test) / child.ask(test) for child in children] + [probe.ask("read")]
                  for _ in range(options.rounds)]
        report(model, threads, test, [child.name for child in children], rounds)
    for child in (*children, probe):
        child.close()


def report(model: str, threads: int, test: str, names: Sequence[str], rounds: Sequence[Sequence[float]]) -> None:
    """One line: median tokens per second of each, the median ratio to the best peer of each round, and the share of a read."""
    speeds = [statistics.median(column) for column in zip(*rounds, strict=True)]
    peers = ", ".join(f"{speed:.1f}" for speed in speeds[1:-1])
    ratio = statistics.median(row[0] / max(row[1:-1]) for row in rounds) if len(names) > 1 else float("nan")
    share = ""
    if test.startswith("tg"):
        share = f"{statistics.median(row[0] * os.path.getsize(model) / 1e9 / row[-1] for row in rounds):.2f}"
    print(f"| {Path(model).stem} | {threads} | {test} | {speeds[0]:.1f} | {peers} | {ratio:.2f} | {share} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", help="python with llama_cpp")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tests", default="pp512,tg128")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--isa")
    options = parser.parse_args()
    peers = " / ".join(PEERS) if options.peer else "peer"
    print(f"| model | threads | test | edgellm t/s | {peers} t/s | ratio to best | of a read |")
    print("|---|--:|---|--:|--:|--:|--:|")
    for model in options.models:
        for threads in options.threads.split(","):
            compare(model, int(threads), options.tests.split(","), options)


if __name__ == "__main__":
    main()
