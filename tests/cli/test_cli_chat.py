"""The chat: its commands, its memory of turns, its input, its choice of a model, over a pipe and on a terminal."""

from __future__ import annotations

import io
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chatting import answer, chat_over_pipe, conversation, say, text_of
from fake_backend import toys
from fake_model import FakeModel, FakeStream
from tiny_models import tiny_model

import edgellm
from edgellm.cli import app, opening
from edgellm.cli.chat.completer import complete
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.chat.lines import read_message
from edgellm.cli.chat.repl import on_ctrl_c
from edgellm.cli.chat.session_commands import pasted
from edgellm.cli.chat.settings import SETTINGS
from edgellm.cli.chat.slash_commands import COMMANDS, Leave, Switch, carry_out
from edgellm.cli.terminal import output
from edgellm.errors import ContextFull, ModelClosed, OptionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and caches of a new user."""
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


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


def test_a_file_comes_with_the_next_message_that_is_answered() -> None:
    """Stopped while the prompt is read, the message is not said, and its file waits for the next one."""
    chat, model = conversation(FakeStream(""), "fine", "more", "again")
    chat.attach("notes.txt", "The Elbe is long.\n")
    assert list(chat.ask("How long?")) == [] and chat.turns == [] and chat.attached == "notes.txt"
    chat.attach("more.txt", "x")
    assert chat.undo() == "notes.txt, more.txt" and chat.attached == ""
    chat.attach("notes.txt", "The Elbe is long.\n")
    assert text_of(chat.ask("How long is it?")) == "fine"
    with_file = {"role": "user", "content": "notes.txt:\n\nThe Elbe is long.\n\nHow long is it?", "pinned": True}
    assert model.calls[1][1] == [with_file]
    assert text_of(chat.ask("And wide?")) == "more" and model.calls[2][1][-1] == say("And wide?")
    chat.undo()
    assert chat.undo() == "How long is it? (with notes.txt)" and chat.turns == []
    assert text_of(chat.ask("x")) == "again" and model.calls[3][1] == [say("x")]


def test_a_file_that_is_too_long_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, model = conversation("short")
    chat.attach("long.txt", "word " * 9999)

    def full(*args: Any, **options: Any) -> Any:
        raise ContextFull("the prompt is too long.")

    with monkeypatch.context() as patch:
        patch.setattr(model, "chat", full)
        with pytest.raises(ContextFull, match=r"too long\. The next message comes without long\.txt\."):
            list(chat.ask("What is in it?"))
        with pytest.raises(ContextFull, match=r"too long\.$"):
            list(chat.ask("And without?"))
    chat.drop_session()
    assert text_of(chat.ask("Hello")) == "short" and model.calls[0][1] == [say("Hello")]


@pytest.mark.parametrize(
    "lines, message",
    [
        (["plain"], "plain"),
        (["one \\", "two"], "one \ntwo"),
        (['"""', "one", "", "two", '"""'], "one\n\ntwo"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        (["open \\"], "open \n"),
        (['"""open', "end"], "open\nend"),
        ([], None),
    ],
)
def test_messages_of_several_lines(lines: list[str], message: str | None) -> None:
    left = iter(lines)
    assert read_message(lambda prompt: next(left, None)) == message
    assert list(left) == []


def test_commands_change_settings(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = conversation("one", "two")
    assert carry_out("/set temp 0.3", chat) is None and chat.settings["temperature"] == 0.3
    assert carry_out("/set n -1", chat) is None and chat.settings["max_tokens"] == "unlimited"
    assert carry_out("/system Be brief.", chat) is None and chat.system == "Be brief."
    assert carry_out('/system ""', chat) is None and chat.system is None
    list(chat.ask("a"))
    assert text_of(carry_out("/regen", chat) or iter(())) == "two"
    capsys.readouterr()
    assert carry_out("/stats", chat) is None
    told = capsys.readouterr().err
    assert "7 prompt tokens" in told and f"seed              {chat.last.seed}" in told
    assert carry_out("/clear", chat) is None and chat.turns == []
    assert carry_out("/help", chat) is None
    out, err = capsys.readouterr()
    assert out == "" and all(f"/{name}" in err for name in COMMANDS)
    with pytest.raises(Leave):
        carry_out("/exit", chat)


@pytest.mark.parametrize(
    "line, said",
    [
        ("/nope", "/nope"),
        ("/set nope 1", "nope"),
        ("/set temp warm", "warm"),
        ("/set seed 0.5", "0.5"),
        ("/regen", "/regen"),
        ("/set temp nan", "/set temp nan: give 0 or more, or default"),
        ("/set temp -3", "give 0 or more"),
        ("/set top-p 7", "/set top-p 7: give a number from 0 to 1, or default"),
        ("/set top-k -3", "give -1 or more"),
        ("/set n -2", "give 0 or more, or -1 for no limit, or default"),
        ("/set seed -2", "give 0 or more, or -1"),
        ("/set min-p inf", "/set min-p inf: give"),
        ("/set repeat-penalty 0", "give more than 0"),
        ("/set think maybe", "give on or off"),
        ("/set think on", "no <think>"),
        ("/", "/help"),
        ("/hlp", "/hlp: no such command; did you mean /help?"),
        ("/zzz", "no such command; /help lists"),
        ("/set temperature nan", "/set temperature nan: give 0 or more"),
        ("/set num_predict -2", "give 0 or more, or -1"),
        ("/set temprature 1", "did you mean temp? The options are temp, top-k"),
        ("/set zzz 1", "no such option; the options are temp"),
    ],
)
def test_commands_that_cannot_be_carried_out(line: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        carry_out(line, conversation()[0])


def test_on_and_off_have_no_default_where_a_model_cannot() -> None:
    with pytest.raises(OptionError, match=r"no <think>$"):
        carry_out("/set think on", conversation()[0])


def test_a_refused_value_changes_nothing() -> None:
    chat, _ = conversation("one", temperature=0.5)
    with pytest.raises(OptionError):
        carry_out("/set temp nan", chat)
    assert chat.settings == {"temperature": 0.5}


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The rows of /set."""
    return {name: value for name, _, value in (line.strip().partition(" ") for line in capsys.readouterr().err.splitlines())}


def test_set_shows_what_holds_and_takes_it_back(capsys: pytest.CaptureFixture[str]) -> None:
    chat, model = conversation("one", min_p=0.2)
    chat.recommended = {"temperature": 0.6, "top_k": 20}
    model.thinking = "optional"
    for line in ("/set temp 1.5", "/set think off", "/set n -1", "/set seed 7"):
        carry_out(line, chat)
    assert chat.settings == {"temperature": 1.5, "top_k": 20, "min_p": 0.2, "think": False, "max_tokens": "unlimited", "seed": 7}
    capsys.readouterr()
    carry_out("/set", chat)
    rows = shown(capsys)
    assert {name: " ".join(rows[name].split()) for name in SETTINGS} == {
        "temp": "1.5 set by you",
        "top-k": "20 recommended for this model",
        "top-p": "0.95",
        "min-p": "0.2 set by you",
        "repeat-penalty": "1",
        "presence-penalty": "0",
        "frequency-penalty": "0",
        "seed": "7 set by you",
        "n": "no limit set by you",
        "think": "off set by you",
        "context-policy": "ring",
        "think-budget": "no limit",
        "draft": "none",
    }
    for line in ("/set temp default", "/set think default", "/set n default", "/set seed -1", "/set min_p default"):
        carry_out(line, chat)
    assert chat.settings == {"temperature": 0.6, "top_k": 20, "seed": None}
    capsys.readouterr()
    carry_out("/set", chat)
    rows = shown(capsys)
    assert rows["temp"].split()[0] == "0.6" and "64 (the context)" in rows["n"] and "a new one" in rows["seed"]
    assert "template" in rows["think"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(output, "columns", lambda stream: columns)
    for line in ("/?", "/set"):
        carry_out(line, conversation()[0])
    lines = capsys.readouterr().err.splitlines()
    assert all(len(line) < columns for line in lines) and len(lines) > 15
    assert all(any(line.startswith(f"  /{name}") for line in lines) for name in COMMANDS)


@pytest.mark.parametrize("line", ["/exit", "/quit", "/bye", "/QUIT now"])
def test_ways_to_leave(line: str) -> None:
    with pytest.raises(Leave):
        carry_out(line, conversation()[0])


@pytest.mark.parametrize(
    "text, begun, words",
    [
        ("/", "/", ["/help", "/exit"]),
        ("/mo", "/mo", ["/model"]),
        ("/q", "/q", ["/quit"]),
        ("/set to", "to", ["top-k", "top-p"]),
        ("/set think o", "o", ["on", "off"]),
        ("/set temp ", "", ["default"]),
        ("/model gui", "gui", ["guide"]),
        ("hello /mo", "", []),
        ("/clear x", "", []),
        ("/model /nowhere/x", "/nowhere/x", []),
        ("/set nope x", "", []),
    ],
)
def test_what_tab_offers(text: str, begun: str, words: list[str]) -> None:
    assert complete(text)[0] == begun
    assert set(words) <= set(complete(text)[1]) and (words or not complete(text)[1])


def test_tab_offers_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    for name in ("a.gguf", "notes.txt", "models/b.gguf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert complete("/model a")[1] == ["a.gguf"] and complete("/model mo")[1] == ["models/"]
    assert complete("/model models/")[1] == ["models/b.gguf"]
    assert complete(f"/model {tmp_path}/a")[1] == [f"{tmp_path}/a.gguf"]


@pytest.mark.parametrize(
    "typed, offered",
    [
        ("my", ["'my dir/", "'my notes.txt'"]),
        ("my n", ["'my notes.txt'"]),
        ("'my n", ["'my notes.txt'"]),
        ('"my n', ["'my notes.txt'"]),
        (r"my\ n", ["'my notes.txt'"]),
        ("'my dir/", ["'my dir/it'\"'\"'s here.txt'"]),
        ("my dir/it's", ["'my dir/it'\"'\"'s here.txt'"]),
        ("'my notes.txt'", ["'my notes.txt'"]),
        ("pl", ["plain.txt"]),
        ("it", ["it's.txt"]),
        ("bad", []),
        ("  pl", ["plain.txt"]),
        ("my no such", []),
        ("\0/", []),
    ],
)
def test_tab_offers_paths_that_the_command_takes(
    typed: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my dir").mkdir()
    for name in ("my notes.txt", "my dir/it's here.txt", "plain.txt", "it's.txt", "bad\x1b[2J.txt", "bad\n.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    begun, words = complete(f"/file {typed}")
    assert list(words) == offered and begun == typed.lstrip()
    for word in words:
        if not word.endswith("/"):
            chat, model = conversation()
            model.tokenizer = SimpleNamespace(encode=str.split)
            carry_out(f"/file {word}", chat)
            assert chat.attached in word.replace("'\"'\"'", "'")


def test_tab_offers_models_in_folders_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my models").mkdir()
    (tmp_path / "my models" / "a b.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("/model my")[1] == ["'my models/"]
    assert complete("/model 'my models/")[1] == ["'my models/a b.gguf'"]
    for typed in ("'my models/a b.gguf'", "my models/a b.gguf"):
        with pytest.raises(Switch) as caught:
            carry_out(f"/model {typed}", conversation()[0])
        assert caught.value.name == "my models/a b.gguf"


def test_a_window_that_cannot_slide_forgets_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = toys().load(tiny_model(tmp_path / "m.gguf", "gpt2", tokenizer="bpe", context=64, n_layers=1))
    monkeypatch.setattr(opening, "open_model", lambda name, options: model)
    lines = ["first question", "second question", "third question", "x y " * 65, "last question"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*lines, "/context"])))
    assert app.run(["chat", "m", "--system", "Be good.", "-n", "8", "--temp", "0"]) == 3
    err = capsys.readouterr().err
    assert err.count("oldest messages are being forgotten") == 1
    assert err.count("error: the message is too long") == 1 and "this model sees 64" in err
    assert "drop-oldest-turns" in err and "- user" in err and "# system" in err and "no longer sees" in err


def test_over_a_pipe_one_line_is_one_turn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, model = chat_over_pipe(monkeypatch, "a\n\n/set temp 0\nb\r\n/exit\nc\n", "one\x1b[2J", "two\n")
    assert code == 0
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n"
    assert err.splitlines()[0] == "m (fake.gguf) · llama · 64-token context · 2 threads · /help lists commands"
    assert [call[1][-1] for call in model.calls] == [say("a"), say("b")]
    assert model.calls[1][2] == {"temperature": 0.0}


def test_over_a_pipe_an_error_ends_the_chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = chat_over_pipe(monkeypatch, "/set nope 1\na\n", "one")
    assert code == 2 and capsys.readouterr().out == ""

    class Broken(FakeModel):
        def chat(self, messages: Any, *, stream: bool, **options: Any) -> FakeStream:
            raise ModelClosed("the model was closed; load it again.")

    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n"))
    monkeypatch.setattr(opening, "open_model", lambda name, options: Broken())
    assert app.run(["chat", "m"]) == 3
    assert "load it again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stream, said",
    [
        (FakeStream("", "eog"), "ended its answer at once"),
        (FakeStream("x", "length"), "/set n"),
        (FakeStream("x", "context"), "forgets the oldest"),
        (FakeStream("x", "eog", evicted=3), "oldest messages"),
    ],
)
def test_what_an_answer_does_not_show_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stream: FakeStream, said: str
) -> None:
    assert chat_over_pipe(monkeypatch, "a\n", stream)[0] == 0
    assert said in capsys.readouterr().err


def test_thinking_does_not_reach_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "<think>\nHm.\n</think>\n\nParis."
    _, model = chat_over_pipe(monkeypatch, "a\nb\n", text, "<think>Hm</think>")
    out, err = capsys.readouterr()
    assert out == "Paris.\n" and "Hm" not in err and "(the model thought, and ended without an answer)" in err
    assert model.calls[1][1] == [say("a"), answer("Paris."), say("b")]
    monkeypatch.setattr(opening, "open_model", lambda name, options: FakeModel(text, text))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert app.run(["run", "m", "q"]) == 0
    assert capsys.readouterr() == ("Paris.\n", "")
    assert app.run(["run", "m", "q", "--think"]) == 2
    assert "error: --think is not possible: this model's chat template has no <think>" in capsys.readouterr().err


def test_ctrl_c_calls_stop_then_breaks_off() -> None:
    before, presses, reached = signal.getsignal(signal.SIGINT), [], False
    with on_ctrl_c(lambda: presses.append(len(presses))):
        signal.raise_signal(signal.SIGINT)
        reached = True
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second press breaks the block off")
    assert reached and presses == [0]
    assert signal.getsignal(signal.SIGINT) is before


def test_pictures_come_with_the_next_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By /file and by a path that begins a line; a saved chat names them, and one that is gone is text."""
    from PIL import Image
    from tiny_projectors import OUT, projector_file

    for name in ("one.png", "my two.png"):
        Image.new("RGB", (64, 64), "red" if name == "one.png" else "blue").save(tmp_path / name)
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe")
    with edgellm.load(model) as blind, pytest.raises(OptionError, match="takes none"):
        carry_out(f"/file {tmp_path}/one.png", Dialogue(blind, {}))
    projector_file(tmp_path / "mmproj.gguf", "idefics3")
    with edgellm.load(model, context=1024) as seeing:
        chat = Dialogue(seeing, {"max_tokens": 3, "temperature": 0, "seed": 1})
        carry_out(f"/file {tmp_path}/one.png", chat)
        assert "one.png, 64 x 64 pixels" in capsys.readouterr().err
        assert pasted(chat, f"'{tmp_path}/my two.png' what differs?") == "what differs?"
        assert pasted(chat, "what's this?") == "what's this?" and pasted(chat, "none.png is gone") == "none.png is gone"
        assert chat.attached == "one.png, my two.png"
        list(chat.ask("what differs?"))
        assert chat.last is not None and chat.last.stats.prompt_tokens > 160 and not chat.attached
        turn = chat.turns[0]
        assert turn["content"] == turn["asked"] == "what differs?" and turn["images"].count("\n") == 1
        carry_out("/context", chat)
        assert "[picture] [picture] what differs?" in capsys.readouterr().err
        list(chat.ask("and now?"))
        assert chat.last.stats.cached_tokens > 160
        (tmp_path / "one.png").unlink()
        assert "one.png, a picture that is gone" in str(chat.messages())
        list(chat.ask("and now?"))
        assert chat.undo() == "and now?" and "my two.png" in chat.undo() + chat.undo()
