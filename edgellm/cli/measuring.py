"""Speed tests with llama-bench's meaning: what one repetition does, and what is reported of several."""
from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgellm.cli.progress import ProgressLine

if TYPE_CHECKING:
    from edgellm.engine.model import Model


@dataclass(frozen=True, slots=True)
class Row:
    """One test: `tokens` read at once (pp) or written one by one (tg) after `depth` others, and each repetition's seconds."""

    kind: str
    tokens: int
    depth: int
    seconds: tuple[float, ...]

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [self.tokens / s for s in self.seconds]

    @property
    def mean(self) -> float:
        """Mean of the rates."""
        return statistics.fmean(self.rates)

    @property
    def deviation(self) -> float:
        """The rates' sample standard deviation, 0 for a single repetition."""
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    def report(self, model: Model) -> dict[str, Any]:      # Any: strings and numbers, as JSON has them
        """The row under llama-bench's field names; times in nanoseconds, rates in tokens per second."""
        nanoseconds = [int(s * 1e9) for s in self.seconds]
        return {
            "model_filename": str(model.info.path), "model_type": model.info.architecture,
            "model_size": model.info.file_bytes, "model_n_params": model.info.parameters,
            "backend": model.info.backend, "n_threads": model.info.threads,
            "n_prompt": self.tokens if self.kind == "pp" else 0,
            "n_gen": self.tokens if self.kind == "tg" else 0,
            "n_depth": self.depth,
            "avg_ns": int(statistics.fmean(nanoseconds)),
            "stddev_ns": int(statistics.stdev(nanoseconds)) if len(nanoseconds) > 1 else 0,
            "avg_ts": self.mean, "stddev_ts": self.deviation, "samples_ns": nanoseconds, "samples_ts": self.rates,
        }


def rows(model: Model, prompts: list[int], lengths: list[int], depths: list[int], repetitions: int) -> Iterator[Row]:
    """Run the tests, prompts first, at each depth; a length of 0 is no test."""
    tests = [("pp", n) for n in prompts if n] + [("tg", n) for n in lengths if n]
    for depth, (kind, n) in ((depth, test) for depth in depths for test in tests):
        seconds = []
        with ProgressLine(f"{kind}{n}") as progress:
            for k in range(repetitions + 1):             # the first one warms caches up
                progress(f"{kind}{n}", k, repetitions + 1)
                seconds.append(_measure(model, kind, n, depth))
        yield Row(kind, n, depth, tuple(seconds[1:]))


def _measure(model: Model, kind: str, n: int, depth: int) -> float:
    """Seconds of one repetition in a context that holds `depth` tokens."""
    before = [random.randrange(model.info.n_vocab) for _ in range(depth)]
    prompt = before + [random.randrange(model.info.n_vocab) for _ in range(n if kind == "pp" else 1)]
    if before:                                               # the timed call finds these tokens in the context
        model.generate(before, max_tokens=1, temperature=0, ignore_eos=True)
    start = time.perf_counter()
    # The prompt's last token yields the first generated one: n single-token steps for tg, one prefill for pp.
    model.generate(prompt, max_tokens=1 if kind == "pp" else n, temperature=0, ignore_eos=True)
    return time.perf_counter() - start
