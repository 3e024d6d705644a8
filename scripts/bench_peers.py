"""Our speed against llama.cpp's, in one run: same file, threads and tokens, alternating; a Markdown table of medians of ratios.

    .venv/bin/python scripts/bench_peers.py MODEL.gguf ... [--peer PYTHON] [--bench "NAME=COMMAND"] [--threads 1,2]
                       [--tests pp512,tg128,tg128@4096] [--isa avx2,avx512vnni] [--rounds 5] [--weights mapped,repacked]
                       [--json docs/speed.json]

PYTHON is an interpreter that has llama-cpp-python built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON), or for a lower ISA level;
it runs with and without its repacked or AMX weights, each with or without flash attention. COMMAND is llama-bench, of llama.cpp or
of ik_llama.cpp, with options of a configuration: --bench "ik_llama.cpp=./llama-bench" --bench "ik_llama.cpp=./llama-bench -rtr 1".
Of the configurations of a program (those with the same NAME), in each round the fastest counts.

A test is ppN (a prompt of N tokens), tgN (N tokens one by one), tgN@D (the same after D tokens), tgNxB or tgNxB@D (N tokens of each
of B conversations in shared steps; the tokens of all count). `--isa` forces our instruction set, one after the other. The last
columns: the part of a streaming read, measured in the same rounds, that our tokens make, and our peak memory beside weights, keys
and values. `--weights`: edgellm uses them where the file is mapped, or repacks them in memory (--no-mmap); both have a row each.
`--json` writes the rows into a file as well, for scripts/draw_speed.py.
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
SPARE = 64  # tokens of the context beyond the longest test
LLAMA_CPP = "llama.cpp"  # the program of --peer, and its configurations
CONFIGURATIONS: tuple[dict[str, str], ...] = ({}, {"PEER_PLAIN": "1"})
WEIGHTS = {"mapped": [], "repacked": ["--no-mmap"]}  # how edgellm may hold them, and its option


@dataclass(frozen=True, slots=True)
class Test:
    """A test of `--tests`: "pp" or "tg", tokens of each conversation, tokens before them, conversations in shared steps."""

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
        """The line that a child process reads."""
        return f"{self.kind}{self.tokens},{self.depth},{self.conversations}"


@dataclass(frozen=True, slots=True)
class Round:
    """Tokens per second: ours, of each way to hold weights, and of each program with its fastest configuration. GB/s of a streaming
    read.
    """

    ours: tuple[float, ...]
    peers: dict[str, float]
    read: float

    @classmethod
    def of(cls, test: Test, ours: Sequence[Child], others: Sequence[Child | LlamaBench], probe: Child) -> Round:
        def speed(child: Child | LlamaBench) -> float:
            return test.tokens * test.conversations / child.ask(test.line)

        own = tuple(speed(child) for child in ours)
        peers: dict[str, float] = {}
        for child in others:
            peers[child.name] = max(speed(child), peers.get(child.name, 0.0))
        return cls(own, peers, probe.ask("read"))


def compare(model: str, threads: int, isa: str, tests: Sequence[Test], options: argparse.Namespace) -> list[dict[str, Any]]:
    environment = {"EDGELLM_ISA": isa} if isa else {}
    context = max(test.tokens + test.depth for test in tests) + SPARE
    common = [model, str(threads), str(context), str(max(test.conversations for test in tests))]
    command = [sys.executable, str(HERE / "edgellm_child.py"), *common]
    ours = [Child("edgellm", [*command, *WEIGHTS[way]], environment) for way in options.weights]
    others: list[Child | LlamaBench] = [
        Child(LLAMA_CPP, [peer, str(HERE / "llama_cpp_child.py"), *common], extra)
        for peer in options.peer
        for extra in CONFIGURATIONS
    ]
    others += [LlamaBench(name, command, model, threads) for name, command in options.bench]
    probe = Child("probe", [sys.executable, str(HERE / "probe_child.py"), str(threads)], {})
    rows = []
    for test in tests:
        for child in (*ours, *others):
            child.ask(test.line)  # warms caches up
        rounds = [Round.of(test, ours, others, probe) for _ in range(options.rounds)]
        seen = test.depth + test.tokens // 2
        for at, (way, child) in enumerate(zip(options.weights, ours, strict=True)):
            rows.append(
                report(Path(model).stem, way, isa, threads, test, rounds, at, child.ask(f"bytes{seen}"), child.ask("overhead"))
            )
    for child in (*ours, *others, probe):
        child.close()
    return rows


def report(
    model: str,
    weights: str,
    isa: str,
    threads: int,
    test: Test,
    rounds: Sequence[Round],
    at: int,
    token_bytes: float,
    overhead: float,
) -> dict[str, Any]:
    """One line: median tokens per second of our way `at` to hold weights and of each program, the median ratio to each, the share
    of a read, memory.

    Returns the same for --json.
    """
    speed = statistics.median(each.ours[at] for each in rounds)
    speeds = {name: statistics.median(each.peers[name] for each in rounds) for name in rounds[0].peers}
    ratios = {name: statistics.median(each.ours[at] / each.peers[name] for each in rounds) for name in rounds[0].peers}
    alone = test.kind == "tg" and test.conversations == 1
    share = statistics.median(each.ours[at] * token_bytes / 1e9 / each.read for each in rounds) if alone else None
    cells = [
        model,
        weights,
        isa or "best",
        threads,
        test.name,
        f"{speed:.1f}",
        *(f"{each:.1f}" for each in speeds.values()),
        *(f"{each:.2f}" for each in ratios.values()),
        "" if share is None else f"{share:.2f}",
        f"{overhead:.0f}",
    ]
    print("|", " | ".join(map(str, cells)), "|", flush=True)
    return {
        "model": model,
        "weights": weights,
        "isa": isa or "best",
        "threads": threads,
        "test": test.name,
        "edgellm": speed,
        "peers": speeds,
        "ratios": ratios,
        "of_read": share,
        "overhead_mib": overhead,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", action="append", default=[], help="python with llama_cpp; may be given several times")
    parser.add_argument(
        "--bench", action="append", default=[], type=named, metavar="NAME=COMMAND", help="llama-bench; may be given several times"
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tests", default="pp512,tg128,tg128@4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--weights",
        default=["mapped"],
        type=ways,
        metavar="mapped,repacked",
        help="how edgellm holds them; repacked is --no-mmap. Default: mapped",
    )
    parser.add_argument("--isa", default="", help="our instruction sets, with commas between; default: the best one")
    parser.add_argument("--json", type=Path, help="a file for the rows, which scripts/draw_speed.py draws")
    parser.add_argument("--machine", default="", help="what to call this machine in it; default: the processor's name")
    options = parser.parse_args()
    if options.json and not ((options.peer or options.bench) and "1" in options.threads.split(",")):
        parser.error("--json is for the chart, which needs --peer or --bench, and one thread among --threads")
    tests = [Test.parse(name) for name in options.tests.split(",")]
    names = list(dict.fromkeys([*(LLAMA_CPP for _ in options.peer), *(name for name, _ in options.bench)]))
    head = [
        "model",
        "weights",
        "ISA level",
        "threads",
        "test",
        "edgellm t/s",
        *(f"{name} t/s" for name in names),
        *(f"× {name}" for name in names),
        "of a read",
        "MiB beside weights and KV",
    ]
    print("|", " | ".join(head), "|")
    print("|---|---|---|--:|---|" + "--:|" * (3 + 2 * len(names)))
    rows = []
    for model in options.models:
        for isa in options.isa.split(","):
            for threads in options.threads.split(","):
                rows += compare(model, int(threads), isa, tests, options)
    if options.json:
        facts = {
            "machine": options.machine or machine(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "peer": ", ".join(version(options.peer[0]) if name == LLAMA_CPP and options.peer else name for name in names),
            "rounds": options.rounds,
        }
        options.json.write_text(written(facts, rows), encoding="utf-8")


def named(text: str) -> tuple[str, str]:
    """A peer's name and its command."""
    name, equals, command = text.partition("=")
    if not (name and equals and command.strip()):
        raise argparse.ArgumentTypeError(f"{text}: give NAME=COMMAND")
    return name, command


def ways(text: str) -> list[str]:
    """Ways to hold weights, in the order given."""
    given = text.split(",")
    if wrong := [way for way in given if way not in WEIGHTS]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r}: give {' or '.join(WEIGHTS)}, or both with a comma between")
    return given


def machine() -> str:
    """The processor as the system names it, and how many cores of it are ours."""
    from edgellm.backends.cpu import system

    names = [line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    return f"{system.usable_cores()} cores of {names[0] if names else system.host_cpu()}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []


def version(python: str) -> str:
    """The version of the first peer."""
    said = subprocess.run(
        [python, "-c", "import llama_cpp; print(llama_cpp.__version__)"], stdout=subprocess.PIPE, text=True, check=True
    )
    return f"llama-cpp-python {said.stdout.split()[-1]}"


def written(facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """As JSON, a row in a line."""
    head = json.dumps(facts, indent=2).removesuffix("\n}")
    return f'{head},\n  "rows": [\n    ' + ",\n    ".join(map(json.dumps, rows)) + "\n  ]\n}\n"


if __name__ == "__main__":
    main()
