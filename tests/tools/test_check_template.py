"""`edgellm check-template`: conversations as clients send them, through templates that take, need rewriting, or refuse them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import tiny_model

from edgellm.chat import ChatTemplate
from edgellm.cli import app
from edgellm.tools.check_template import CASES, check_template

LOOP = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('only\nfirst') }}{% endif %}"
    "{% if m.role not in ('system', 'user', 'assistant') %}{{ raise_exception('unknown role') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content + '' }}{% endfor %}"
)


def outcomes(source: str) -> dict[str, tuple[str, str]]:
    return {each.name: (each.status, each.reason) for each in check_template(ChatTemplate(source, bos="<s>", eos="</s>"))}


def test_what_templates_take() -> None:
    easy = outcomes(LOOP)
    assert list(easy) == [case.name for case in CASES]
    assert easy["a question"] == easy["a system message in mid-conversation"] == ("ok", "")
    assert easy["tools"] == ("refused", "the template leaves this out")


def test_what_is_rewritten_says_why_and_how() -> None:
    strict = outcomes(STRICT)
    status, reason = strict["a system message in mid-conversation"]
    assert status == "rewritten" and "only first" in reason and "marked [System: ...]" in reason
    assert strict["the role developer"][0] == "rewritten" and "unknown role" in strict["the role developer"][1]
    assert strict["content in parts"][0] == "rewritten" and "parts are joined" in strict["content in parts"][1]
    assert all("\n" not in reason for _, reason in strict.values())


def test_a_template_that_takes_nothing() -> None:
    assert all(status == "refused" and "never" in reason for status, reason in outcomes("{{ raise_exception('never') }}").values())


def test_published_templates(shared: Path) -> None:
    for path in sorted((shared / "templates").glob("*.jinja")):
        if path.stem.endswith("tool_use"):  # refuses all conversations without tools
            continue
        found = outcomes(path.read_text(encoding="utf-8"))
        late = ("a system message in mid-conversation", "content in parts", "two messages of the user in a row")
        assert all(found[name][0] != "refused" for name in late), (path.stem, found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="bpe", template=STRICT)
    assert app.run(["check-template", str(path)]) == 0
    out = capsys.readouterr().out
    assert "a question" in out and "rewritten" in out and "only first" in out
    assert app.run(["check-template", str(path), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [case.name for case in CASES]
