"""`edgellm embed`: lines in, vectors out, and what the other commands say of an embedding model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.cli import app
from edgellm.cli.commands.perplexity import read_text
from edgellm.cli.terminal.piped import decoded

LINES = ["Once upon a time", "there was", "a model."]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "m.gguf", "bert", tokenizer="spm")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_a_line_of_json_for_each_line(model: Path, lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["embed", str(model), str(lines)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["index"] for each in found] == [0, 1, 2]
    with edgellm.load(model) as opened:
        assert np.array_equal(np.array([each["embedding"] for each in found], np.float32), opened.embed(LINES))


def test_an_array(model: Path, lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "vectors.npy"
    assert app.run(["embed", str(model), str(lines), "-o", str(target), "--no-normalize"]) == 0
    streams = capsys.readouterr()
    assert not streams.out and "3 vectors of 64 values" in streams.err
    with edgellm.load(model) as opened:
        assert np.array_equal(np.load(target), opened.embed(LINES, normalize=False))


def test_an_array_that_is_there_is_replaced_on_request(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refusals come before the work; what is there stays until the new file is whole."""
    target = tmp_path / "vectors.npy"
    target.write_bytes(b"old")
    with monkeypatch.context() as patched:
        patched.setattr("edgellm.cli.opening.open_model", lambda *_, **__: pytest.fail("loaded"))
        assert app.run(["embed", str(model), str(lines), "-o", str(target)]) == 2
        assert "exists; give another name, or --force" in capsys.readouterr().err and target.read_bytes() == b"old"
        assert app.run(["embed", str(model), str(lines), "-o", str(tmp_path / "none" / "v.npy")]) != 0
        assert "cannot be written" in capsys.readouterr().err
        (own := tmp_path / "lines.npy").write_bytes(lines.read_bytes())
        assert app.run(["embed", str(model), str(own), "-o", str(own), "--force"]) == 2
        assert "the source itself" in capsys.readouterr().err and own.read_bytes() == lines.read_bytes()
    assert app.run(["embed", str(model), str(lines), "-o", str(target), "--force"]) == 0
    assert np.load(target).shape == (3, 64)


def test_a_file_is_read_as_a_pipe_is(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbfone\rmore\r\ntwo\n")
    assert read_text(tmp_path / "t.txt") == decoded((tmp_path / "t.txt").read_bytes(), "") == "one\rmore\r\ntwo\n"


def test_lines_from_a_pipe(model: Path) -> None:
    program = [sys.executable, "-c", "import sys; from edgellm.cli import main; sys.exit(main())", "embed", str(model)]
    run = subprocess.run(program, input="one\r\ntwo\n", capture_output=True, text=True)
    assert run.returncode == 0 and len(run.stdout.splitlines()) == 2, run.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("one\n\ntwo\n", [], "line 2 is empty"),
        ("one\n", ["-o", "x.txt"], "x.txt has no name that ends in .npy"),
        ("word " * 200, [], "line 1 has"),
    ],
)
def test_what_is_refused(
    model: Path, tmp_path: Path, text: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    assert app.run(["embed", str(model), str(tmp_path / "t.txt"), *arguments]) in (2, 3)
    streams = capsys.readouterr()
    assert message in streams.err and not streams.out


def test_commands_that_write_send_embedding_models_away_and_embed_sends_the_others(
    model: Path, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    for command in (["run", str(model), "hello"], ["chat", str(model)], ["bench", str(model)]):
        assert app.run(command) == 2
        assert "is an embedding model and writes no text: edgellm embed" in capsys.readouterr().err
    writer = tiny_model(tmp_path / "w.gguf", "llama", tokenizer="spm")
    assert app.run(["embed", str(writer), str(lines)]) == 2
    assert "names no pooling; take an embedding model" in capsys.readouterr().err
