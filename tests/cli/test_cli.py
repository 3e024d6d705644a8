"""The commands without a terminal: what goes to stdout and stderr, which exit code, and what the library is asked for."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_commands import use
from fake_model import FakeModel, FakeStream
from places import IMPORTED
from tiny_models import tiny_model

from edgellm.api.records import Generation
from edgellm.cli import app, opening
from edgellm.cli.terminal import progress
from edgellm.errors import OptionError

COMMANDS = (
    "chat",
    "run",
    "fit",
    "pull",
    "list",
    "show",
    "path",
    "rm",
    "import",
    "tokenize",
    "bench",
    "doctor",
    "embed",
    "rerank",
    "transcribe",
    "convert",
    "perplexity",
    "quantize",
    "verify",
)


@pytest.fixture(autouse=True)
def no_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands see a terminal that nobody types on, unless a test says otherwise."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)


def test_run_prints_the_answer_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    loader = use(monkeypatch, "An answer.")
    assert app.run(["run", "m", "A question?"]) == 0
    assert capsys.readouterr() == ("An answer.\n", "")
    assert loader.calls == [("m", {})]
    assert loader.model.calls == [("chat", [{"role": "user", "content": "A question?"}], {})]
    assert loader.model.closed


@pytest.mark.parametrize("template, arguments", [(False, []), (True, ["--raw"])])
def test_run_continues_the_text_without_a_template(monkeypatch: pytest.MonkeyPatch, template: bool, arguments: list[str]) -> None:
    loader = use(monkeypatch, " there was", template=template)
    assert app.run(["run", "m", "Once", *arguments]) == 0
    assert loader.model.calls[0][:2] == ("stream", "Once")


def test_run_hands_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = use(monkeypatch, "x")
    line = (
        "run m p -n 5 --temp 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 -s 7 -c 128 -t 1 --kv-type f32 --sinks 2 "
        "--system S --repeat-penalty 1.1 --presence-penalty 0.2 --frequency-penalty -0.3 --stop END --stop \\n"
    )
    assert app.run(line.split()) == 0
    assert loader.calls == [("m", {"context": 128, "threads": 1, "kv_type": "f32", "sinks": 2})]
    _, messages, options = loader.model.calls[0]
    assert messages[0] == {"role": "system", "content": "S"}
    assert options == {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 7,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": -0.3,
        "stop": ("END", "\n"),
    }


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--choices", "yes, no"], {"choices": ["yes", "no"]}),
        (["--choices", '["a,b", "c"]'], {"choices": ["a,b", "c"]}),
        (["--regex", "[0-9]+"], {"regex": "[0-9]+"}),
        (["--schema", '{"type": "integer"}'], {"schema": {"type": "integer"}}),
        (["--schema", "schema.json"], {"schema": {"type": "boolean"}}),
        (["--grammar", "grammar.lark"], {"grammar": 'start: "a"'}),
        (["--think-budget", "9"], {"think_budget": 9}),
        (["--draft", "ngram"], {"draft": "ngram"}),
    ],
)
def test_run_hands_the_answers_form_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text('{"type": "boolean"}')
    Path("grammar.lark").write_text('start: "a"')
    loader = use(monkeypatch, "x")
    assert app.run(["run", "m", "Hi", *arguments]) == 0
    assert loader.model.calls[0][2] == options


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--schema", '{"not": {}}'], "'not'"),
        (["--schema", "{"], "--schema '{': is not JSON"),
        (["--schema", "gone"], "--schema gone: "),
        (["--choices", '["a"'], "--choices"),
        (["--choices", ","], "choices has"),
        (["--regex", "("], "unclosed group"),
        (["--grammar", "gone"], "--grammar gone: cannot be read"),
        (["--regex", "a", "--choices", "a,b"], "choices and regex"),
    ],
)
def test_run_refuses_a_faulty_form_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    loader = use(monkeypatch, "x")
    assert app.run(["run", "m", "Hi", *arguments]) == 2
    assert said in capsys.readouterr().err and not loader.calls


def test_seed_minus_one_is_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = use(monkeypatch, "x")
    assert app.run(["run", "m", "p", "--seed", "-1"]) == 0
    assert loader.model.calls[0][2] == {"seed": None}


def test_run_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, " An answer\x1b[2J")
    assert app.run(["run", "m", "p", "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert err == "" and "\x1b" not in out
    assert (answer["model"], answer["text"], answer["stop_reason"], answer["seed"]) == ("m", " An answer\x1b[2J", "eog", 0)
    assert answer["ids"] == [1] * len(answer["text"]) and answer["stats"]["prompt_tokens"] == 7
    assert answer["stats"]["tokens_per_second"] > 0


def test_run_as_json_prints_what_there_is_when_ctrl_c_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(FakeStream):
        def drain(self) -> Generation:
            next(iter(self))
            raise KeyboardInterrupt

    use(monkeypatch, Interrupted("An answer"))
    assert app.run(["run", "m", "p", "--json"]) == 130
    answer = json.loads(capsys.readouterr().out)
    assert (answer["text"], answer["stop_reason"]) == ("A", "cancelled")


def test_run_with_log_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1)
    line = ["run", str(model), "hello", "--raw", "-n", "4", "--temp", "0", "--logprobs"]
    assert app.run([*line, "3"]) == 2 and "--logprobs" in capsys.readouterr().err
    assert (
        app.run([*line, "9999", "--json"]) == 2 and "--logprobs 9999: give a whole number from 0 to 100" in capsys.readouterr().err
    )
    assert app.run([*line, "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in answer["logprobs"]] == answer["ids"] and len(answer["ids"]) == 4
    for each in answer["logprobs"]:
        top = each.pop("top")
        assert len(top) == 3 and top[0] == each and each["text"] and top[2]["logprob"] <= top[1]["logprob"] <= each["logprob"] < 0


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--choices", "yes indeed,no", "not of the form that was asked for"),
        ("--regex", "[a-z ]+", "not of the form"),
        ("--stop", "x", ""),
    ],
)
def test_a_form_that_was_cut_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str, said: str
) -> None:
    use(monkeypatch, FakeStream("yes", "length"))
    assert app.run(["run", "m", "Is it?", option, value, "-n", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "yes\n" and said in err and bool(said) == bool(err)


@pytest.mark.parametrize(
    "arguments, prompt", [([], "from a file"), (["first"], "first\n\nfrom a file"), (["--raw"], "from a file\n")]
)
def test_a_prompt_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], prompt: str) -> None:
    loader = use(monkeypatch, "x", template=False)
    (tmp_path / "prompt.txt").write_text("from a file\n")
    assert app.run(["run", "m", *arguments, "-f", str(tmp_path / "prompt.txt")]) == 0
    assert loader.model.calls[0][1] == prompt


def test_the_model_is_looked_at_before_a_prompt_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["run", str(tmp_path / "none.gguf")]) == 3
    assert "does not exist" in one_line(capsys)
    (tmp_path / "text.gguf").write_text("no model")
    assert app.run(["run", str(tmp_path / "text.gguf")]) == 3
    assert "text.gguf" in one_line(capsys)
    assert app.run(["run", str(tiny_model(tmp_path / "tiny.gguf", "llama", "F32", tokenizer="bpe"))]) == 2
    assert "PROMPT is missing" in one_line(capsys)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--kv-type", "x"], "--kv-type x: give f16, q8_0, q4_0 or f32"),
        (["--backend", "x"], "--backend x: give auto, cpu or mlx"),
        (["--context", "9", "--sinks", "9"], "--context 9: give a number of tokens from 11 (two more than the 9 sinks)"),
        (["--stop", ""], "--stop '': give a text"),
    ],
)
def test_errors_of_the_library_in_the_words_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert app.run(["run", str(tiny_model(tmp_path / "tiny.gguf", "llama", "F32", tokenizer="bpe")), "x", *arguments]) == 2
    assert said in one_line(capsys)


def test_help_shows_the_defaults_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    from edgellm.sampling import SamplingOptions

    assert app.run(["run", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for flag, name in (
        ("temp", "temperature"),
        ("top-k", "top_k"),
        ("top-p", "top_p"),
        ("min-p", "min_p"),
        ("repeat-penalty", "repeat_penalty"),
        ("presence-penalty", "presence_penalty"),
        ("frequency-penalty", "frequency_penalty"),
    ):
        assert re.search(rf"--{flag}\b[^=]*?Default: {getattr(SamplingOptions(), name):g}\b", shown), flag
    assert "Default: what it was trained for, or as much of it as a quarter of the free memory holds." in shown


def test_run_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = use(monkeypatch, "x")
    assert app.run(["run", "m", "p", "-n", "-1"]) == 0
    assert loader.model.calls[0][2]["max_tokens"] == "unlimited"


def test_catalogue_defaults_yield_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = use(monkeypatch, "x", "x")
    assert app.run(["run", "qwen3-0.6b", "p"]) == 0
    assert app.run(["run", "qwen3-0.6b:Q4_K_M", "p", "--temp", "0"]) == 0
    first, second = (call[2] for call in loader.model.calls)
    assert (first["temperature"], first["top_k"]) == (0.6, 20)
    assert (second["temperature"], second["top_k"]) == (0, 20)


def test_run_says_when_its_own_limit_cut_the_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, FakeStream("x", "length"), FakeStream("x", "length"))
    assert app.run(["run", "m", "p"]) == 0
    assert "-n sets another limit" in capsys.readouterr().err
    assert app.run(["run", "m", "p", "-n", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_control_characters_do_not_reach_a_pipe_unless_raw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, "a\x1b[31mb\x07", "a\x1b[31mb\x07")
    assert app.run(["run", "m", "p"]) == 0
    assert capsys.readouterr().out == "ab\n"
    assert app.run(["run", "m", "p", "--raw"]) == 0
    assert capsys.readouterr().out == "a\x1b[31mb\x07"


def test_replies_begin_with_a_word_and_continuations_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, "\n  a b", "\n  a b")
    assert app.run(["run", "m", "p"]) == 0
    assert capsys.readouterr().out == "a b\n"
    use(monkeypatch, " a b", template=False)
    assert app.run(["run", "m", "p"]) == 0
    assert capsys.readouterr().out == " a b\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_when_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    def be_patient(seconds: float) -> None:
        for name in ("DELAY_TERMINAL", "DELAY_LOG"):
            monkeypatch.setattr(progress, name, seconds)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(progress, "TICK", 60.0)
    be_patient(60.0)
    with progress.ProgressLine("loading x") as line:
        line("compiling", 1, 9)
    assert capsys.readouterr().err == ""
    be_patient(0.01)
    shown = ""
    with progress.ProgressLine("loading \x1b[2Jx") as line:
        while not shown:
            time.sleep(0.01)
            shown = capsys.readouterr().err
        line("compiling", 1, 9)
        line("compiling", 2, 9)
    shown += capsys.readouterr().err
    if terminal:
        assert shown.startswith("\rloading x ...\rcompiling 1/9 ...") and shown.endswith("\r" + " " * 17 + "\r")
    else:
        assert shown == "loading x ...\n"


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    "line, said",
    [
        ("bogus", "no command 'bogus'"),
        ("rn m", "did you mean run"),
        ("--nope", "--nope"),
        ("run", "MODEL"),
        ("run m x -ngl 99", "-ngl: no such option; see edgellm run --help"),
        ("run m x --temprature 1", "--temprature: no such option; did you mean --temperature or --temp? see edgellm run --help"),
        ("run m x --threads many", "--threads many: 'many' is not a whole number"),
        ("run m x --top-p much", "'much' is not a number"),
        ("run m x -n abc", "-n abc"),
        ("run m x --top-p=abc", "--top-p abc"),
        ("run m x --nope", "--nope"),
        ("run m x --temp", "--temp"),
        ("run m x y z", "y z: too many arguments; quote text that has spaces; see edgellm run --help"),
        ("sessions rm", "see edgellm sessions rm --help"),
        ("sessions nope", "no such command 'nope'; see edgellm sessions --help"),
        ("run guide x --lora=", "--lora '': give the file"),
        ("show m --graph --json", "--graph"),
        ("show m --graph -c 0", "--context 0: give 8 or more"),
        ("bench m -t 0", "-t 0: give 1 or more"),
        *[
            (f"{command} m {line}", f"{line}: give {advice}")
            for command in ("run", "chat")
            for line, advice in (
                ("--threads 0", "a whole number from 1 to 1024"),
                ("--threads 2000", "a whole number from 1 to 1024"),
                ("--threads-batch -2", "a whole number from 1 to 1024"),
                ("--context 7", "8 or more"),
                ("--temp -0.5", "0 or more"),
                ("--temp nan", "0 or more"),
                ("--temp inf", "a finite number"),
                ("--top-k -2", "-1 or more"),
                ("--top-p 7", "a number from 0 to 1"),
                ("--min-p -0.1", "a number from 0 to 1"),
                ("--repeat-penalty 0", "more than 0"),
                ("--presence-penalty nan", "a finite number"),
                ("--sinks -1", "0 or more"),
                ("--frequency-penalty inf", "a finite number"),
                ("--seed -3", "0 or more, or -1"),
            )
        ],
        ("run m --file no-such-file", "--file no-such-file: cannot be read"),
        ("tokenize m", "TEXT is missing"),
        ("bench m -p a", "-p a"),
        ("bench m -n -5", "-n -5"),
        ("bench m -p 0 -n 0", "nothing to measure"),
        ("bench m -r 0", "-r 0"),
        ("bench m -pg 512", "-pg 512"),
        ("bench m -pg 0,4", "-pg 0,4"),
    ],
)
def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    assert app.run(line.split()) == 2
    assert said in one_line(capsys)


def test_empty_prompt_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, "x")
    assert app.run(["run", "m", ""]) == 2
    assert "empty" in one_line(capsys)


def test_system_prompt_needs_a_template(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, "x", template=False)
    assert app.run(["run", "m", "p", "--system", "s"]) == 2
    assert "--system" in one_line(capsys)


@pytest.mark.parametrize("command", [["run", "{}", "x"], ["show", "{}"], ["tokenize", "{}", "x"], ["bench", "{}"], ["chat", "{}"]])
@pytest.mark.parametrize("name", ["nothing-here", "../nothing.gguf", "hf:nobody/nothing", "no\ngood\x1b[2J.gguf", "x" * 300])
def test_model_errors_are_one_line(
    command: list[str], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert app.run([part.format(name) for part in command]) == 3
    assert "\x1b" not in one_line(capsys)


def test_files_that_are_no_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "text.gguf").write_text("hello, this is not a model at all, only text")
    os.mkfifo(tmp_path / "fifo.gguf")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.gguf"))
        for name in ("empty.gguf", "text.gguf", "fifo.gguf", "loop.gguf", "socket.gguf", ".", "/dev/zero"):
            assert app.run(["show", str(tmp_path / name)]) == 3, name
            one_line(capsys)


@pytest.mark.parametrize(
    "error, code, said",
    [
        (OptionError(option="top_p", value=3, advice="give 1 or less"), 2, "--top-p 3: give 1 or less"),
        (MemoryError(), 3, "out of memory"),
        (ZeroDivisionError("division by zero"), 1, "--debug"),
    ],
)
def test_other_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    def fail(name: str, options: dict[str, Any]) -> FakeModel:
        raise error

    monkeypatch.setattr(opening, "open_model", fail)
    assert app.run(["run", "m", "p"]) == code
    assert said in one_line(capsys)


@pytest.mark.parametrize("arguments", [["--debug", "show", "nothing"], ["show", "nothing", "--debug"]])
def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert app.run(arguments) == 3
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(name: str, options: dict[str, Any]) -> FakeModel:
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "open_model", interrupt)
    assert app.run(["run", "m", "p"]) == 130
    assert capsys.readouterr().err == "\n"


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["run", "m", "p"], 141)])
def test_closed_stdout_is_quiet(arguments: list[str], status: int) -> None:
    code = f"""
import sys
sys.path[:0] = {IMPORTED!r}
from fake_model import FakeModel
from edgellm.cli import app, opening
opening.open_model = lambda name, options: FakeModel("x" * 100)
raise SystemExit(app.run({arguments!r}))
"""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (status, b"")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([]) == 0
    page = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", page, re.MULTILINE)
        assert app.run([command, "--help"]) == 0
        assert "Usage: edgellm" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["60", "80"])
def test_what_commands_do_is_said_whole(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert app.run(["--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
