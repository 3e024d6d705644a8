"""`edgellm show` and `edgellm tokenize`."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_commands import pipe_in
from tiny_models import tiny_model

from edgellm.cli import app
from edgellm.formats.writer import GGUFWriter


@pytest.fixture(autouse=True)
def no_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands see a terminal that nobody types on, unless a test says otherwise."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_model(tmp_path / "tiny.gguf", "qwen3", "Q8_0", tokenizer="bpe", template="{{ messages }}"))
    assert app.run(["show", model]) == 0
    page = capsys.readouterr().out
    assert re.search("^architecture +qwen3$", page, re.MULTILINE) and re.search("^runs here +yes$", page, re.MULTILINE)
    assert app.run(["show", model, "--json", "--tensors"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["architecture"] == facts["metadata"]["general.architecture"] == "qwen3"
    assert facts["runs"] is True and facts["chat_template"] is True
    shapes = {tensor["name"]: tensor["shape"] for tensor in facts["tensors"]}
    assert facts["tokens"] == shapes["token_embd.weight"][0] == facts["metadata"]["tokenizer.ggml.tokens"]["length"]
    assert facts["parameters"] == sum(a * (b[0] if b else 1) for a, *b in shapes.values())
    assert app.run(["show", model, "--tensors"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == facts["n_tensors"] == len(shapes)
    assert app.run(["show", model, "--graph"]) == 0
    assert "attend(" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        {"llama.context_length": [1, 2]},
        {"tokenizer.ggml.tokens": 7},
        {"llama.block_count": [1]},
        {"general.name": ["a"]},
        {"tokenizer.ggml.tokens": "x"},
        {"general.license": [True]},
        {"tokenizer.chat_template": [1]},
    ],
)
def test_show_has_nothing_to_say_of_metadata_of_other_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any]
) -> None:
    keys = {"general.architecture": "llama", **wrong}
    with GGUFWriter(tmp_path / "m.gguf", keys, []):
        pass
    for more in ([], ["--json"]):
        assert app.run(["show", str(tmp_path / "m.gguf"), *more]) == 0
    out, err = capsys.readouterr()
    assert "runs here      no: " in out and not err


def test_show_says_why_a_model_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(tmp_path / "tiny.gguf", metadata={"general.architecture": "zamba"})
    assert app.run(["show", str(model)]) == 0
    assert re.search("^runs here +no: .*zamba", capsys.readouterr().out, re.MULTILINE)
    assert app.run(["show", str(model), "--graph"]) == 3
    assert "zamba" in capsys.readouterr().err


def test_names_from_a_file_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(tmp_path / "tiny.gguf", metadata={"general.name": "a\x1b]0;title\x07b\x9b2J\u202ec"})
    for arguments in ([], ["--json"], ["--tensors"]):
        assert app.run(["show", str(model), *arguments]) == 0
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["spm", "bpe"])
def test_tokenize(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    model = str(tiny_model(tmp_path / "tiny.gguf", tokenizer=kind))
    assert app.run(["tokenize", model, "hello wörld", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    pieces = [bytes(p) if isinstance(p, list) else p.encode() for p in answer["pieces"]]
    assert b"".join(pieces).decode().removeprefix("<s>").strip() == "hello wörld"
    pipe_in(monkeypatch, "hello wörld".encode())
    assert app.run(["tokenize", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [int(line.split()[0]) for line in lines] == answer["ids"]
    assert app.run(["tokenize", model, "</s>x", "--no-bos"]) == 0
    plain = len(capsys.readouterr().out.splitlines())
    assert app.run(["tokenize", model, "</s>x", "--no-bos", "--special"]) == 0
    assert (len(capsys.readouterr().out.splitlines()) < plain) == (kind == "spm")
