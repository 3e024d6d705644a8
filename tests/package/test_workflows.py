"""The hosted workflow and the hooks of pre-commit: readable, and of programs, files and packages that are there."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_every_job_says_where_it_runs_and_does_something() -> None:
    for name, job in WORKFLOW["jobs"].items():
        assert job["runs-on"] and job["timeout-minutes"] and job["steps"], name
        assert all(("run" in step) != ("uses" in step) for step in job["steps"]), name
        for key in re.findall(r"matrix\.(\w+)", str(job)):
            assert all(key in row for row in job["strategy"]["matrix"]["include"]), f"{name}: {key}"


def test_its_programs_and_files_are_there() -> None:
    programs = [word for step in STEPS for word in re.findall(r"^\.[\w./-]+", step.get("run", ""), re.MULTILINE)]
    assert programs and all(os.access(ROOT / program, os.X_OK) for program in programs)
    patterns = re.findall(r"hashFiles\('([^']+)'\)", str(STEPS))
    assert patterns and all(next(ROOT.glob(pattern), None) for pattern in patterns)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in STEPS if "uses" in step)


def test_hooks_run_what_the_checkout_has() -> None:
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]["dev"]
    packages = {re.match(r"[\w-]+", each).group(0) for each in dev}  # type: ignore[union-attr]  # each begins with a name
    for hook in (hook for repository in HOOKS["repos"] for hook in repository["hooks"]):
        program = hook["entry"].split()[0]
        if program.startswith(".venv/bin/"):
            assert program.removeprefix(".venv/bin/").replace("lint-imports", "import-linter") in packages, hook["id"]
        else:
            assert os.access(ROOT / program, os.X_OK), hook["id"]
        assert re.compile(hook.get("files", ""))
