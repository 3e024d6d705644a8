"""Names of options in other programs and libraries, what is exported, `async with`, and the log."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.errors import OptionError
from edgellm.options.table import OF_OTHERS, TABLE, known_as


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("names") / "m.gguf", "llama", "F32", tokenizer="bpe")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("temp", "temperature is the name here"),
        ("n_predict", "max_tokens is the name here"),
        ("max_new_tokens", "max_tokens is the name here"),
        ("stop_sequences", "stop is the name here"),
        ("n_ctx", "context is an option of load"),
        ("think", "think is an option of chat"),
        ("temprature", "did you mean temperature?"),
    ],
)
def test_generate_names_the_option_that_was_meant(path: Path, name: str, said: str) -> None:
    asked: dict[str, Any] = {name: 1}
    with edgellm.load(path) as model, pytest.raises(OptionError, match=f"{name} is not an option of generation; .*{said}"):
        model.generate("a", **asked)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("n_ctx", "context is the name here"),
        ("num_threads", "threads is the name here"),
        ("temperature", "temperature is an option of generate and chat"),
        ("contxt", "did you mean context?"),
        ("frobnicate", "docs/options.md"),
    ],
)
def test_load_names_the_option_that_was_meant(path: Path, name: str, said: str) -> None:
    asked: dict[str, Any] = {name: 1}
    with pytest.raises(OptionError, match=f"{name} is not an option of load; {said}"):
        edgellm.load(path, **asked)


def test_every_alias_leads_to_an_option() -> None:
    assert set(OF_OTHERS.values()) <= set(TABLE) and not set(OF_OTHERS) & set(TABLE)
    assert known_as("zqprobe") is None


def test_async_with_closes_the_model(path: Path) -> None:
    async def use() -> edgellm.Model:
        async with edgellm.load(path) as model:
            assert (await model.agenerate("a", max_tokens=2)).token_ids
            return model

    assert asyncio.run(use()).closed


def test_the_log_is_silent_unless_it_is_set_up(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="edgellm"):
        edgellm.load(path).close()
    assert any(str(path) in record.getMessage() for record in caplog.records)
    program = (
        "import edgellm, logging, sys\nedgellm.load(sys.argv[1]).close()\nlogging.getLogger('edgellm').warning('nobody hears this')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_types_are_exported() -> None:
    for name in ("Tokenizer", "TokenLogprobs", "GenerationKeywords", "ChatKeywords", "InfillKeywords", "EmbedKeywords"):
        assert getattr(edgellm, name) is not None and name in dir(edgellm)
