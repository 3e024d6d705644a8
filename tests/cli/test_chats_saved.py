"""Chats that are saved by themselves: they come back, also where a state is damaged or two terminals are at it."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fake_backend import toys
from tiny_models import tiny_model

import edgellm
from edgellm.cli import app, opening
from edgellm.cli.chat import completer, session_store
from edgellm.cli.chat.context_view import used_tokens
from edgellm.cli.chat.conversation import Dialogue, Keeper
from edgellm.cli.chat.resuming import keeper, saved
from edgellm.cli.chat.session_store import SavedChat, SessionStore, budget, name_of
from edgellm.cli.chat.slash_commands import carry_out
from edgellm.errors import OptionError, SessionError

OPTIONS: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.delenv(session_store.SESSIONS, raising=False)
    return tmp_path / "home"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("chats") / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=4096)


@pytest.fixture(scope="module")
def model(path: Path) -> edgellm.Model:
    return toys().load(path, parallel=2)


def begin(model: edgellm.Model, store: SessionStore | None = None) -> Dialogue:
    chat = Dialogue(model, dict(OPTIONS))
    chat.called = str(model.path)
    chat.keeper = Keeper(store or SessionStore(), 1 << 30)
    return chat


def ask(chat: Dialogue, text: str) -> str:
    return "".join(event.text for event in chat.ask(text) if event.kind == "text")


def test_a_chat_comes_back_and_nothing_is_computed_again(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with toys().load(path) as model:
        chat = begin(model)
        ask(chat, "Name three rivers!")
        ask(chat, "And lakes?")
        assert chat.keeper is not None
        name = chat.keeper.name
        chat.keeper.close(chat)
        chat.keeper = None
        wanted, said = chat.turns, ask(chat, "more")
        assert chat.last is not None
        cached = chat.last.stats.cached_tokens
    assert name == "name-three-rivers" and f"saved as {name}" in capsys.readouterr().err
    before = saved(True, None)
    assert before is not None and before.name == name and before.load["context"] == 4096
    load = {option: value for option, value in before.load.items() if option != "backend"}
    with toys().load(path, **load) as model:
        chat = Dialogue(model, dict(OPTIONS))
        with keeper(chat, before, most=1 << 30):
            assert chat.turns == wanted and "messages" in capsys.readouterr().err
            carry_out("/context", chat)
            assert chat.session is not None and f"\n{chat.session.n_tokens} of 4,096" in capsys.readouterr().err
            assert used_tokens(chat) == chat.session.n_tokens > 40
            assert ask(chat, "more") == said and chat.last is not None
            assert chat.last.stats.cached_tokens == cached > 40
    assert SessionStore().names() == [name] and len(SessionStore().read(name).turns) == 6


def test_an_exchange_that_was_taken_back_is_no_longer_counted(model: edgellm.Model) -> None:
    chat = begin(model)
    ask(chat, "Hello")
    ask(chat, "Tell me a good deal more about the rivers and lakes of Scotland, please. " * 3)
    twice = used_tokens(chat)
    chat.undo()
    assert len(model.tokenizer.encode("Hello")) < used_tokens(chat) == len(model.chat_prompt(chat.messages())) < twice - 20
    chat.undo()
    assert used_tokens(chat) == 0


def test_a_damaged_state_costs_time_and_not_the_text(model: edgellm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    chat, store, chance = begin(model), SessionStore(), random.Random(3)
    ask(chat, "Hello")
    assert chat.keeper is not None
    name = chat.keeper.name
    chat.keeper.close(chat)
    state, whole = store.state_path(name), store.state_path(name).read_bytes()
    record = store.read(name)
    for n in range(1000):
        damaged = bytearray(whole)
        if n % 3 == 0:
            del damaged[chance.randrange(len(whole)) :]
        elif n % 3 == 1:
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        else:
            at = chance.randrange(len(whole) - 8)
            damaged[at : at + 8] = chance.randbytes(8)
        state.write_bytes(damaged)
        with pytest.raises(SessionError):
            model.resume(state)
        if n % 100 == 0:
            kept = Keeper(store, 1 << 30)
            other = Dialogue(model, dict(OPTIONS))
            kept.take(other, name, store.read(name))
            assert other.turns == chat.turns and "so the text is processed again" in capsys.readouterr().err
            kept.leave()
    assert store.read(name) == record


def test_a_damaged_text_is_reported(model: edgellm.Model) -> None:
    store, chance = SessionStore(), random.Random(4)
    store.write("a", SavedChat("m", ({"role": "user", "content": "x"},)))
    whole = store.text_path("a").read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        store.text_path("a").write_bytes(damaged)
        try:
            assert store.read("a") == json_equal(whole)  # white space and the like
        except SessionError as error:
            assert "sessions rm a" in str(error)
    for wrong in (b"[]", b"{}", b'{"version": 1}', b""):
        store.text_path("a").write_bytes(wrong)
        with pytest.raises(SessionError, match="sessions rm a"):
            store.read("a")


def json_equal(data: bytes) -> SavedChat:
    found = json.loads(data)
    return SavedChat(found["model"], tuple(found["turns"]), found["system"], found["load"], found["created"], found["updated"])


@pytest.mark.parametrize("moment", ["x", float("nan"), 1e300, -1e18, None])
def test_texts_with_impossible_moments_are_damaged(moment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore()
    monkeypatch.setattr("edgellm.cli.chat.session_store.time.time", lambda: moment)
    store.write("odd", SavedChat("m"))
    with pytest.raises(SessionError, match="is damaged; delete it"):
        store.read("odd")
    store.text_path("deep").write_text("[" * 200_000)
    with pytest.raises(SessionError, match="cannot be read"):
        store.read("deep")


def test_two_terminals_keep_to_themselves(model: edgellm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    first, store = begin(model), SessionStore()
    ask(first, "Hello")
    assert first.keeper is not None
    second = begin(model)
    assert second.keeper is not None
    second.keeper.take(second, first.keeper.name, store.read(first.keeper.name))
    assert second.keeper.name == "hello-2" and "open in another terminal" in capsys.readouterr().err
    ask(first, "one")
    ask(second, "two")
    assert [turn["content"] for turn in store.read("hello").turns[::2]] == ["Hello", "one"]
    assert [turn["content"] for turn in store.read("hello-2").turns[::2]] == ["Hello", "two"]
    with pytest.raises(SessionError, match="open in another terminal"):
        store.remove("hello")
    third = begin(model)
    ask(third, "Hello")
    assert third.keeper is not None and third.keeper.name == "hello-3"


def test_commands_of_saved_chats(
    model: edgellm.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, store = begin(model), SessionStore()
    for line in ("/save", "/fork", "/undo", "/copy", "/file nowhere.txt", "/load nothing"):
        with pytest.raises((OptionError, SessionError)):
            carry_out(line, chat)
    ask(chat, "one")
    ask(chat, "two")
    carry_out("/save rivers", chat)
    assert store.names()[0] == "rivers" and complete_load("r") == ["rivers"]
    carry_out("/fork lakes", chat)
    carry_out("/undo", chat)
    ask(chat, "three")
    assert [turn["content"] for turn in store.read("lakes").turns[::2]] == ["one", "three"]
    carry_out("/load rivers", chat)
    assert [turn["content"] for turn in chat.turns[::2]] == ["one", "two"]
    with pytest.raises(SessionError, match="already"):
        carry_out("/save lakes", chat)
    (tmp_path / "notes.txt").write_text("The Elbe is long. " * 2000)
    with pytest.raises(OptionError, match="has 34,000 tokens, and the context holds 4,096; give a part of it"):
        carry_out(f"/file {tmp_path}/notes.txt", chat)
    (tmp_path / "notes.txt").write_text("The Elbe is long.")
    carry_out(f"/file {tmp_path}/notes.txt", chat)
    ask(chat, "How long?")
    assert chat.messages()[-2] == {"role": "user", "content": "notes.txt:\n\nThe Elbe is long.\n\nHow long?", "pinned": True}
    carry_out("/context", chat)
    assert "tokens; when it is full: ring" in capsys.readouterr().err
    carry_out("/undo", chat)
    assert capsys.readouterr().err == "taken back: How long? (with notes.txt)\n"
    chat.keeper = None
    with pytest.raises(OptionError, match="not saved"):
        carry_out("/save x", chat)


def test_what_was_taken_back_is_not_on_the_disk(model: edgellm.Model, capsys: pytest.CaptureFixture[str]) -> None:
    chat, store = begin(model), SessionStore()
    kept = chat.keeper
    assert kept is not None
    ask(chat, "one")
    kept.save_as(chat, "")
    assert store.names() == ["one"] and store.state_bytes("one")
    carry_out("/undo", chat)
    assert store.names() == [] and not store.state_bytes("one")
    ask(chat, "two")
    ask(chat, "three")
    kept.save_as(chat, "")
    carry_out("/undo", chat)
    before = chat.prompt()
    with model.resume(store.state_path("one")) as saved:
        assert 0 < saved.n_tokens <= len(before) and chat.session is not None and chat.session.n_tokens == saved.n_tokens
        assert saved.generate([*before, 5], max_tokens=1).stats.cached_tokens == chat.session.n_tokens
    assert [turn["content"] for turn in store.read("one").turns[::2]] == ["two"], "the name stays"
    carry_out("/undo", chat)
    kept.close(chat)
    assert not list(store.folder.iterdir()) and "saved as" not in capsys.readouterr().err


def complete_load(begun: str) -> list[str]:
    return list(completer.complete(f"/load {begun}")[1])


def test_the_budget_takes_the_oldest_states(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SessionStore()
    for k in range(5):
        store.write(f"s{k}", SavedChat("m"))
        store.state_path(f"s{k}").write_bytes(bytes(100))
        os.utime(store.state_path(f"s{k}"), (k, k))
    store.prune(250, keep="s0")
    assert [store.state_bytes(f"s{k}") for k in range(5)] == [100, 0, 0, 0, 100] and len(store.names()) == 5
    for text, wanted in (("", 4 << 30), ("off", 0), ("500M", 500 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30)):
        monkeypatch.setenv(session_store.SESSIONS, text)
        assert budget() == wanted
    monkeypatch.setenv(session_store.SESSIONS, "much")
    with pytest.raises(SessionError, match=r"EDGELLM_SESSIONS='much' is not a size; use off, or e\.g\. 500M or 4G"):
        budget()


def test_names() -> None:
    assert name_of("What is the  Elbe? Tell me all about it") == "what-is-the-elbe-tell" and name_of("¿?").startswith("chat-")
    for wrong in ("../x", "", ".x", "a/b", "x" * 90):
        with pytest.raises(SessionError, match="cannot be a session's name"):
            SessionStore().read(wrong)
    with pytest.raises(SessionError, match="none was saved yet"):
        SessionStore().read("x")


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert app.run(["sessions", "list"]) == 0 and "no chat was saved" in capsys.readouterr().err
    store = SessionStore()
    turns = ({"role": "user", "content": "Rivers?\x1b[2J"}, {"role": "assistant", "content": "Elbe."})
    store.write("rivers", SavedChat("m.gguf", turns, "Be brief."))
    assert app.run(["sessions", "list"]) == 0 and "rivers  m.gguf" in capsys.readouterr().out
    assert app.run(["sessions", "list", "--json"]) == 0 and json.loads(capsys.readouterr().out)[0]["messages"] == 2
    assert app.run(["sessions", "show", "rivers"]) == 0
    shown = capsys.readouterr().out
    assert "## User\n\nRivers?" in shown and "> Be brief." in shown and "\x1b" not in shown
    assert app.run(["sessions", "export", "rivers", "--format", "json"]) == 0
    assert [message["role"] for message in json.loads(capsys.readouterr().out)["messages"]] == ["system", "user", "assistant"]
    assert app.run(["sessions", "export", "rivers", "-o", str(tmp_path / "r.md")]) == 0
    assert "Elbe." in (tmp_path / "r.md").read_text()
    (tmp_path / "r.md").write_text("mine")
    again = ["sessions", "export", "rivers", "-o", str(tmp_path / "r.md")]
    assert app.run(again) == 2 and (tmp_path / "r.md").read_text() == "mine" and "--force" in capsys.readouterr().err
    assert app.run([*again, "--force"]) == 0 and "Elbe." in (tmp_path / "r.md").read_text()
    assert list(tmp_path.glob("r.md*")) == [tmp_path / "r.md"]
    assert app.run(["sessions", "export", "rivers", "--format", "pdf"]) == 2
    assert app.run(["sessions", "rm", "rivers"]) == 0 and store.names() == []
    assert app.run(["sessions", "rm", "rivers"]) == 3 and app.run(["chat", "--continue"]) == 3


def test_the_command_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["sessions", "--help"]) == 0
    page = capsys.readouterr().out
    assert app.run(["sessions"]) == 0 and capsys.readouterr() == (page, "") and "export" in page


def test_a_full_disk_is_reported_once_behind_the_answer(
    model: edgellm.Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And again only when the chat ends, or something else goes wrong."""
    chat = begin(model, SessionStore(tmp_path))
    kept = chat.keeper
    assert kept is not None
    write, full = SessionStore.write, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(SessionStore, "write", Mock(side_effect=full))
    for told in (f"this chat is not saved: {os.strerror(errno.ENOSPC)}\n", ""):
        ask(chat, "a")
        assert capsys.readouterr().err == ""
        kept.report()
        assert capsys.readouterr().err == told
    monkeypatch.setattr(SessionStore, "write", write)
    monkeypatch.setattr(edgellm.Session, "save", Mock(side_effect=full))
    ask(chat, "b")
    kept.report()
    assert capsys.readouterr().err.startswith("the text is saved, but")
    kept.close(chat)
    said = capsys.readouterr().err
    assert said.startswith("the text is saved, but") and "saved as a;" in said


def test_a_session_that_could_not_be_saved_leaves_nothing(
    model: edgellm.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And the chat goes on under its old name."""
    store = SessionStore(tmp_path)
    chat, write = begin(model, store), SessionStore.write
    ask(chat, "a")
    kept = chat.keeper
    assert kept is not None
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr(SessionStore, "write", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        kept.save_as(chat, "rivers")

    def only_old(self: SessionStore, name: str, record: SavedChat) -> None:
        if name != "a":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SessionStore, "write", only_old)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        kept.fork(chat, "lakes")
    assert sorted(path.name for path in tmp_path.iterdir()) == before and kept.name == "a"
    monkeypatch.setattr(SessionStore, "write", write)
    ask(chat, "b")
    assert [turn["content"] for turn in store.read("a").turns[::2]] == ["a", "b"]
    monkeypatch.setattr(edgellm.Session, "save", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert kept.save_as(chat, "rivers").startswith("the text is saved, but")
    assert kept.name == "rivers" and len(store.read("rivers").turns) == 4
    with pytest.raises(SessionError, match="no session"):
        store.remove("lakes")
    assert not list(tmp_path.glob("lakes*"))


def test_piped_chats_are_not_saved(model: edgellm.Model, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n"))
    monkeypatch.setattr(opening, "open_model", lambda name, options: toys().load(path))
    assert app.run(["chat", "m", "-n", "4"]) == 0 and SessionStore().names() == []


def kill_while_saving(path: Path, folder: Path, times: int) -> tuple[int, int]:
    """Kill a process with SIGKILL while it saves over and over; the messages of the last text, and how often a state was whole."""
    store, chance, states = SessionStore(folder), random.Random(9), 0
    newest = 0
    for _ in range(times):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with toys().load(path) as model:
                    chat = Dialogue(model, dict(OPTIONS))
                    chat.called = str(path)
                    kept = Keeper(store, 1 << 30)
                    if "k" in store.names():
                        kept.take(chat, "k", store.read("k"))
                    ask(chat, "x")
                    if not kept.name:
                        kept.save_as(chat, "k")
                    os.write(told, b".")
                    while True:
                        ask(chat, "y")
                        kept.save_as(chat, "")
                        os.write(told, b".")
            finally:
                os._exit(1)
        os.close(told)
        for _ in range(chance.randrange(2, 6)):  # saves
            assert os.read(ready, 1) == b"."
        time.sleep(chance.random() * 0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        record = store.read("k")
        assert len(record.turns) >= newest and [turn["role"] for turn in record.turns[:2]] == ["user", "assistant"]
        newest = len(record.turns)
        with toys().load(path) as model, model.resume(store.state_path("k")) as session:
            assert session.n_tokens > 0
            states += 1
    return newest, states


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_while_saving(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Old or new, never garbage."""
    newest, states = kill_while_saving(path, tmp_path / "sessions", 20)
    assert states == 20 and newest > 80


def test_a_session_with_bytes_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `--system $'\\xff'` gives them."""
    store = SessionStore()
    store.write("a", SavedChat("m", ({"role": "user", "content": "hi"},), system="x\udcff"))
    assert store.read("a").system == "x\udcff"
    assert app.run(["sessions", "export", "a", "-o", str(tmp_path / "a.md")]) == 0
    assert "x?" in (tmp_path / "a.md").read_text(encoding="utf-8")
