"""Commands refuse wrong arguments with a message, and print no figure that is not known."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_commands import pipe_in, use
from fake_model import FakeModel, FakeStream
from tiny_models import tiny_model

import edgellm
from edgellm.bench.fit import Guess
from edgellm.catalogue.registry import entries
from edgellm.cli import app
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.chat.session_store import SESSIONS
from edgellm.cli.chat.slash_commands import carry_out
from edgellm.cli.commands import fit as fit_command
from edgellm.cli.terminal.format_stats import summary
from edgellm.errors import OptionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "LOCALAPPDATA", "HF_HUB_CACHE", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


def refused(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int = 2) -> str:
    """The message of a command that fails."""
    assert app.run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("options", "said"), [(["-d", "512"], "-d"), (["-pg", "8,8"], "-pg"), (["-t", "1,2"], "several numbers of -t")]
)
def test_bench_parallel_refuses_what_it_does_not_have(capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert f"--parallel has no {said};" in refused(capsys, ["bench", "m", "--parallel", "2", *options])


@pytest.mark.parametrize("option", ["--think", "--no-think", "--think-budget=9", "--system=x"])
@pytest.mark.parametrize("template", [True, False])
def test_options_of_replies_are_refused_where_text_is_continued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, template: bool
) -> None:
    use(monkeypatch, "x", template=template)
    pipe_in(monkeypatch, b"")
    said = refused(capsys, ["run", "m", "hi", option, *(["--raw"] if template else [])])
    assert said.startswith(f"error: {option.replace('=', ' ').replace(' x', '')} needs a model with a chat template, and no --raw")


@pytest.mark.parametrize(("trained", "warned"), [(32, True), (64, False)])
def test_a_context_beyond_what_was_trained_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trained: int, warned: bool
) -> None:
    loader = use(monkeypatch)
    loader.model.info = edgellm.ModelInfo(**{**vars_of(loader.model.info), "context_train": trained})
    pipe_in(monkeypatch, b"")
    assert app.run(["chat", "m", "-c", "64"]) == 0
    assert ("warning: a context of 64 tokens exceeds the trained length of 32" in capsys.readouterr().err) == warned


def vars_of(info: edgellm.ModelInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__dataclass_fields__}


def test_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "other").mkdir()
    folder = str(tmp_path)
    assert f"{folder} is a folder; make a GGUF file of it first" in refused(
        capsys, ["imatrix", folder, str(tmp_path / "text.txt"), str(tmp_path / "out.gguf")]
    )
    assert f"{folder}: is a folder, and folders cannot be imported" in refused(capsys, ["import", folder], 3)
    assert f"'{folder}/other' is a path on this machine, not the name of a model" in refused(capsys, ["pull", f"{folder}/other"], 3)
    loop, broken = tmp_path / "loop.gguf", tmp_path / "broken.gguf"
    for link, to in ((loop, loop), (broken, tmp_path / "gone.gguf")):
        link.symlink_to(to)
    assert f"'{loop}' is a symbolic link that points to itself, not a model" in refused(capsys, ["show", str(loop)], 3)
    assert f"'{broken}' is a broken symbolic link, not a model file" in refused(capsys, ["show", str(broken)], 3)
    assert f"'{folder}/text.txt/' does not exist: check the path" in refused(capsys, ["show", f"{folder}/text.txt/"], 3)
    assert "fetch it with: ollama pull x" in refused(capsys, ["pull", "ollama:x"], 3)


@pytest.mark.parametrize("typed", ["q4km", "Q4KM", "q4_k_n", "q4-k-m"])
def test_misspelt_types_get_suggestions(typed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean qwen3-0.6b:Q4_K_" in refused(capsys, ["pull", f"qwen3-0.6b:{typed}"], 3)
    assert "did you mean Q4_K_" in refused(capsys, ["quantize", "guide", str(tmp_path / "out.gguf"), typed])


def test_numbers_that_json_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {"odd.nan": float("nan"), "odd.inf": float("-inf"), "odd.none": 1.5}
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", n_layers=1, metadata=odd)

    def constant(name: str) -> None:
        raise AssertionError(name)

    assert app.run(["show", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out, parse_constant=constant)
    assert {key: facts["metadata"][key] for key in odd} == {"odd.nan": "nan", "odd.inf": "-inf", "odd.none": 1.5}


@pytest.mark.parametrize("typed", ["my notes.txt", '"my notes.txt"', "'my notes.txt'", r"my\ notes.txt", '"~/my notes.txt"'])
def test_paths_of_files_as_a_shell_has_them(home: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    home.mkdir()
    (home / "my notes.txt").write_text("The Elbe is long.")
    monkeypatch.chdir(home)
    model = FakeModel()
    model.tokenizer = Words()
    chat = Dialogue(model, {})  # type: ignore[arg-type]  # stands in for a Model
    carry_out(f"/file {typed}", chat)
    assert chat.attached == "my notes.txt"
    with pytest.raises(OptionError, match='/file "my: cannot be read'):
        carry_out('/file "my', chat)


def test_line_ends_of_files_are_those_of_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    model = FakeModel("yes")
    model.tokenizer = Words()
    chat = Dialogue(model, {})  # type: ignore[arg-type]  # stands in for a Model
    carry_out(f"/file {tmp_path}/a.txt", chat)
    assert list(chat.ask("Well?")) and "one\ntwo\nthree\n" in model.calls[0][1][0]["content"] and "\ufeff" not in str(model.calls)


@pytest.mark.skipif(os.name == "nt", reason="has no such files")
@pytest.mark.parametrize("path, said", [("/dev/zero", "is longer than 16 MiB"), ("/dev/null", "is empty"), (".", "cannot be read")])
def test_files_that_are_no_text(path: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"/file {path}: {said}"):
        carry_out(f"/file {path}", Dialogue(FakeModel(), {}))  # type: ignore[arg-type]  # stands in for a Model


class Words:
    """Counts words."""

    def encode(self, text: str) -> list[str]:
        return text.split()


def test_a_limit_for_saved_chats_is_looked_at_first_and_only_if_it_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SESSIONS, "foo")
    loader = use(monkeypatch, "one")
    pipe_in(monkeypatch, b"a\n")
    assert app.run(["chat", "m"]) == 0 and len(loader.calls) == 1
    capsys.readouterr()
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert app.run(["chat", "m"]) == 3 and len(loader.calls) == 1
    assert capsys.readouterr().err == "error: EDGELLM_SESSIONS='foo' is not a size; use off, or e.g. 500M or 4G.\n"


def test_threads_of_the_library_and_the_command_line() -> None:
    with pytest.raises(OptionError, match=r"threads=0 is not possible; .*, or leave it out for all cores\.$"):
        edgellm.load("m.gguf", threads=0)


@pytest.mark.parametrize(
    ("rate", "advice"),
    [(0.0, "The largest that fits: edgellm pull"), (20.0, "The largest that fits and writes as fast as you read: edgellm pull")],
)
def test_without_timing_no_speed_is_claimed(rate: float, advice: str) -> None:
    entry = next(entry for entry in entries().values() if entry.kind == "chat")
    assert advice in fit_command._catalogue_page([Guess(entry, entry.files[0], 1 << 20, rate, "yes")])


def test_the_line_of_statistics_counts_a_prompt_once() -> None:
    stream = FakeStream("eight...")
    stream.drain()
    assert summary(stream.result).startswith("7 prompt tokens (0 cached), 8 generated at ")
