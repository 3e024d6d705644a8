"""Speed tests with llama-bench's meaning: what one repetition does, and what is reported of several."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgellm.cli.terminal.profile_table import profile_report
from edgellm.cli.terminal.progress import ProgressLine

if TYPE_CHECKING:
    from edgellm.api.model import Model
    from edgellm.backends.base import StepTimes

Read = Callable[[], float]  # a streaming read's bytes per second, measured now


@dataclass(frozen=True, slots=True)
class Test:
    """`prompt` tokens read at once (pp), `generated` ones written one by one (tg), or both (pg), after `depth` others."""

    prompt: int
    generated: int
    depth: int

    @property
    def name(self) -> str:
        parts = [f"{kind}{n}" for kind, n in (("pp", self.prompt), ("tg", self.generated)) if n]
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    @property
    def decodes(self) -> bool:
        return not self.prompt


@dataclass(frozen=True, slots=True)
class Repetition:
    """One repetition: seconds, those of them inside the back end's steps, and a streaming read's speed right after it."""

    seconds: float
    inside: float
    read: float | None


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A test and its repetitions. `token_bytes`: what each token of a tg test reads from memory, on average. `profile`: of a step
    of `profiled` tokens.
    """

    test: Test
    runs: tuple[Repetition, ...]
    token_bytes: float
    profile: StepTimes | None = None
    profiled: int = 0

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [self.test.tokens / run.seconds for run in self.runs]

    @property
    def mean(self) -> float:
        """Mean of the rates."""
        return statistics.fmean(self.rates)

    @property
    def deviation(self) -> float:
        """The rates' sample standard deviation, 0 for a single repetition."""
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second that a tg test reads, the median repetition's."""
        return self.token_bytes * statistics.median(self.rates) if self.test.decodes else None

    @property
    def of_read(self) -> float | None:
        """The median of what part of a streaming read that is, each repetition held against the read right after it."""
        parts = [self.token_bytes * rate / run.read for rate, run in zip(self.rates, self.runs, strict=True) if run.read]
        return statistics.median(parts) if self.test.decodes and parts else None

    @property
    def inside(self) -> float:
        """The part of the time that is spent inside the back end's steps: the rest is sampling, text and Python."""
        return sum(run.inside for run in self.runs) / sum(run.seconds for run in self.runs)

    @property
    def step_seconds(self) -> float | None:
        """The median repetition's seconds inside steps for one such as was profiled; None where they were of several sizes."""
        steps = self.test.generated if self.test.decodes else 1
        alike = self.test.decodes or (self.profiled == self.test.prompt and not self.test.generated)
        return statistics.median(run.inside for run in self.runs) / steps if alike else None

    def report(self, model: Model, machine: dict[str, Any]) -> dict[str, Any]:  # Any: strings and numbers, as JSON has them
        """The row under llama-bench's field names; times in nanoseconds, rates in tokens per second."""
        nanoseconds = [int(run.seconds * 1e9) for run in self.runs]
        reads = [run.read for run in self.runs if run.read]
        report: dict[str, Any] = {
            "model_filename": str(model.info.path),
            "model_type": model.info.architecture,
            "model_size": model.info.file_bytes,
            "model_n_params": model.info.parameters,
            "backend": model.info.backend,
            "n_threads": model.info.threads,
            **machine,
            "n_prompt": self.test.prompt,
            "n_gen": self.test.generated,
            "n_depth": self.test.depth,
            "avg_ns": int(statistics.fmean(nanoseconds)),
            "stddev_ns": int(statistics.stdev(nanoseconds)) if len(nanoseconds) > 1 else 0,
            "avg_ts": self.mean,
            "stddev_ts": self.deviation,
            "samples_ns": nanoseconds,
            "samples_ts": self.rates,
            "bytes_per_second": self.bandwidth,
            "read_bytes_per_second": statistics.median(reads) if reads else None,
            "of_read": self.of_read,
            "inside": self.inside,
        }
        if self.profile:
            report["profile_tokens"] = self.profiled
            report["step_ns"] = None if self.step_seconds is None else int(self.step_seconds * 1e9)
            report |= profile_report(self.profile)
        return report


def rows(model: Model, tests: Sequence[Test], repetitions: int, read: Read | None, *, profile: bool) -> Iterator[BenchResult]:
    """Repetition the tests in order. `read` measures what memory gives; `profile`: one more step, timed by kind of kernel."""
    from edgellm.bench.measure import bytes_of_token, where_time_goes

    for test in tests:
        runs, before = [], _random(model, test.depth)
        with ProgressLine(test.name) as progress:
            for k in range(repetitions + 1):  # the first one warms caches up
                progress(test.name, k, repetitions + 1)
                runs.append(_run(model, test, before, read))
        size = test.prompt or 1
        times: StepTimes | None = None
        if profile:
            size, times = where_time_goes(model, _random(model, test.depth + size), size)
        seen = test.depth + (test.generated + 1) / 2  # keys of an average token
        yield BenchResult(test, tuple(runs[1:]), bytes_of_token(model, round(seen)), times, size)


def _run(model: Model, test: Test, before: list[int], read: Read | None) -> Repetition:
    """One repetition in a context that holds the tokens `before`; they are computed unless it still does."""
    from edgellm.bench.measure import busy_seconds

    prompt = before + _random(model, test.prompt or 1)
    if before:  # the timed call finds them in the context
        model.generate(before, max_tokens=1, temperature=0, ignore_eos=True)
    # A prompt's last token yields the first generated one: for tg alone it is a step of one token, as the others are.
    new = test.generated + (1 if test.prompt else 0)
    inside, start = busy_seconds(model), time.perf_counter()
    model.generate(prompt, max_tokens=new, temperature=0, ignore_eos=True)
    seconds = time.perf_counter() - start
    return Repetition(seconds, busy_seconds(model) - inside, read() if read is not None and test.decodes else None)


def _random(model: Model, n: int) -> list[int]:
    return [random.randrange(model.info.n_vocab) for _ in range(n)]
