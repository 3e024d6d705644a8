"""Holds `edgellm fit` against the truth: its speed against `edgellm bench`, its memory against the peak of a full context.

Run on a quiet machine: .venv/bin/python scripts/check_fit.py MODEL.gguf... [--context 1024] [--rounds 3]
Fit and bench alternate, each in a process of its own; the table has medians. Ends with 1 if a speed is off by more than 20 % or
a memory by more than 10 %. Without the noise of neighbours, that is: the spread of bench is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPEED_BOUND, MEMORY_BOUND = 0.20, 0.10
FULL_CONTEXT = """
import random, resource, sys
import edgellm
path, context = sys.argv[1], int(sys.argv[2])
with edgellm.load(path, context=context) as model:
    prompt = [random.randrange(model.n_vocab) for _ in range(context)]
    model.generate(prompt, max_tokens=8, ignore_eos=True, temperature=0)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak if sys.platform == "darwin" else peak * 1024)
"""


@dataclass(frozen=True, slots=True)
class Result:
    """One model: foretold and true, in tokens a second and bytes."""

    name: str
    foretold: float
    rates: tuple[float, ...]
    estimate: int
    peak: int

    @property
    def speed_error(self) -> float:
        return self.foretold / statistics.median(self.rates) - 1

    @property
    def memory_error(self) -> float:
        return self.estimate / self.peak - 1

    @property
    def good(self) -> bool:
        return abs(self.speed_error) <= SPEED_BOUND and abs(self.memory_error) <= MEMORY_BOUND

    def __str__(self) -> str:
        low, high = min(self.rates), max(self.rates)
        return (
            f"| {self.name} | {self.foretold:.1f} | {statistics.median(self.rates):.1f} ({low:.1f} to {high:.1f}) | "
            f"{self.speed_error:+.0%} | {self.estimate / 1e6:.0f} | {self.peak / 1e6:.0f} | {self.memory_error:+.0%} | "
            f"{'yes' if self.good else '**no**'} |"
        )


def edgellm(*arguments: str) -> Any:  # Any: the command's JSON
    command = [sys.executable, "-c", "import sys; from edgellm.cli import main; sys.exit(main())", *arguments, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure(path: Path, context: int, rounds: int) -> Result:
    """Fit and bench in turns, then one process whose context fills up."""
    fits, rates = [], []
    for _ in range(rounds):
        fits.append(edgellm("fit", str(path), "--context", str(context)))
        rates += [row["avg_ts"] for row in edgellm("bench", str(path), "-p", "0", "-n", "64", "-r", "2")]
    estimate = next(row["bytes"] for row in fits[0]["memory"] if row["kv_type"] == "f16")
    done = subprocess.run([sys.executable, "-c", FULL_CONTEXT, str(path), str(context)], capture_output=True, text=True, check=True)
    foretold = statistics.median(fit["tokens_per_second"] for fit in fits)
    return Result(path.name, foretold, tuple(rates), estimate, int(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| model | fit tokens/s | bench tokens/s | error | fit MB | peak MB | error | within bounds |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    bad = 0
    for path in options.models:
        result = measure(path, options.context, options.rounds)
        bad += not result.good
        print(result, flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
