"""`edgellm bench --parallel`: which steps it computes, and what it prints of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_backend import Loader, toys
from tiny_models import tiny_model

from edgellm.backends.base import StepBatch, StepTimes
from edgellm.backends.cpu.executable import CpuExecutable
from edgellm.cli import app, opening


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    made = toys()
    monkeypatch.setattr(opening, "open_model", lambda name, options: made.load(Path(name), **options))
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("parallel") / "m.gguf", n_layers=1)


def test_steps_carry_all_conversations(loader: Loader, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", str(path), "-p", "20", "-n", "5", "--parallel", "1,4,8", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [(report["pl"], report["pp"], report["tg"], report["n_kv"]) for report in reports] == [
        (1, 20, 5, 25),
        (4, 20, 5, 100),
        (8, 20, 5, 200),
    ]
    for report in reports:
        assert report["speed_tg"] == pytest.approx(report["pl"] * 5 / report["t_tg"])
        assert report["speed"] == pytest.approx(report["n_kv"] / report["t"])
    assert loader.toy.log[-5:] == [8] * 5 and sum(loader.toy.log) == (8 * 8 + 2 * 8) + (20 + 5) * (1 + 4 + 8)


def test_where_the_time_of_a_shared_step_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", str(tiny_model(tmp_path / "m.gguf", n_layers=1)), "-p", "20", "-n", "2", "--parallel", "1,3", "--profile"]
    assert app.run([*command, "--json"]) == 0
    for report in json.loads(capsys.readouterr().out):
        calls = {kind["kind"]: kind["calls"] for kind in report["profile"]}
        assert calls["select:rows"] > 0 and any(kind.startswith("attention") for kind in calls)
        assert report["profile_ns"] > 0 and report["profile_coverage"] > 0
    assert app.run(command) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A step with a token of each of 3 conversations after 20 others" in text and text.count("| (waiting at barriers) ") == 2


def test_profiled_steps_stay_within_learned_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen, profile = tiny_model(tmp_path / "m.gguf", "gpt2", n_layers=1), list[int](), CpuExecutable.profile

    def watched(self: CpuExecutable, batch: StepBatch) -> StepTimes:
        seen.extend(batch.positions.tolist())
        return profile(self, batch)

    monkeypatch.setattr(CpuExecutable, "profile", watched)
    assert app.run(["bench", str(model), "-p", "127", "-n", "1", "--parallel", "2", "--profile"]) == 0
    assert app.run(["bench", str(model), "-p", "0", "-n", "1", "-d", "127", "-r", "1", "--profile"]) == 0
    assert set(seen) == {127} and len(seen) > 20, "the last one of 128"


def test_a_back_end_that_cannot_tell(loader: Loader, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", str(path), "-p", "4", "-n", "1", "--parallel", "2", "--profile"]) == 2
    assert "toy back end has no profile; leave out --profile" in " ".join(capsys.readouterr().err.split())
    assert app.run(["bench", str(path), "-p", "4", "-n", "1", "--parallel", "2,99", "--profile"]) == 2
    assert "conversations at most; leave out --profile for 99" in " ".join(capsys.readouterr().err.split())
    assert not loader.toy.log, "it is said before anything is computed"


def test_the_table_and_what_is_refused(loader: Loader, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["bench", str(path), "-p", "0,8", "-n", "3", "--parallel", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["PP", "TG", "B"] and [line[:4] for line in lines[1:]] == [["0", "3", "2", "6"], ["8", "3", "2", "22"]]
    for wrong in (
        ["--parallel", "0"],
        ["--parallel", "x"],
        ["--parallel", "2", "-p", "0", "-n", "0"],
        ["--parallel", "2", "-r", "0"],
    ):
        assert app.run(["bench", str(path), *wrong]) == 2
