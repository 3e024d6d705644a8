"""Our speed against llama.cpp's, in one run: same file, threads and tokens, alternating; a Markdown table of medians of ratios.

    .venv/bin/python scripts/bench_peers.py MODEL.gguf ... [--peer PYTHON] [--bench "NAME=COMMAND"] [--threads 1,2]
                       [--tests pp512,tg128,tg128@4096] [--isa avx2,avx512vnni] [--rounds 5] [--json docs/speed.json]

PYTHON is an interpreter that has llama-cpp-python built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON), or for a lower ISA level;
it counts twice, with and without its repacked or AMX weights, each with or without flash attention, whichever is faster. COMMAND is
llama-bench, of llama.cpp or of ik_llama.cpp, with options of a configuration: "ik repacked=./llama-bench -rtr 1". Give several of
both; the ratio is to the best of all, in each round.

A test is ppN (a prompt of N tokens), tgN (N tokens one by one), tgN@D (the same after D tokens), tgNxB or tgNxB@D (N tokens of each
of B conversations in shared steps; the tokens of all count). `--isa` forces our instruction set, one after the other. The last
columns: the part of a streaming read, measured in the same rounds, that our tokens make, and our peak memory beside weights, keys
and values. `--json` writes the rows into a file as well, for scripts/draw_speed.py.
"""
from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any  # what JSON holds

from children import Child
from peers.llama_bench import LlamaBench

HERE = Path(__file__).resolve().parent / "peers"
SPARE = 64                                       # tokens of the context beyond the longest test
PEERS = {"llama.cpp": {}, "llama.cpp, plain weights": {"PEER_PLAIN": "1"}}


@dataclass(frozen=True, slots=True)
class Test:
    """What `--tests` names: "pp" or "tg", tokens of each conversation, tokens before them, conversations in shared steps."""

    name: str
    kind: str
    tokens: int
    depth: int
    conversations: int

    @classmethod
    def parse(cls, name: str) -> Test:
        found = re.fullmatch(r"(pp|tg)(\d+)(?:x(\d+))?(?:@(\d+))?", name)
        if not found or (found[1] == "pp" and (found[3] or found[4])):
            raise SystemExit(f"--tests has {name}; give ppN, tgN, tgN@D, tgNxB or tgNxB@D.")
        return cls(name, found[1], int(found[2]), int(found[4] or 0), int(found[3] or 1))

    @property
    def line(self) -> str:
        """What a child is asked."""
        return f"{self.kind}{self.tokens},{self.depth},{self.conversations}"


def compare(model: str, threads: int, isa: str, tests: Sequence[Test], options: argparse.Namespace) -> list[dict[str, Any]]:
    ours = {"EDGELLM_ISA": isa} if isa else {}
    context = max(test.tokens + test.depth for test in tests) + SPARE
    common = [model, str(threads), str(context), str(max(test.conversations for test in tests))]
    children: list[Child | LlamaBench] = [Child("edgellm", [sys.executable, str(HERE / "edgellm_child.py"), *common], ours)]
    children += [Child(name, [peer, str(HERE / "llama_cpp_child.py"), *common], extra)
                 for peer in options.peer for name, extra in PEERS.items()]
    children += [LlamaBench(name, command, model, threads) for name, command in options.bench]
    probe = Child("probe", [sys.executable, str(HERE / "probe_child.py"), str(threads)], {})
    rows = []
    for test in tests:
        for child in children:
            child.ask(test.line)                 # warms caches up
        rounds = [[test.tokens * test.conversations / child.ask(test.line) for child in children] + [probe.ask("read")]
                  for _ in range(options.rounds)]
        seen = test.depth + test.tokens // 2
        rows.append(report(Path(model).stem, isa, threads, test, rounds, children[0].ask(f"bytes{seen}"),
                           children[0].ask("overhead")))
    for child in (*children, probe):
        child.close()
    return rows


def report(model: str, isa: str, threads: int, test: Test, rounds: Sequence[Sequence[float]], token_bytes: float,
           overhead: float) -> dict[str, Any]:
    """One line: median tokens per second of each, the median ratio to the best peer of each round, the share of a read, memory.

    Returns the same for --json.
    """
    speeds = [statistics.median(column) for column in zip(*rounds, strict=True)]
    peers = ", ".join(f"{speed:.1f}" for speed in speeds[1:-1])
    ratio = statistics.median(row[0] / max(row[1:-1]) for row in rounds) if peers else None
    alone = test.kind == "tg" and test.conversations == 1
    share = statistics.median(row[0] * token_bytes / 1e9 / row[-1] for row in rounds) if alone else None
    print(f"| {model} | {isa or 'best'} | {threads} | {test.name} | {speeds[0]:.1f} | {peers} | {_shown(ratio)} | {_shown(share)} |"
          f" {overhead:.0f} |", flush=True)
    return {"model": model, "isa": isa or "best", "threads": threads, "test": test.name, "edgellm": speeds[0],
            "peers": speeds[1:-1], "ratio": ratio, "of_read": share, "overhead_mib": overhead}


def _shown(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", action="append", default=[], help="python with llama_cpp; may be given several times")
    parser.add_argument("--bench", action="append", default=[], type=named, metavar="NAME=COMMAND",
                        help="llama-bench; may be given several times")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tests", default="pp512,tg128,tg128@4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", default="", help="our instruction sets, with commas between; default: the best one")
    parser.add_argument("--json", type=Path, help="a file for the rows, which scripts/draw_speed.py draws")
    parser.add_argument("--machine", default="", help="what to call this machine in it; default: the processor's name")
    options = parser.parse_args()
    if options.json and not ((options.peer or options.bench) and "1" in options.threads.split(",")):
        parser.error("--json is for the chart, which needs --peer or --bench, and one thread among --threads")
    tests = [Test.parse(name) for name in options.tests.split(",")]
    names = [*(name for _ in options.peer for name in PEERS), *(name for name, _ in options.bench)]
    peers = " / ".join(names) or "peer"
    print(f"| model | ISA level | threads | test | edgellm t/s | {peers} t/s | ratio to best | of a read "
          "| MiB beside weights and KV |")
    print("|---|---|--:|---|--:|--:|--:|--:|--:|")
    rows = []
    for model in options.models:
        for isa in options.isa.split(","):
            for threads in options.threads.split(","):
                rows += compare(model, int(threads), isa, tests, options)
    if options.json:
        facts = {"machine": options.machine or machine(), "date": f"{datetime.now(UTC):%Y-%m-%d}",
                 "peer": version(options.peer[0]) if options.peer else ", ".join(names), "rounds": options.rounds}
        options.json.write_text(written(facts, rows), encoding="utf-8")


def named(text: str) -> tuple[str, str]:
    """A peer's name and its command."""
    name, equals, command = text.partition("=")
    if not (name and equals and command.strip()):
        raise argparse.ArgumentTypeError(f"{text}: give NAME=COMMAND")
    return name, command


def machine() -> str:
    """The processor as the system names it, and how many cores of it are ours."""
    from edgellm.backends.cpu import system

    names = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return f"{system.usable_cores()} cores of {names[0] if names else system.host_cpu()}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def version(python: str) -> str:
    """What the first peer is."""
    said = subprocess.run([python, "-c", "import llama_cpp; print(llama_cpp.__version__)"], stdout=subprocess.PIPE, text=True,
                          check=True)
    return f"llama-cpp-python {said.stdout.split()[-1]}"


def written(facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """As JSON, a row in a line."""
    head = json.dumps(facts, indent=2).removesuffix("\n}")
    return f'{head},\n  "rows": [\n    ' + ",\n    ".join(map(json.dumps, rows)) + "\n  ]\n}\n"


if __name__ == "__main__":
    main()
