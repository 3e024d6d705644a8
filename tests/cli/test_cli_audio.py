"""Clips on the command line: `edgellm transcribe`, `run --audio`, and what a model without an audio encoder says."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import soundfile
from tiny_hearing import clip, hearing_file
from tiny_models import tiny_model
from tiny_projectors import OUT

import edgellm
from edgellm.cli import app


@pytest.fixture
def model(tmp_path: Path) -> Path:
    hearing_file(tmp_path / "mmproj.gguf", "qwen2a")
    return tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe")


@pytest.fixture
def wav(tmp_path: Path) -> str:
    soundfile.write(tmp_path / "clip.wav", clip(0.8), 16000)
    return str(tmp_path / "clip.wav")


def test_transcribe(model: Path, wav: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the library does it; --json has the figures."""
    with edgellm.load(model) as opened:
        wanted = opened.transcribe(wav)
        assert wanted.stats.prompt_tokens > 20
    assert app.run(["transcribe", str(model), wav, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == wanted.text and found["token_ids"] == list(wanted.token_ids)
    assert found["stats"]["prompt_tokens"] == wanted.stats.prompt_tokens
    assert app.run(["transcribe", str(model), wav, "--prompt", "What is said?"]) == 0
    assert app.run(["transcribe", str(model), wav, "--mmproj", "none"]) == 2
    assert "takes no audio" in capsys.readouterr().err
    assert app.run(["transcribe", str(model), str(model)]) == 3
    assert "can't be read as audio" in capsys.readouterr().err


def test_a_raw_form_is_asked_without_a_template(tmp_path: Path, wav: str) -> None:
    """Voxtral's, whose rows are those of whole windows."""
    hearing_file(tmp_path / "mmproj.gguf", "voxtral")
    path = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe")
    with edgellm.load(path) as opened:
        answer = opened.transcribe(wav, max_tokens=3)
        texts = ("[INST][BEGIN_AUDIO]", "[/INST][TRANSCRIBE]")
        around = [opened.tokenize(text, add_special=False, parse_special=True) for text in texts]
        assert answer.stats.prompt_tokens - sum(map(len, around)) in (25, 26) and len(answer.token_ids) <= 3


def test_run_hears(model: Path, wav: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert app.run(["run", str(model), "What?", "--audio", wav, "--raw", "-n", "4", "--temp", "0"]) == 0
    heard = capsys.readouterr().out
    with edgellm.load(model) as opened:
        assert heard.rstrip("\n") == opened.generate([edgellm.Audio(wav), "What?"], max_tokens=4, temperature=0).text.rstrip("\n")
    assert app.run(["run", str(model), "def", "--audio", wav, "--suffix", "x"]) == 2
    assert "--audio and --suffix" in capsys.readouterr().err
