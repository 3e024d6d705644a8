"""Streams that a shell may close or fill up: the command says so in one line, or goes on without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

RUN = "import sys; from edgellm.cli import main; main()"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes the streams")


def shell(path: Path, redirection: str) -> subprocess.CompletedProcess[str]:
    command = f'"{sys.executable}" -c "{RUN}" run "{path}" hello --raw -n 2 --threads 1 </dev/null {redirection}'
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_go_nowhere(tmp_path: Path, redirection: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", tokenizer="spm")
    shell(path, "")  # compiles what is missing, which it would say on stderr
    done = shell(path, redirection)
    assert done.returncode == 0 and "error" not in done.stderr and bool(done.stdout) == (redirection == "2>&-")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_is_no_fault_of_ours(tmp_path: Path) -> None:
    done = shell(tiny_model(tmp_path / "m.gguf", tokenizer="spm"), ">/dev/full")
    last = done.stderr.splitlines()[-1]  # a slow machine says before that it is loading
    assert done.returncode == 3 and last.startswith("error: the output cannot be written: No space left on device; ")


def test_a_closed_stdin_is_an_empty_one(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", tokenizer="spm")
    command = f'"{sys.executable}" -c "{RUN}" chat "{path}" <&-'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=600, env=os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    )
    assert done.returncode == 0 and done.stdout == "" and "error" not in done.stderr
