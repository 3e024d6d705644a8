"""The report for people with a Mac: its page, as far as it can be written without one."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("mlx.core", reason="mlx is not installed here; pip install mlx[cpu]")

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "mac_report.py"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mac_report", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_names_what_is_missing(report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With commands that print a line, and one that fails."""
    command = [sys.executable, "-c", "print('| tokens/s | 7 |')"]
    measured = report.measured
    monkeypatch.setattr(report, "measured", lambda _: measured(command))
    monkeypatch.setattr(report, "ROWS", 64)
    page = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["mac_report.py", "--quick", "--output", str(page)])
    report.main()
    text = page.read_text()
    assert re.findall("^## (.*)", text, re.MULTILINE)[:2] == ["Machine", "Kernels of ours on Metal"]
    assert text.count("| tokens/s | 7 |") == 2 and "No GGUF file was given." in text and "Left out" in text
    assert len(re.findall(r"^\| IQ\w+ \| .* \| \d", text, re.MULTILINE)) == 9
    failed = list(measured([sys.executable, "-c", "raise SystemExit('no mlx_lm')"]))
    assert "no mlx_lm" in failed[1] and failed[2] == "exit code 1"


def test_watts_are_read_as_powermetrics_prints_them(report: ModuleType) -> None:
    lines = ["CPU Power: 1204 mW", "GPU Power: 8100 mW", "Combined Power (CPU + GPU + ANE): 9304 mW", "E-Cluster Power: 3 mW"]
    assert [match.groups() for line in lines if (match := report.WATTS.match(line))] == [
        ("CPU", "1204"),
        ("GPU", "8100"),
        ("Combined", "9304"),
    ]
