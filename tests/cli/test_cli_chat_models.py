"""The model of a chat: the guide, the last one, another one; and the folder that remembers it."""

from __future__ import annotations

import dataclasses
import io
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from chatting import answer, chat_over_pipe, say, text_of
from fake_model import FakeModel

import edgellm
from edgellm.catalogue import paths, resolve
from edgellm.cli import app, opening
from edgellm.cli.chat.switching import ModelSlot
from edgellm.cli.state import last_model, private_file, remember_model, state_folder
from edgellm.errors import ModelNotFound, NotEnoughMemory


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and caches of a new user."""
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


def test_another_model_continues_with_the_conversation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = FakeModel("one"), FakeModel("two", "three")
    first.thinking = "optional"
    monkeypatch.setattr(opening, "open_model", lambda name, options: {"m": first, "guide": second}[name])
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n/model guide\nb\n/model\n"))
    assert app.run(["chat", "m", "--think", "--temp", "0"]) == 0
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n" and first.closed and second.closed
    assert first.calls[0][2] == {"temperature": 0.0, "think": True}
    assert second.calls[0][1] == [say("a"), answer("one"), say("b")] and second.calls[0][2] == {"temperature": 0.0}
    assert "guide (fake.gguf)" in err and "fake.gguf; /model NAME" in err


def test_a_model_that_cannot_be_opened_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [FakeModel(), FakeModel("again")]

    def open_model(name: str, options: dict[str, Any]) -> FakeModel:
        if name == "guide":
            raise NotEnoughMemory("too big")
        return models.pop(0)

    monkeypatch.setattr(opening, "open_model", open_model)
    slot = ModelSlot("m", {})
    chat = slot.begin({}, None, "")
    with pytest.raises(NotEnoughMemory):
        slot.switch(chat, "guide")
    assert text_of(chat.ask("a")) == "again" and not models
    with pytest.raises(ModelNotFound):
        slot.switch(chat, "no-such-model")
    assert not slot.model.closed, "it was not even closed"


def test_the_guide_says_what_has_no_effect_and_refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("fine")
    model.info = dataclasses.replace(model.info, path=resolve("guide"))
    model.tokenizer = edgellm.load_tokenizer("guide")
    monkeypatch.setattr(opening, "open_model", lambda name, options: model)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Wie geht es dir?\n/stats\n/system Be brief.\nhow are you?\n"))
    assert app.run(["chat", "guide", "--system", "Be brief."]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("I only speak English.") and out.endswith("\nfine\n") and err.count("no effect on the guide") == 2
    assert "nothing was answered yet" in err and last_model() is None
    assert [message["role"] for message in model.calls[0][1]] == ["system", "user", "assistant", "user"]


def test_the_way_back_to_the_guide_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "here.gguf"
    file.touch()
    assert chat_over_pipe(monkeypatch, "", name=str(file))[0] == 0
    assert "/model guide" not in capsys.readouterr().err
    monkeypatch.setattr(opening, "open_model", lambda name, options: FakeModel())
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert app.run(["chat"]) == 0
    err = capsys.readouterr().err
    assert "used last" in err and "/model guide leads back to the guide" in err


def test_the_last_model_is_remembered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "here.gguf"
    file.touch()
    monkeypatch.chdir(tmp_path)
    assert chat_over_pipe(monkeypatch, "", name="here.gguf")[0] == 0
    assert last_model() == str(file)
    opened = []
    monkeypatch.setattr(opening, "open_model", lambda name, options: opened.append(name) or FakeModel())
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert app.run(["chat"]) == 0
    assert opened == [str(file)]
    file.unlink()
    assert app.run(["chat"]) == 0
    assert opened == [str(file), "guide"]
    assert last_model() == str(file)  # a bundled model does not stand in the way of one that is fetched later
    assert "guide (built in)" in capsys.readouterr().err


def test_without_any_model_the_way_to_one_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "OWN", tmp_path)
    assert app.run(["chat"]) == 3
    err = capsys.readouterr().err
    assert "edgellm pull smollm2-135m" in err and err.count("\n") == 1
    assert app.run(["chat", "guide"]) == 3
    assert "install edgellm again" in capsys.readouterr().err


def test_an_installed_model_is_taken(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    snapshot = home / "models--Qwen--Qwen3-0.6B-GGUF" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "Qwen3-0.6B-Q8_0.gguf").touch()
    opened = []
    monkeypatch.setattr(opening, "open_model", lambda name, options: opened.append(name) or FakeModel())
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert app.run(["chat"]) == 0
    assert opened == ["qwen3-0.6b"]


def test_state_is_private(home: Path) -> None:
    remember_model("m")
    history = private_file("history")
    assert history is not None and history.parent == state_folder()
    assert stat.S_IMODE(history.stat().st_mode) == stat.S_IMODE((state_folder() / "last-model").stat().st_mode) == 0o600
    assert stat.S_IMODE(state_folder().stat().st_mode) == 0o700


def test_an_unwritable_home_costs_only_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nothing")
    remember_model("m")
    assert private_file("history") is None and last_model() is None


@pytest.mark.parametrize(
    "platform, variables, folder",
    [
        ("linux", {"XDG_STATE_HOME": "/x"}, "/x/edgellm"),
        ("linux", {}, "~/.local/state/edgellm"),
        ("darwin", {}, "~/Library/Application Support/edgellm"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/edgellm"),
    ],
)
def test_state_folder_of_each_system(platform: str, variables: dict[str, str], folder: str) -> None:
    assert state_folder(platform, variables) == Path(folder).expanduser()
