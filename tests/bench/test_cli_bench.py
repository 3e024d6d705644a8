"""`edgellm bench`: which tests it runs, and what it makes of their times; nothing here is timed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel
from tiny_models import tiny_model

from edgellm.backends.base import KindTime, StepBatch, StepTimes
from edgellm.cli import app, opening
from edgellm.graph import KVSpec
from edgellm.memory.layout import plan_memory


class FakeEngine:
    """The parts of an engine and its executable that bench uses."""

    isa, busy_seconds = "generic", 0.0
    layout = plan_memory([KVSpec(2, 16, 16)], context=64, sinks=4, chunk=16)

    def check(self) -> FakeEngine:
        return self

    def profile(self, batch: StepBatch) -> StepTimes:
        raise AssertionError("`where_time_goes` is replaced")


def where_time_goes(model: FakeModel, ids: list[int], step: int) -> tuple[int, StepTimes]:
    """At most 6 tokens at once; a fifth of a step is not told."""
    kinds = KindTime("matmul:Q4_0", len(ids), 0.002, 4_000_000), KindTime("norm:rms_norm", step, 0.001, 0)
    return min(step, 6), StepTimes(0.00375, kinds)


class FakeProbe:
    """Reads 10 GB/s."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def measure(self) -> float:
        return 1e10

    def close(self) -> None:
        self.threads = 0


class Loader:
    """Stands in for `open_model`; remembers how it was called."""

    def __init__(self) -> None:
        self.model, self.calls = FakeModel(), list[dict[str, Any]]()

    def __call__(self, name: str, options: dict[str, Any]) -> FakeModel:
        self.calls.append(options)
        return self.model

    @property
    def asked(self) -> list[tuple[int, int]]:
        """Tokens of prompt and answer of each generation."""
        return [(len(prompt), options["max_tokens"]) for _, prompt, options in self.model.calls]


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    monkeypatch.setattr("edgellm.backends.cpu.bandwidth.CpuReadProbe", FakeProbe)
    monkeypatch.setattr(FakeModel, "engine", FakeEngine(), raising=False)
    monkeypatch.setattr("edgellm.bench.measure.where_time_goes", where_time_goes)
    monkeypatch.setattr(FakeModel, "n_vocab", 32, raising=False)
    made = Loader()
    monkeypatch.setattr(opening, "open_model", made)
    return made


def bench_table(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The rows of the first table, without its head."""
    lines = capsys.readouterr().out.split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_bench(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", "m", "-p", "16,8", "-n", "4", "-r", "3", "-t", "1", "-tb", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(16, 0), (8, 0), (0, 4)]
    assert all(len(row["samples_ts"]) == 3 and row["avg_ts"] > 0 and row["isa"] == "generic" and row["cores"] >= 1 for row in rows)
    assert [row["of_read"] is None for row in rows] == [True, True, False]
    written = rows[2]  # 3000 bytes of weights, and of two or three keys in one layer
    token_bytes = written["bytes_per_second"] / statistics.median(written["samples_ts"])
    assert token_bytes == pytest.approx(3000 + 2 * 2 * 32 * 2) and written["read_bytes_per_second"] == 1e10
    assert written["of_read"] == pytest.approx(written["bytes_per_second"] / 1e10)
    assert loader.asked == [(16, 1)] * 4 + [(8, 1)] * 4 + [(1, 4)] * 4  # one repetition more than is counted
    assert loader.calls[0]["threads"] == 1 and loader.calls[0]["threads_batch"] == 2
    assert app.run(["bench", "m", "-p", "8", "-n", "0", "-r", "1"]) == 0
    assert [row[3] for row in bench_table(capsys)] == ["pp8"]


def test_bench_of_more_tokens_than_a_model_has_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_model(tmp_path / "m.gguf", "gpt2", context=96))
    assert app.run(["bench", model]) == 2
    assert "need a context of 512, which is not possible: this model has learned 96 positions; lower -p" in capsys.readouterr().err


def test_bench_in_a_filled_context(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", "m", "-p", "8", "-n", "4", "-d", "100", "-r", "1"]) == 0
    assert [row[3] for row in bench_table(capsys)] == ["pp8 @ d100", "tg4 @ d100"]
    assert loader.asked == [(100, 1), (108, 1)] * 2 + [(100, 1), (101, 4)] * 2
    assert loader.calls[0]["context"] == 108


def test_bench_of_prompt_and_generation_together(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", "m", "-p", "0", "-n", "0", "-pg", "8,4", "-pg", "60,40", "-r", "1"]) == 0
    assert [row[3] for row in bench_table(capsys)] == ["pp8+tg4", "pp60+tg40"]
    assert loader.asked == [(8, 5)] * 2 + [(60, 41)] * 2  # the prompt's last token yields one more
    assert loader.calls[0]["context"] == 100


def test_bench_shows_where_time_goes(loader: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", "m", "-p", "8", "-n", "4", "-r", "1", "-d", "3", "--profile"]) == 0
    out = capsys.readouterr().out
    assert out.count("| matmul:Q4_0 ") == 2 and "|   2.00 |" in out and "53.3%" in out
    text = " ".join(out.split())
    assert "A step of 6 tokens after 5 others" in text and "3.75 ms, of which these parts make 80.0%" in text
    assert app.run(["bench", "m", "-p", "8", "-n", "0", "-r", "1", "--profile", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["profile"][0] == {"kind": "matmul:Q4_0", "calls": 8, "ns": 2000000, "bytes": 4000000}
    assert row["profile_ns"] == 3750000 and row["profile_coverage"] == pytest.approx(0.8) and row["step_ns"] is None
