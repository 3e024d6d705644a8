"""The chat: its commands, its memory of turns, its input, its choice of a model, over a pipe and on a terminal."""
from __future__ import annotations

import io
import re
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_model import FakeModel, FakeStream

from edgellm.catalogue import paths
from edgellm.cli import app, opening
from edgellm.cli.commands import COMMANDS, Leave, carry_out
from edgellm.cli.conversation import Conversation
from edgellm.cli.interrupt import on_ctrl_c
from edgellm.cli.lines import read_message
from edgellm.cli.state import last_model, private_file, remember_model, state_folder
from edgellm.engine.records import Event
from edgellm.errors import ModelClosed, OptionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and caches of a new user."""
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


def say(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def text_of(events: Iterator[Event]) -> str:
    return "".join(text for kind, text in events if kind == "text")


def conversation(*answers: str | FakeStream, **settings: Any) -> tuple[Conversation, FakeModel]:
    model = FakeModel(*answers)
    return Conversation(model, settings), model            # type: ignore[arg-type]  # stands in for a Model


def test_turns_are_remembered_made_again_and_forgotten() -> None:
    chat, model = conversation("one", "two", "other", "fresh", temperature=0.5)
    assert text_of(chat.ask("a")) == "one"
    assert text_of(chat.ask("b")) == "two"
    assert text_of(chat.again()) == "other"
    assert chat.turns == [say("a"), answer("one"), say("b"), answer("other")]
    assert model.calls[2] == ("chat", [say("a"), answer("one"), say("b")], {"temperature": 0.5})
    chat.clear()
    chat.system = "Be brief."
    assert text_of(chat.ask("c")) == "fresh"
    assert model.calls[3][1] == [{"role": "system", "content": "Be brief."}, say("c")]


def test_a_stopped_answer_keeps_what_was_said() -> None:
    chat, _ = conversation("long answer", "x")
    pieces = chat.ask("a")
    assert [next(pieces).text, next(pieces).text] == ["l", "o"]
    chat.stop()
    assert list(pieces) == []
    assert chat.turns == [say("a"), answer("lo")]
    assert chat.last is not None and chat.last.stop_reason == "cancelled"


def test_an_answer_stopped_before_its_first_word_leaves_the_turns_alone() -> None:
    chat, _ = conversation("one", FakeStream(""), "again")
    list(chat.ask("a"))
    assert list(chat.ask("b")) == []
    assert chat.turns == [say("a"), answer("one")]


@pytest.mark.parametrize("lines, message", [
    (["plain"], "plain"),
    (["one \\", "two"], "one \ntwo"),
    (['"""', "one", "", "two", '"""'], "one\n\ntwo"),
    (['"""one', 'two"""'], "one\ntwo"),
    (['"""one"""'], "one"),
    (["open \\"], "open \n"),
    (['"""open', "end"], "open\nend"),
    ([], None),
])
def test_messages_of_several_lines(lines: list[str], message: str | None) -> None:
    left = iter(lines)
    assert read_message(lambda prompt: next(left, None)) == message
    assert list(left) == []


def test_commands_change_settings(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = conversation("one", "two")
    assert carry_out("/set temp 0.3", chat) is None and chat.settings["temperature"] == 0.3
    assert carry_out("/set n -1", chat) is None and chat.settings["max_tokens"] is None
    assert carry_out("/system Be brief.", chat) is None and chat.system == "Be brief."
    assert carry_out('/system ""', chat) is None and chat.system is None
    list(chat.ask("a"))
    assert text_of(carry_out("/regen", chat) or iter(())) == "two"
    capsys.readouterr()
    assert carry_out("/stats", chat) is None
    assert "7 prompt tokens" in capsys.readouterr().err
    assert carry_out("/clear", chat) is None and chat.turns == []
    assert carry_out("/help", chat) is None
    out, err = capsys.readouterr()
    assert out == "" and all(f"/{name}" in err for name in COMMANDS)
    with pytest.raises(Leave):
        carry_out("/exit", chat)


@pytest.mark.parametrize("line, said", [
    ("/nope", "/nope"), ("/set nope 1", "nope"), ("/set temp warm", "warm"), ("/set seed 0.5", "0.5"), ("/regen", "/regen"),
    ("/", "/help"),
])
def test_commands_that_cannot_be_carried_out(line: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        carry_out(line, conversation()[0])


def chat_over_pipe(
    monkeypatch: pytest.MonkeyPatch, text: str, *answers: str | FakeStream, name: str = "m",
) -> tuple[int, FakeModel]:
    model = FakeModel(*answers)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    monkeypatch.setattr(opening, "open_model", lambda name, options: model)
    return app.run(["chat", name]), model


def test_over_a_pipe_one_line_is_one_turn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, model = chat_over_pipe(monkeypatch, "a\n\n/set temp 0\nb\r\n/exit\nc\n", "one\x1b[2J", "two\n")
    assert code == 0
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n"
    assert err.splitlines()[0] == "m (fake.gguf), llama: context of 64 tokens, 2 threads; /help lists the commands"
    assert [call[1][-1] for call in model.calls] == [say("a"), say("b")]
    assert model.calls[1][2] == {"temperature": 0.0}


def test_over_a_pipe_an_error_ends_the_chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = chat_over_pipe(monkeypatch, "/nope\na\n", "one")
    assert code == 2 and capsys.readouterr().out == ""

    class Broken(FakeModel):
        def chat(self, messages: Any, *, stream: bool, **options: Any) -> FakeStream:
            raise ModelClosed("the model was closed; load it again.")

    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n"))
    monkeypatch.setattr(opening, "open_model", lambda name, options: Broken())
    assert app.run(["chat", "m"]) == 3
    assert "load it again" in capsys.readouterr().err


@pytest.mark.parametrize("stream, said", [
    (FakeStream("", "eog"), "ended its answer at once"),
    (FakeStream("x", "length"), "/set n"),
    (FakeStream("x", "context"), "forgets the oldest"),
    (FakeStream("x", "eog", evicted=3), "oldest messages"),
])
def test_what_an_answer_does_not_show_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: FakeStream, said: str,
) -> None:
    assert chat_over_pipe(monkeypatch, "a\n", stream)[0] == 0
    assert said in capsys.readouterr().err


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
    assert last_model() == str(file)                 # a bundled model does not stand in the way of one that is fetched later
    assert "which comes with edgellm" in capsys.readouterr().err


def test_without_any_model_the_way_to_one_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
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


@pytest.mark.parametrize("platform, variables, folder", [
    ("linux", {"XDG_STATE_HOME": "/x"}, "/x/edgellm"),
    ("linux", {}, "~/.local/state/edgellm"),
    ("darwin", {}, "~/Library/Application Support/edgellm"),
    ("win32", {"LOCALAPPDATA": "/l"}, "/l/edgellm"),
])
def test_state_folder_of_each_system(platform: str, variables: dict[str, str], folder: str) -> None:
    assert state_folder(platform, variables) == Path(folder).expanduser()


def test_ctrl_c_calls_stop_then_breaks_off() -> None:
    before, presses, reached = signal.getsignal(signal.SIGINT), [], False
    with on_ctrl_c(lambda: presses.append(len(presses))):
        signal.raise_signal(signal.SIGINT)
        reached = True
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second press breaks the block off")
    assert reached and presses == [0]
    assert signal.getsignal(signal.SIGINT) is before
