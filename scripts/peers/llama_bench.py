"""Runs tests for bench_peers.py with llama-bench, of llama.cpp or of ik_llama.cpp: a run for each repetition, with JSON output."""

from __future__ import annotations

import json
import shlex
import subprocess
from functools import cached_property


class LlamaBench:
    """Answers bench_peers.py's tests as a `Child` does. `command`: the program with options of the user's own (-rtr 1, -fa 1)."""

    def __init__(self, name: str, command: str, model: str, threads: int) -> None:
        self.name, self._command = name, shlex.split(command)
        self._common = ["-m", model, "-t", str(threads), "-r", "1", "-o", "json"]

    @cached_property
    def _has_depth(self) -> bool:
        """True if it has -d; ik_llama.cpp's has -gp instead, where a prompt comes before the tokens that are timed."""
        said = subprocess.run([*self._command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return "--n-depth" in said.stdout

    def ask(self, test: str) -> float:
        """Seconds of a test: kind and tokens, tokens before them, conversations."""
        kind, (tokens, depth, conversations) = test[:2], test[2:].split(",")
        if conversations != "1":
            raise SystemExit(f"{self.name}: llama-bench has no tests of several conversations; leave {test} out, or --bench.")
        prompt, generated = (tokens, "0") if kind == "pp" else ("0", tokens)
        if depth == "0":
            sizes = ["-p", prompt, "-n", generated]
        elif self._has_depth:
            sizes = ["-p", prompt, "-n", generated, "-d", depth]
        else:
            sizes = ["-p", "0", "-n", "0", "-gp", f"{depth},{generated}"]
        done = subprocess.run([*self._command, *self._common, *sizes], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.name} ended with code {done.returncode} at {test}")
        return seconds(done.stdout, self.name)

    def close(self) -> None:
        """Nothing runs between two tests."""


def seconds(output: str, name: str) -> float:
    """Of the one test in llama-bench's JSON; what other lines it may print go before it."""
    try:
        [row] = json.loads(output[output.index("[") :])
        return float(row["avg_ns"]) / 1e9
    except (ValueError, KeyError) as fault:
        raise SystemExit(f"{name} printed no llama-bench JSON of one test ({fault}): {output[:200]!r}") from None
