"""The options and history of a chat that switches to another model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_backend import toys
from fake_commands import Loader, pipe_in, use
from fake_model import FakeModel
from tiny_models import tiny_model

import edgellm
from edgellm.backends import BACKENDS
from edgellm.cli import app, opening
from edgellm.cli.chat import switching
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.chat.slash_commands import carry_out
from edgellm.cli.chat.switching import ModelSlot
from edgellm.cli.state import last_model
from edgellm.errors import BadMagic, NotEnoughMemory, OptionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_draft_of_another_vocabulary_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {
        name: tiny_model(tmp_path / f"{name}.gguf", "llama", "F16", tokenizer=kind, n_layers=1)
        for name, kind in (("spm", "spm"), ("small", "spm"), ("bpe", "bpe"))
    }
    for backend in ("cpu", "toy"):  # a draft takes the backend of its model
        monkeypatch.setitem(BACKENDS, backend, toys())
    draft = str(paths["small"])
    with ModelSlot(str(paths["spm"]), {"backend": "cpu"}) as slot:
        chat = slot.begin({"draft": draft, "max_tokens": 4}, None, "")
        assert list(chat.ask("a"))
        capsys.readouterr()
        slot.switch(chat, str(paths["bpe"]))
        told = capsys.readouterr().err
        assert re.search(r"drafting is off: --draft \S*small.gguf has another vocabulary than bpe.gguf", told)
        assert "draft" not in chat.chosen and list(chat.ask("b"))
        with pytest.raises(OptionError, match=r"/set draft \S+ has another vocabulary than bpe.gguf; take .*, or default$"):
            carry_out(f"/set draft {draft}", chat)
        carry_out("/set draft ngram", chat)
        slot.switch(chat, str(paths["spm"]))
        assert chat.chosen["draft"] == "ngram" and "without a draft" not in capsys.readouterr().err


def test_a_model_that_cannot_be_opened_leaves_the_guide_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="spm", n_layers=1), tmp_path / "bad.gguf"
    bad.write_bytes(b"no model")
    monkeypatch.setitem(BACKENDS, "cpu", toys())
    monkeypatch.setattr(switching, "is_guide", lambda model: True)
    with ModelSlot(str(good), {"backend": "cpu"}) as slot:
        chat, first = slot.begin({"max_tokens": 4}, None, ""), slot.model
        with pytest.raises(BadMagic):
            slot.switch(chat, str(bad))
        assert slot.model is first and not first.closed
        whole, reopened = opening.open_model, iter([NotEnoughMemory("it is too big"), None])

        def opens(name: str, options: dict[str, Any]) -> edgellm.Model:
            if (error := next(reopened)) is not None:
                raise error
            return whole(name, options)

        monkeypatch.setattr(opening, "open_model", opens)
        with pytest.raises(NotEnoughMemory):
            slot.switch(chat, str(good))
        assert first.closed and list(chat.ask("Explain zebras"))


def test_set_draft(capsys: pytest.CaptureFixture[str]) -> None:
    chat = Dialogue(FakeModel("one"), {"draft": "small"})  # type: ignore[arg-type]  # stands in for a Model
    carry_out("/set draft", chat)
    carry_out("/set draft default", chat)
    assert chat.settings == {} and re.findall(r"draft +(\w.*)", capsys.readouterr().err) == ["small  set by you", "none"]
    carry_out("/set draft ngram", chat)
    assert chat.settings == {"draft": "ngram"}


def test_a_wrong_draft_is_reported_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    loader = use(monkeypatch)
    pipe_in(monkeypatch, b"hello\n")
    assert app.run(["chat", "m", "--draft", "stranger"]) == 2 and not loader.model.calls
    assert "error: --draft stranger has another vocabulary" in capsys.readouterr().err


def test_a_folder_is_remembered_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "open_model", Loader(FakeModel()))
    for name in ("mlx", "./mlx/"):
        with ModelSlot(name, {}) as slot:
            slot.begin({}, None, "")
        assert last_model() == str(tmp_path / "mlx")
