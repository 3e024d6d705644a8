"""A model's file that is cut, written to, or replaced while it is in use; and what imports leave behind that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.catalogue.importing import sweep
from edgellm.errors import FormatError

SIGBUS = pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="this system refuses to cut a file that is mapped")
TOUCH = """
import mmap, sys
from pathlib import Path
from edgellm.cli.bus_error import say_why
path = Path(sys.argv[1])
with path.open("r+b") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if sys.argv[2] == "cli":
        say_why(path)
    file.truncate(0)
    print(data[8192])
"""


@SIGBUS
@pytest.mark.parametrize("who", ["cli", "library"])
def test_the_programs_last_word_names_the_file(who: str, tmp_path: Path) -> None:
    path = tmp_path / "some\x1b[2Jmodel.gguf"
    path.write_bytes(bytes(1 << 16))
    done = subprocess.run([sys.executable, "-c", TOUCH, path, who], capture_output=True, text=True, check=False, timeout=600)
    if who == "cli":
        assert done.returncode == 3 and "some?[2Jmodel.gguf was cut short" in done.stderr and "\x1b" not in done.stderr
    else:
        assert done.returncode == -signal.SIGBUS  # the library installs no handler of its own


@SIGBUS
@pytest.mark.parametrize("tries", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_file_that_is_cut_between_two_tokens_is_a_typed_error(tries: int, tmp_path: Path) -> None:
    """In a process of its own, for a signal would end this one."""
    child = """
import os, sys
import edgellm
path = sys.argv[1]
with edgellm.load(path, threads=1) as model:
    stream = model.stream([1, 2, 3], max_tokens=40, ignore_eos=True)
    for k, piece in enumerate(stream):
        if k == int(sys.argv[2]):
            os.truncate(path, 4096)
"""
    for k in range(tries):
        path = tiny_model(tmp_path / f"m{k}.gguf")
        command = [sys.executable, "-c", child, path, str(k % 12)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 1 and "was changed on disk while the model was in use" in done.stderr, done.stderr[-500:]


def test_a_file_that_is_replaced_keeps_its_old_weights(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    with edgellm.load(path, threads=1) as model:
        before = model.generate([1, 2, 3], max_tokens=5, temperature=0, ignore_eos=True).token_ids
        for _ in range(50):
            other = tiny_model(tmp_path / "other.gguf", seed=5)
            os.replace(other, path)
            assert model.generate([1, 2, 3], max_tokens=5, temperature=0, ignore_eos=True).token_ids == before


def test_a_file_that_is_written_to_stops_a_running_answer(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    with edgellm.load(path, threads=1) as model:
        stream = model.stream([1, 2, 3], max_tokens=50, ignore_eos=True)
        next(stream)
        os.utime(path, ns=(1, 1))
        with pytest.raises(FormatError, match="changed on disk"):
            list(stream)


def test_what_killed_imports_leave_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_DATA", str(tmp_path))
    sweep()  # no folder yet
    folder = tmp_path / "models"
    folder.mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        f".old.gguf.{dead.pid}": 60,
        f".fresh.gguf.{dead.pid}": 0,
        f".alive.gguf.{os.getpid()}": 60,
        "real.gguf": 60,
        ".x.gguf": 60,
    }
    for name, age in names.items():
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (time.time() - age,) * 2)
    sweep()
    assert {path.name for path in folder.iterdir()} == names.keys() - {f".old.gguf.{dead.pid}"}


def test_error_texts_steer_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b]0;title\x07\u202e\u200eb.gguf"
    path.write_bytes(b"GGUF")
    for name in (path, tmp_path / "none\x1b[2J.gguf"):
        with pytest.raises(edgellm.EdgeError) as caught:
            edgellm.load(name)
        assert str(caught.value).isprintable() and "\\x1b" in str(caught.value)


def test_debug_and_path_steer_no_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[2J"
    folder.mkdir()
    path = tiny_model(folder / "m.gguf", n_layers=1)
    command = [sys.executable, "-c", "from edgellm.cli import main; main()"]
    broken = folder / "broken.gguf"
    broken.write_bytes(b"GGUF")
    shown = subprocess.run([*command, "--debug", "show", broken], capture_output=True, text=True, check=False, timeout=600)
    assert shown.returncode == 3 and "Traceback" in shown.stderr and "\x1b" not in shown.stderr
    piped = subprocess.run([*command, "path", path], capture_output=True, text=True, check=True, timeout=600)
    assert piped.stdout == f"{path}\n"  # a program gets the path as it is


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_what_edgellm_keeps_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.catalogue import ledger
    from edgellm.cli.chat.session_store import SavedChat, SessionStore
    from edgellm.cli.state import private_file

    monkeypatch.setenv("EDGELLM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "edgellm").mkdir()
    (tmp_path / "edgellm" / "history").write_text("")
    (tmp_path / "edgellm" / "history").chmod(0o644)
    ledger.note(tmp_path / "m.gguf")
    history = private_file("history")
    assert history is not None
    for path in (tmp_path / "data" / ledger.FILE, history):
        assert path.stat().st_mode & 0o777 == 0o600
    store = SessionStore()
    store.write("rivers", SavedChat("m.gguf"))
    assert store.text_path("rivers").is_relative_to(tmp_path) and store.folder.stat().st_mode & 0o777 == 0o700
