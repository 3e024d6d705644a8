"""The option table: what the library, the command line, /set and the documentation derive from its rows."""

from __future__ import annotations

import inspect
import pickle
import re
import sys
from pathlib import Path

import pytest
from fake_commands import pipe_in, use

import edgellm
from edgellm.api.chat_options import ChatKeywords
from edgellm.backends import BACKENDS
from edgellm.cli import app
from edgellm.cli.chat.settings import NAMES, SETTINGS
from edgellm.cli.options import SERVER, typed, worded
from edgellm.errors import ContextFull, OptionError, OptionValue
from edgellm.options.loading import BACKEND, LOADING, POOLING
from edgellm.options.option import Option
from edgellm.options.table import TABLE

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_options_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import option_table

    assert option_table.PAGE.read_text() == option_table.page(), "run scripts/option_table.py"


def test_rows_are_options_of_the_library_and_names_are_unique() -> None:
    library = {*ChatKeywords.__annotations__, *inspect.signature(edgellm.load).parameters}
    assert {row.name for row in TABLE.values() if row.part not in ("tools", "serving")} <= library
    for names in ([flag for row in TABLE.values() for flag in row.flags], [row.gguf for row in TABLE.values() if row.gguf]):
        assert len(names) == len(set(names))
    assert {row.name for row in LOADING} == {row.name for row in TABLE.values() if row.part == "loading"}
    assert BACKEND.values == ("auto", *BACKENDS)


@pytest.mark.parametrize("row", [row for row in TABLE.values() if row.part == "sampling"], ids=lambda row: row.name)
def test_every_sampling_option_reaches_the_model_from_run_and_set(monkeypatch: pytest.MonkeyPatch, row: Option) -> None:
    value = 1 if row.kind is int else max(0.5, row.low)
    loader = use(monkeypatch, *["x"] * len(row.flags))
    pipe_in(monkeypatch, b"")
    for flag in row.flags:
        assert app.run(["run", "m", "p", flag, *([] if row.kind is bool else [str(value)])]) == 0
        assert loader.model.calls[-1][2] == {row.name: True if row.kind is bool else value}
    assert row.typed_names[0] in NAMES and (row.typed_names[0] in SETTINGS) == row.listed


def test_options_that_help_leaves_out_stand_in_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["run", "--help"]) == 0
    help_, page = capsys.readouterr().out.partition("Options:")[2], (ROOT / "docs/options.md").read_text()
    for row in TABLE.values():
        if row.part not in ("tools", "serving") and row not in (*SERVER, POOLING):
            assert (re.search(rf"{row.flag.partition('/')[0]}[ ,]", help_) is not None) == row.listed, row.flag
            assert f"`{row.flag.partition('/')[0]}`" in page


def test_an_error_carries_option_value_and_advice_and_is_worded_for_who_reads_it() -> None:
    with pytest.raises(OptionError) as caught:
        edgellm.SamplingOptions(top_p=3)
    error = caught.value
    assert (error.option, error.value, error.advice) == ("top_p", 3, "give a number from 0 to 1")
    assert str(error) == "top_p=3 is not possible; give a number from 0 to 1."
    assert worded(error) == "--top-p 3: give a number from 0 to 1"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.option, worded(again)) == (str(error), "top_p", worded(error))
    full = ContextFull("it has 9 tokens; choose ", OptionValue("context_policy", "ring"), ".")
    assert str(full) == "it has 9 tokens; choose context_policy='ring'."
    assert worded(full) == "it has 9 tokens; choose --context-policy ring."
    assert worded(OptionError("is odd", option="unheard", value=2, advice="leave it out")) == "unheard=2 is odd; leave it out."
    assert [typed("think", True), typed("think", False), typed("mmap", False), typed("force", True)] == [
        "--think",
        "--no-think",
        "--no-mmap",
        "--force",
    ]


def test_the_table_imports_nothing_heavy() -> None:
    import subprocess

    code = "import edgellm.options.table, edgellm.cli.options, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
