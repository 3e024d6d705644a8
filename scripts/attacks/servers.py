"""Hubs that lie, hold or lead astray, and fetches that are killed: the tests of pull, counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from seeds import VARIABLE

from attacks import Figure

PIECE = 20  # kills of one run of the test
TESTS = Path(__file__).resolve().parents[2] / "tests" / "catalogue"


class Counter:
    """A plugin of pytest that counts."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid}: {report.longreprtext[-300:]}")
        self.passed += report.passed and report.when == "call"


def _run(seed: int, *arguments: str) -> Counter:
    counter = Counter()
    os.environ[VARIABLE] = str(seed)
    with Path(os.devnull).open("w") as nowhere, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", nowhere)
        pytest.main(["-q", "-p", "no:cacheprovider", "-m", "", "--rootdir", str(TESTS.parents[1]), *arguments], plugins=[counter])
    return counter


def hostile(folder: Path, seed: int, n: int) -> Figure:
    """Figure 20: each case of a misbehaving hub ends in a typed error or the right file, and nothing is written elsewhere."""
    counter = _run(seed, *(str(TESTS / name) for name in ("test_pull.py", "test_pull_hostile.py", "test_pull_interrupted.py")))
    return Figure(
        f"{counter.passed + len(counter.failed)} cases of hubs that lie, hold, break off or lead elsewhere",
        f"{counter.passed} ended in a typed error or the right file",
        counter.failed,
    )


def kills(folder: Path, seed: int, n: int) -> Figure:
    """Figure 19: fetches that are killed at random places, `PIECE` with each seed."""
    case = f"{TESTS / 'test_pull_interrupted.py'}::test_kills_end_in_right_files[{PIECE}]"
    runs = [_run(seed + k, case) for k in range(max(1, n // PIECE))]
    right, failed = PIECE * sum(run.passed for run in runs), [fault for run in runs for fault in run.failed]
    return Figure(f"{PIECE * len(runs)} fetches killed at random places", f"{right} ended in the right file", failed)
