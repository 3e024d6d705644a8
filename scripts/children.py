"""Programs that answer line by line, and checkouts of other commits for them to run, for scripts that compare."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # values of JSON

ROOT = Path(__file__).resolve().parent.parent


class Child:
    """A program that runs one test per line of its input and answers each with seconds."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **environment), cwd=folder
        )

    def ask(self, test: str) -> float:
        """Seconds that the test took, or what else is asked for."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(test, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended at {test}")
        return float(answer)

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with the sources of a commit, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="edgellm-commit-") as folder:
        tree = folder + "/tree"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            yield Path(tree)
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", tree], check=True)


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment of a program that imports edgellm from a checkout, with this interpreter's other packages."""
    return {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}


def json_of(command: Sequence[str]) -> dict[str, Any]:
    """A program's JSON output; where it fails, this one ends with its message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
