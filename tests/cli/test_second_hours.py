"""Later use of the CLI: resuming, chats that leave no trace, long files and prompts, pipes that close."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_commands import pipe_in, use
from fake_model import FakeModel, FakeStream

import edgellm
from edgellm.cli import app
from edgellm.cli.chat import repl, session_store
from edgellm.cli.chat.conversation import Dialogue, Keeper
from edgellm.cli.chat.guide import NOTES
from edgellm.cli.chat.lines import EditedLines
from edgellm.cli.chat.resuming import saved, saved_lines
from edgellm.cli.chat.session_store import SavedChat, SessionStore
from edgellm.cli.chat.slash_commands import COMMANDS, carry_out
from edgellm.cli.state import last_model
from edgellm.cli.terminal.piped import PipedText
from edgellm.cli.terminal.progress import ReadingLine
from edgellm.errors import OptionError, SessionError

ROOT = Path(__file__).resolve().parents[2]
TURNS = ({"role": "user", "content": "Name three rivers."}, {"role": "assistant", "content": "Rhine, Nile, Po."})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.delenv(session_store.SESSIONS, raising=False)
    return tmp_path / "home"


def conversation(*answers: str) -> Dialogue:
    return Dialogue(FakeModel(*answers), {})  # type: ignore[arg-type]  # stands in for a Model


def write(name: str, **load: object) -> SessionStore:
    store = SessionStore()
    store.claim(name).close()
    store.write(name, SavedChat("m.gguf", TURNS, None, load, 1.0))
    return store


@pytest.mark.parametrize(
    ("load", "called", "why"),
    [
        ({"context": 512}, "m.gguf", "Its KV cache doesn't match --context 64, so the text is processed again."),
        ({"kv_type": "q8_0", "sinks": 9}, "m.gguf", "doesn't match --sinks 4 --kv-type f16,"),
        ({}, "/models/other.gguf", "Its KV cache belongs to m.gguf, so the text is processed again."),
        ({}, "m.gguf", "Its KV cache is damaged, or of another version of the model, so"),
    ],
)
def test_resuming_says_in_one_line_why_the_text_is_processed_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, load: dict[str, object], called: str, why: str
) -> None:
    store, chat = write("rivers", **load), conversation()
    store.state_path("rivers").write_bytes(b"x")
    chat.called = called

    def refuse(path: object) -> None:
        raise SessionError(f"{path}: header '5e87' instead of '66aa'; give a file that session.save() wrote.")

    monkeypatch.setattr(chat.model, "resume", refuse, raising=False)
    chat.model.info = dataclasses.replace(chat.model.info, sinks=4, kv_type="f16")
    Keeper(store, 1 << 20).take(chat, "rivers", store.read("rivers"))
    said = capsys.readouterr().err
    assert said.startswith("resumed rivers (2 messages). ") and why in said and said.count("\n") == 1
    assert not any(word in said for word in ("5e87", "session.save", "anew"))


def test_a_resumed_chat_shows_its_last_exchange(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store, chat = write("rivers"), conversation()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Keeper(store, 1 << 20).take(chat, "rivers", store.read("rivers"))
    out, err = capsys.readouterr()
    assert "> Name three rivers." in err and "Rhine, Nile, Po." in out and "not on the disk" in err


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("stem", ["guide", "SmolLM2-135M-Instruct.Q4_1", "a-name-that-is-longer-than-the-narrow-terminal-is"])
def test_the_line_below_an_answer_shows_how_full_the_context_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, stem: str
) -> None:
    chat = conversation("yes")
    list(chat.ask("a"))
    chat.model.info = dataclasses.replace(chat.model.info, path=Path(f"{stem}.gguf"))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(repl, "columns", lambda stream: width)
    monkeypatch.setattr(repl, "understands_escapes", lambda stream: True)
    assert chat.last is not None
    repl._status(chat, chat.last)
    line = capsys.readouterr().err.removeprefix(repl.DIM).removesuffix(f"{repl.NORMAL}\n")
    assert len(line) < width and line.endswith("%") and line[:5] == stem[:5]
    assert ("[" in line) is (len(stem) + 30 < width)


def test_a_long_name_does_not_shift_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    carry_out("/help", conversation())
    lines = capsys.readouterr().err.splitlines()
    texts = [line.lstrip() for line in lines if line.startswith(" " * 20)]
    assert texts == ["list MCP servers, attach a resource of one, or ask its prompt"]


def test_saved_chats_stand_in_columns() -> None:
    write("rivers")
    lines = saved_lines(write("a-longer-name"))
    assert len(lines) == 2 and len({line.index("Name three") for line in lines}) == 1


def test_a_chat_to_resume_is_picked_from_a_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = write("rivers")
    (line,) = saved_lines(store)
    assert line.split()[0] == "1" and "rivers" in line and "Name three rivers." in line and len(line) < 80
    assert app.run(["chat", "--resume"]) == 2 and "--resume: give a name, such as rivers" in capsys.readouterr().err
    for answer, picked in (("1\n", "rivers"), ("rivers\n", "rivers")):
        pipe_in(monkeypatch, answer.encode())
        for stream in (sys.stdin, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        found = saved(False, "")
        assert found is not None and found.name == picked
    pipe_in(monkeypatch, b"\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(OptionError, match="no chat was picked"):
        saved(False, "")


@pytest.mark.parametrize("private", [["--no-save"], []])
def test_chats_that_are_not_saved_leave_no_trace(monkeypatch: pytest.MonkeyPatch, home: Path, private: list[str]) -> None:
    use(monkeypatch, "one", "two")
    if not private:
        monkeypatch.setenv(session_store.SESSIONS, "off")
    pipe_in(monkeypatch, b"a\n")
    assert app.run(["chat", "m", *private]) == 0 and last_model() is None
    EditedLines(lambda text: ("", []), lambda text: False, keeps=False).remember("a secret")
    assert not [path for path in home.rglob("*") if path.is_file()]
    monkeypatch.delenv(session_store.SESSIONS, raising=False)
    pipe_in(monkeypatch, b"a\n")
    assert app.run(["chat", "m"]) == 0 and last_model() == "m"


def test_lines_are_remembered_as_one_message() -> None:
    lines = EditedLines(lambda text: ("", []), lambda text: False, keeps=False)
    for _ in range(2):
        lines.remember("one\ntwo")
    assert lines._session.history.get_strings() == ["one\ntwo"]


def test_files_that_do_not_fit_are_cut_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, long = conversation(), tmp_path / "long.txt"
    chat.model.tokenizer = edgellm.load_tokenizer("guide")  # type: ignore[misc]  # of the fake model
    long.write_text("word " * 200)
    chat.model.info = dataclasses.replace(chat.model.info, context_train=4096)
    with pytest.raises(OptionError, match=r"the context holds 64; give a part of it, or start the chat with --context \d"):
        carry_out(f"/file {long}", chat)
    chat.model.info = dataclasses.replace(chat.model.info, context_train=100)
    with pytest.raises(OptionError, match=r"the context holds 64; give a part of it$"):
        carry_out(f"/file {long}", chat)
    assert not chat.files
    monkeypatch.setattr("edgellm.cli.chat.session_commands.asked", lambda question: "attach its first 32?" in question)
    carry_out(f"/file {long}", chat)
    assert "the guide can't" not in capsys.readouterr().err
    ((name, text),) = chat.files
    chat.notes = NOTES
    assert name == "long.txt" and 0 < len(text) < 200 * 5
    short = tmp_path / "short.txt"
    short.write_text("ab")
    for _ in range(2):
        carry_out(f"/file {short}", chat)
    carry_out("/file", chat)
    carry_out("/context", chat)
    said = capsys.readouterr().err
    assert len(chat.files) == 2 and "short.txt is attached already" in said
    assert (
        "the guide can't make use of files" in said
        and "comes with your next message: long.txt, short.txt" in said
        and "short.txt, comes with the next message" in said
    )


def test_undo_takes_a_number_and_commands_without_arguments_refuse_one(capsys: pytest.CaptureFixture[str]) -> None:
    chat = conversation("one", "two", "three")
    for text in ("a", "b", "c"):
        list(chat.ask(text))
    carry_out("/undo 2", chat)
    assert [turn["content"] for turn in chat.turns] == ["a", "one"]
    for line in ("/undo x", "/undo 0", "/clear now", "/regen 2"):
        with pytest.raises(OptionError, match=r"give a number|takes no argument"):
            carry_out(line, chat)
    assert len(chat.turns) == 2


@pytest.mark.parametrize(
    ("trained", "advice"),
    [(0, "; --context 2048 keeps them all"), (1000, "; --context 1000 keeps them all"), (100, "; it was trained for 100\n")],
)
def test_a_prompt_that_the_context_cannot_hold_is_said_before_it_is_read(
    capsys: pytest.CaptureFixture[str], trained: int, advice: str
) -> None:
    reading = ReadingLine(64, trained)
    for done in (0, 64, 96):
        reading.read(done, 100)
        said = capsys.readouterr().err
        assert ("the prompt has 100 tokens, and the context holds 64: the model does not see 36 of them" + advice in said) is (
            done == 0
        )
    ReadingLine(64, trained).read(40, 100)
    assert not capsys.readouterr().err, "a long chat, most of which was read before"


def test_run_says_that_an_answer_never_began(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    streams = [FakeStream("<think>Hm", "length") for _ in range(2)]
    for stream in streams:
        stream.prompt_tokens = 100
    use(monkeypatch, *streams)
    pipe_in(monkeypatch, b"")
    assert app.run(["run", "m", "p", "-n", "3"]) == 0
    assert "of thinking, before the answer" in capsys.readouterr().err
    assert app.run(["run", "m", "p", "-n", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cut_while_thinking"] is True and found["prompt_tokens_dropped"] == 36


@pytest.mark.parametrize(("arguments", "code"), [(["list"], 0), (["run", "guide", "hello", "-n", "20"], 141)])
def test_a_pipe_that_closes_ends_lists_well_and_answers_as_a_signal_would(arguments: list[str], code: int) -> None:
    program = [sys.executable, "-c", "import sys; from edgellm.cli import main; sys.argv[0] = 'edgellm'; main()", *arguments]
    child = subprocess.Popen(program, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert (child.wait(300), child.stderr.read().count(b"Traceback")) == (code, 0)


def test_help_and_version_are_words_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["help", "run"]) == 0 and "Usage: edgellm run" in capsys.readouterr().out
    assert app.run(["help"]) == 0 and "quantize" in capsys.readouterr().out
    assert app.run(["version"]) == 0 and capsys.readouterr().out.startswith("edgellm ")


def test_run_without_a_prompt_mentions_chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, "x")
    pipe_in(monkeypatch, b"")
    monkeypatch.setattr(PipedText, "connected", False)
    assert app.run(["run", "m"]) == 2 and "edgellm chat m starts a chat" in capsys.readouterr().err


def test_the_table_of_commands_in_a_chat_is_complete() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    for name, command in COMMANDS.items():
        shown = f"/{name} {command.arguments}".strip().replace("|", "\\|")
        assert f"| `{shown}` | {command.help.partition(':')[0] if name == 'set' else command.help} |" in page, name


@pytest.mark.parametrize(
    "missing, command, code, said",
    [
        ("sqlite3,_sqlite3,readline,curses,_curses,bz2,_bz2,lzma,_lzma,dbm", "run guide hi --temp 0", 0, ""),
        ("sqlite3,_sqlite3,readline,curses,_curses,bz2,_bz2,lzma,_lzma,dbm", "chat guide --temp 0", 0, ""),
        *(("ssl,_ssl", command, 0, "") for command in ("--help", "list", "fit", "show guide", "run guide hi --temp 0")),
        ("ssl,_ssl", "doctor", None, "this Python was built without its module ssl"),
        ("ssl,_ssl", "pull qwen3-0.6b", 3, "was built without its module ssl, which this needs"),
        ("ctypes,_ctypes", "run guide hi", 3, "was built without its module ctypes, which this needs"),
    ],
)
def test_a_python_that_was_built_without_some_modules(missing: str, command: str, code: int | None, said: str) -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({missing!r}.split(','))); from edgellm.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], input="hello\n", capture_output=True, text=True, check=False, timeout=300
    )
    assert code is None or done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr and "fault of edgellm" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS counts mappings, and processors can be chosen, on Linux only")
@pytest.mark.parametrize("kilobytes", [200_000, 300_000, 400_000, 500_000, 1_000_000, None])
@pytest.mark.parametrize("command", ["--help", "list", "run guide hi --temp 0 -n 1"])
def test_a_machine_of_one_core_and_little_memory(kilobytes: int | None, command: str) -> None:
    import resource

    def limit() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        if kilobytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))

    program = [sys.executable, "-c", "from edgellm.cli import main; main()", *command.split()]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=limit, timeout=300)
    if command.startswith("run") and done.returncode == 3:
        assert kilobytes is not None and "take a smaller model" in done.stderr and "()" not in done.stderr
    else:
        assert done.returncode == 0 and done.stdout and "error" not in done.stderr, done.stderr
    assert not (command.startswith("run") and kilobytes == 200_000 and done.returncode == 0)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
@pytest.mark.parametrize(
    "arguments",
    [["run", "guide", "-f", "/dev/zero"], ["run", "guide", "hi", "--grammar", "/dev/zero"], ["perplexity", "guide", "/dev/zero"]],
)
def test_a_file_without_end_is_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("edgellm.cli.terminal.piped.MOST_TEXT", 1 << 20)
    assert app.run(arguments) == 2
    assert "/dev/zero" in (said := capsys.readouterr().err) and "longer than 1 MiB" in said


def test_a_pipe_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.cli.terminal.piped.MOST_TEXT", 1000)
    pipe_in(monkeypatch, b"x" * 1001)
    with pytest.raises(OptionError, match="standard input: is longer"):
        PipedText().text(wait=True)
