"""Prompts of `edgellm run` that come from a pipe or a file, and messages of `edgellm chat` that come over a pipe."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from fake_commands import pipe_in, use

from edgellm.cli import app
from edgellm.cli.terminal import piped


@pytest.mark.parametrize(
    "arguments, data, prompt",
    [
        (["run", "m"], b"from a pipe\r\n", "from a pipe"),
        (["run", "m", "-"], b"from a pipe\n", "from a pipe"),
        (["run", "m", "Summarise:"], b"line 1\nline 2\n", "Summarise:\n\nline 1\nline 2"),
        (["run", "m", "Summarise:"], b"", "Summarise:"),
        (["run", "m", "--raw"], b"kept as it is\n", "kept as it is\n"),
        (["run", "m"], "häßlich \xff".encode() + b"\xff", "häßlich \xff\ufffd"),
    ],
)
def test_run_reads_stdin(monkeypatch: pytest.MonkeyPatch, arguments: list[str], data: bytes, prompt: str) -> None:
    loader = use(monkeypatch, "x", template=False)
    pipe_in(monkeypatch, data)
    assert app.run(arguments) == 0
    assert loader.model.calls[0][1] == prompt


@pytest.mark.parametrize("piped_in", [True, False])
@pytest.mark.parametrize(
    ("data", "prompt", "note"),
    [
        ("häß".encode("utf-8-sig"), "häß", ""),
        ("häß".encode("utf-16"), "häß", ""),
        (b"h\xe4\xdf", "h\ufffd\ufffd", "is not UTF-8 at byte 1: what cannot be read became \ufffd"),
        (b"\xff\xfeab\x00\xd8", "\u6261\ufffd", "is not UTF-16 at byte 4"),
    ],
)
def test_prompts_of_other_encodings_are_read_or_a_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    prompt: str,
    note: str,
    piped_in: bool,
) -> None:
    loader, path = use(monkeypatch, "x", template=False), tmp_path / "prompt.txt"
    path.write_bytes(data)
    pipe_in(monkeypatch, data if piped_in else b"")
    assert app.run(["run", "m", *([] if piped_in else ["--file", str(path)])]) == 0
    assert loader.model.calls[0][1] == prompt
    said = capsys.readouterr().err
    assert note in said and ("note:" in said) == bool(note)
    assert not note or ("standard input" if piped_in else str(path)) in said


@pytest.mark.parametrize(
    ("data", "messages", "notes"),
    [
        ("häß\nb\r\n".encode("utf-8-sig"), ["häß", "b"], 0),
        ("häß\r\nb c\n".encode("utf-16"), ["häß", "b c"], 0),
        (b"h\xe4\xdf\nb\n\xff", ["h\ufffd\ufffd", "b", "\ufffd"], 1),
        (b"\xff\xfea\x00\x00\xd8", ["a\ufffd"], 1),
        (b"/etc/passwd is what?\n/\n//x\n/set temp 0\n", ["/etc/passwd is what?", "/", "//x"], 0),
        (b"/system Be\\\nbrief.\nx", ["x"], 0),
    ],
)
def test_a_piped_chat_takes_what_is_no_command_as_a_message_in_any_encoding(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    messages: list[str],
    notes: int,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    loader = use(monkeypatch, *("x" for _ in messages))
    pipe_in(monkeypatch, data)
    assert app.run(["chat", "m"]) == 0
    assert [call[1][-1]["content"] for call in loader.model.calls] == messages
    assert len(re.findall("note: (?:a line of )?standard input is not UTF-", capsys.readouterr().err)) == notes


def test_run_does_not_wait_for_ever_for_a_silent_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(piped, "FIRST_BYTE", 0.05)
    loader = use(monkeypatch, "x", template=False)
    writer = pipe_in(monkeypatch, b"", close=False)
    assert app.run(["run", "m", "prompt"]) == 0
    os.close(writer)
    assert loader.model.calls[0][1] == "prompt"
    assert "nothing came on standard input" in capsys.readouterr().err
