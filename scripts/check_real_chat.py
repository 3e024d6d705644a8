"""A conversation with a model of the world, as a newcomer has it: pull, run, chat, resume, and answers as JSON.

    .venv/bin/python scripts/check_real_chat.py

The model is smollm2-135m, from the hub or from the Python package index; where neither can be reached, it says so and ends with 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "helpers")]

from pseudo_terminal import Terminal  # noqa: E402  # after the path

MODEL, SECONDS = "smollm2-135m", 300
WAITS = "\x1b[?2004h"  # what a terminal gets when a line can be typed
QUESTION = "Where is the Eiffel Tower?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
GREEDY = ("--temp", "0")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edgellm-chat-") as home:
        own = {"EDGELLM_DATA": f"{home}/data", "XDG_STATE_HOME": f"{home}/state", "HF_HOME": f"{home}/hf"}
        os.environ.update(own)
        pulled = edgellm("pull", MODEL)
        if pulled.returncode:
            print(f"skipped: {pulled.stderr.strip().splitlines()[-1]}")
            return
        answer = printed("run", MODEL, QUESTION, "-n", "40", *GREEDY)
        assert "Paris" in answer, answer
        chat(QUESTION, "Paris")
        chat("Thank you. Is it tall?", "tokens/s", "--continue")
        saved = json.loads(printed("sessions", "list", "--json"))
        assert len(saved) == 1, saved
        report = json.loads(printed("run", MODEL, QUESTION, "--schema", json.dumps(SCHEMA), "--json", *GREEDY))
        assert report["parsed"].keys() == {"city", "country"} and report["stop_reason"] == "eog", report
        print(f"{MODEL}: pull, run, chat, resume and JSON; {answer.strip()} {json.dumps(report['parsed'])}")


def chat(text: str, wanted: str, *options: str) -> None:
    """One message on a terminal, and a resumed chat shows the last exchange first."""
    terminal = Terminal([sys.executable, "-m", "edgellm", "chat", MODEL, *options, *GREEDY])
    if options:
        terminal.wait_for("Eiffel", SECONDS)
    terminal.wait_for(WAITS, SECONDS)
    terminal.type(f"{text}\r")
    terminal.wait_for(wanted, SECONDS)
    terminal.wait_for(WAITS, SECONDS)
    terminal.type("/quit\r")
    terminal.wait_for("\n", SECONDS)
    terminal.close()


def printed(*arguments: str) -> str:
    """A command's output; it must succeed."""
    done = edgellm(*arguments)
    if done.returncode:
        raise SystemExit(f"edgellm {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def edgellm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing on its standard input."""
    command = [sys.executable, "-m", "edgellm", *arguments]
    return subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, timeout=SECONDS, check=False)


if __name__ == "__main__":
    main()
