"""Types what newcomers type, into terminals of three widths and into pipes, and keeps what they see, to be read by a person.

    .venv/bin/python scripts/newcomer.py FOLDER [--command ./scripts/edgellm] [--columns 60,80,120] [--only NAME]

FOLDER gets a file for each thing that is typed and each width: 80/chat.txt. Cache, state and data are the newcomer's own, in
FOLDER/home. Lines that are wider than the terminal, tracebacks and escapes in pipes are counted: with any of them it ends with 1.
The app that somebody freezes on the second day is check_frozen.py's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "tests" / "helpers")]

from record_chat import Terminal  # noqa: E402  # after the path

LINES, PATIENCE = 300, 300.0  # rows of a terminal, so that nothing scrolls away; seconds for one thing
QUIET = 1.5  # seconds without a change, after which a screen is taken to be done
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")
ESCAPES = re.compile(r"\x1b|Traceback \(most recent")
PASTE = "\x1b[200~" + "\n".join(f"line {i} of a text that somebody pastes" for i in range(1, 6)) + "\x1b[201~"


@dataclass(frozen=True)
class Visit:
    """A command line, and the keys that are typed when it waits; "WAIT n" lets n seconds go by instead."""

    name: str
    command: str
    keys: tuple[str, ...] = ()
    stdin: str = ""  # for the run over pipes
    long_lines: bool = False  # whether what it prints is for programs, so that lines are not wrapped


GUIDE = "chat guide --temp 0"
VISITS = (
    Visit("nothing", ""),
    Visit("help", "--help"),
    Visit("chat-help", "chat --help"),
    Visit("run-help", "run --help"),
    Visit("version", "-V"),
    Visit("wrong-command", "caht"),
    Visit("wrong-option", "chat --temprature 1"),
    Visit("chat", "chat", ("hello", "/quit"), "hello\n"),
    Visit(
        "questions",
        GUIDE,
        ("how do I get a bigger model?", "which one fits 8 GB?", "and on a raspberry pi?", "what is Q4_K_M?", "/bye"),
        "how do I get a bigger model?\nwhich one fits 8 GB?\n",
    ),
    Visit(
        "beyond",
        GUIDE,
        ("write me a python function", "was ist die Hauptstadt von Frankreich?", "who won the world cup?", "/exit"),
        "who won the world cup?\n",
    ),
    Visit("commands", GUIDE, ("/help", "/?", "/set", "/stats", "/nonsense", "/hlp", "exit", "/quit"), "/help\n"),
    Visit(
        "settings",
        GUIDE,
        (
            "/set temperature nan",
            "/set top_p 7",
            "/set temperature 0.5",
            "/set temperature",
            "/set temprature 1",
            "/set temperature default",
            "/set seed -1",
            "/set think on",
            "/set",
            "/quit",
        ),
    ),
    Visit("paste", GUIDE, (PASTE, "/quit"), "one\ntwo\n"),
    Visit(
        "ctrl-c",
        GUIDE,
        ("tell me all about quantization\r", "WAIT 0.2", "\x03", "WAIT 1", "hello", "half a line\x03", "\x03", "\x03"),
    ),
    Visit("ctrl-d", GUIDE, ("\x04",)),
    Visit("system", GUIDE + " --system pirate", ("hello", "/quit"), "hello\n"),
    Visit("run", 'run guide "how do I chat?" --temp 0'),
    Visit("run-nothing", "run"),
    Visit("run-guide", "run guide", (), "what is edgellm?\n"),
    Visit("run-json", 'run guide "hi" --json --temp 0', long_lines=True),
    Visit("run-stop", 'run guide "what is gguf?" --stop . --seed -1 --temp 0'),
    Visit("run-think", "run guide hi --think"),
    Visit("run-threads", "run guide hi --threads 0"),
    Visit("run-temp", "run guide hi --temp nan"),
    Visit("run-missing-file", "run nofile.gguf hi"),
    Visit("run-no-prompt-file", "run guide -f nothing.txt"),
    Visit("run-folder", "run /tmp hi"),
    Visit("ollama-name", "run qwen3:0.6b hi"),
    Visit("llama3.2", "chat llama3.2"),
    Visit("ollama-model", "chat ollama:llama3.2"),
    Visit("repository", "run Qwen/Qwen3-0.6B-GGUF hi"),
    Visit("repository-type", "pull bartowski/Qwen_Qwen3-0.6B-GGUF:Q4_K_M"),
    Visit("hub-page", "run https://huggingface.co/Qwen/Qwen3-0.6B-GGUF hi"),
    Visit("hf.co", "pull hf.co/Qwen/Qwen3-0.6B-GGUF"),
    Visit("hub-file", "pull https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/blob/main/Qwen3-0.6B-Q8_0.gguf"),
    Visit("close-miss", "chat qwen3-1b"),
    Visit("not-pulled", "chat qwen3-0.6b"),
    Visit("fit", "fit"),
    Visit("fit-one", "fit qwen3-0.6b"),
    Visit("fit-guide", "fit guide"),
    Visit("bench", "bench guide"),
    Visit("list", "list"),
    Visit("show", "show guide"),
    Visit("path", "path guide"),
    Visit("rm", "rm guide"),
    Visit("doctor", "doctor"),
    Visit("tokenize", 'tokenize guide "Hello world"'),
    Visit("verify", "verify guide"),
    Visit("import-missing", "import nothing.gguf"),
    Visit("convert-missing", "convert nowhere out.gguf"),
    Visit("quantize-missing", "quantize nothing.gguf out.gguf Q4_K_M"),
    Visit("last-model", "chat", ("/model", "/model guide", "/model nothing", "/quit")),
    # --- the second day: resuming, another model, a long file, names and types of other programs
    Visit("first-chat", GUIDE, ("how do I get a bigger model?", "/save rivers", "/quit")),
    Visit("resume", "chat --continue", ("and which fits 8 GB?", "/undo", "/context", "/quit")),
    Visit("resume-picker", "chat --resume", ("1\r", "WAIT 3", "/quit")),
    Visit("resume-other-context", "chat --resume rivers --context 512", ("/context", "/quit")),
    Visit("sessions", "sessions list"),
    Visit("sessions-show", "sessions show rivers"),
    Visit("real-model", "pull smollm2-135m"),
    Visit(
        "three-models",
        "chat smollm2-135m --temp 0",
        ("Where is the Eiffel Tower?", "/model guide", "hello", "/model ~/mine.gguf", "hello", "/model smollm2-135m", "/quit"),
    ),
    Visit("long-file", GUIDE + " --context 512", ("/file ~/long.txt", "y", "/file", "/context", "what is it about?", "/quit")),
    Visit("second-list", "list"),
    Visit("wrong-type", "pull qwen3-0.6b:q4km"),
    Visit("quantize-type", "quantize guide out.gguf q4km"),
    Visit("check-template", "check-template smollm2-135m"),
    Visit("banned", 'run smollm2-135m "Where is the Eiffel Tower?" --ban Paris -n 20 --temp 0'),
    Visit("suffix", 'run guide "def f(x):" --suffix "return y"'),
)


def words(command: str) -> list[str]:
    return [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]


def on_a_terminal(program: Sequence[str], visit: Visit, columns: int, environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """The screen after a visit, and what is wrong with it."""
    terminal = Terminal((*program, *words(visit.command)), environment, columns, LINES)
    alive = _settled(terminal, chat=bool(visit.keys))
    for keys in visit.keys if alive else ():
        if keys.startswith("WAIT"):
            terminal.read(float(keys.split()[1]))
            continue
        control = len(keys) == 1 or keys.endswith(("\r", "\x03"))
        terminal.type(keys if control else keys + "\r")
        if not keys.endswith("\r"):
            alive = _settled(terminal, chat=True)
            if not alive:
                break
    if visit.keys:
        ended = not terminal.read(0.5)
    else:
        ended = not alive
    if not ended:
        terminal.close()
    lines = [line.rstrip() for line in terminal.screen.display]
    while lines and not lines[-1]:
        lines.pop()
    faults = [f"{visit.name} at {columns}: {line[:100]}" for line in lines if "Traceback (most recent" in line]
    cut = [] if visit.long_lines else _cut_words(terminal.said, columns)
    return lines, faults + [f"{visit.name} at {columns}: a word is cut: {word!r}" for word in cut]


def _cut_words(said: bytes, columns: int) -> list[str]:
    """Words that lie across the terminal's edge, but for paths and addresses, which may be longer than a line."""
    found = []
    for line in CONTROL.sub("", said.decode(errors="replace")).split("\n"):
        shown = line.rstrip("\r").rpartition("\r")[2]
        before, after = shown[:columns].rpartition(" ")[2], shown[columns:].partition(" ")[0]
        if len(shown) > columns and before and after and "/" not in before + after:
            found.append(before + after)
    return found


def _settled(terminal: Terminal, *, chat: bool) -> bool:
    """Read until a chat is at its prompt or asks something, or the program has ended; False at its end."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not terminal.read(0.3):
            return False
        line = terminal.screen.display[terminal.screen.cursor.y].rstrip()
        if chat and (terminal.at_prompt() or (line.endswith(("?", " y/N")) and not line.startswith(">"))):
            return terminal.read(0.2)
    return True


def over_pipes(program: Sequence[str], visit: Visit, environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """The output through pipes, stderr after stdout."""
    done = subprocess.run(
        [*program, *words(visit.command)],
        input=visit.stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE,
        check=False,
    )
    lines = [
        f"$ edgellm {visit.command}",
        "--- stdout",
        *done.stdout.splitlines(),
        "--- stderr",
        *done.stderr.splitlines(),
        f"--- code {done.returncode}",
    ]
    return lines, [f"{visit.name} over pipes: {line[:100]!r}" for line in lines if ESCAPES.search(line)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--command", default=str(Path(sys.executable).parent / "edgellm"))
    parser.add_argument("--columns", default="60,80,120,pipes", help="widths, or pipes")
    parser.add_argument("--only", help="visits with this in their name")
    asked = parser.parse_args()
    home = asked.folder.resolve() / "home"
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).resolve().parent.parent / "edgellm" / "data" / "guide.gguf", home / "mine.gguf")
    (home / "long.txt").write_text("the river and the sea\n" * 2000, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    faults = list[str]()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored, which is inherited
    for width in asked.columns.split(","):
        (asked.folder / width).mkdir(exist_ok=True)
        for visit in VISITS:
            if asked.only and asked.only not in visit.name:
                continue
            lines, wrong = (
                over_pipes([asked.command], visit, environment)
                if width == "pipes"
                else on_a_terminal([asked.command], visit, int(width), environment)
            )
            (asked.folder / width / f"{visit.name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
            faults += wrong
    print("\n".join(faults) or "nothing is cut, and there is no traceback", f"{len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
