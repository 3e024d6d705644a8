"""gpt-oss's channels: what is thought, said and called is told apart however the answer is cut, and forms hold in the last one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import tiny_model

import edgellm
from edgellm.chat.channels import splitter_of
from edgellm.chat.families import CallSplitter, find_format
from edgellm.chat.messages import ChannelSplitter
from edgellm.chat.tools import Tool

THOUGHT = "<|channel|>analysis<|message|>Hm, 1 < 2."
FINAL = "<|channel|>final<|message|>Paris."
CALL = '<|channel|>commentary to=functions.now <|constrain|>json<|message|>{"a": "<|end|>"}'
TEMPLATE = """{% if tools %}{{ tools | tojson }}<|channel|> functions{% endif %}{% for message in messages %}{{ message.content }}\
{% endfor %}<|start|>assistant{# <|channel|>final<|message|> #}"""
CONTROLS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "<|call|>", "<|return|>")
CASES = [
    (f"{THOUGHT}<|end|><|start|>assistant{FINAL}", "Hm, 1 < 2.", "Paris."),
    (FINAL, "", "Paris."),
    ("Paris.", "", "Paris."),
    (f"{THOUGHT}<|end|><|start|>assistant{THOUGHT}<|end|><|start|>assistant{FINAL}", "Hm, 1 < 2.\n\nHm, 1 < 2.", "Paris."),
    (f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{FINAL}<|end|>", "", "I look.\n\nParis."),
    (f"{THOUGHT}<|end|><|start|>assistant{CALL}", "Hm, 1 < 2.", CALL),
    (THOUGHT, "Hm, 1 < 2.", ""),
    ("", "", ""),
    ("<", "", "<"),
    (f"{FINAL} <|end|> of", "", "Paris. <|end|> of"),
    (f"{FINAL} <|x|>", "", "Paris. <|x|>"),
    (" to go", "", " to go"),
    ("<|channel|>final", "", ""),
    ("<|channel|>" + "x" * 400, "", "<|channel|>" + "x" * 400),
]


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_channels_are_told_apart(case: tuple[str, str, str], size: int) -> None:
    text, *wanted = case
    splitter, found = ChannelSplitter(), ["", ""]
    pushed = [splitter.push(text[at : at + size]) for at in range(0, len(text), size)]
    for parts in [*pushed, splitter.flush()]:
        found = [before + more for before, more in zip(found, parts, strict=True)]
    assert found == wanted


def test_calls_come_through_with_the_text_before_them() -> None:
    splitter, calls = ChannelSplitter(), CallSplitter(find_format("<|channel|> functions"), [Tool("now", "", {})])
    _, text = splitter.push(
        f"{THOUGHT}<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant{CALL}"
    )
    shown, found = calls.push(text)
    more, last = calls.flush()
    assert shown + more == "Wait." and [(call.name, call.arguments) for call in found + last] == [("now", {"a": "<|end|>"})]


def test_the_template_of_gpt_oss_has_channels(shared: Path) -> None:
    source = (shared / "templates" / "openai-gpt-oss-120b.jinja").read_text(encoding="utf-8")
    marks = edgellm.chat.marks_of(source)
    assert marks is not None and isinstance(splitter_of("", marks), ChannelSplitter)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(
        tmp_path_factory.mktemp("channels") / "m.gguf",
        "llama",
        "F16",
        tokenizer="bpe",
        n_layers=1,
        context=2048,
        controls=CONTROLS,
        template=TEMPLATE,
    )
    with edgellm.load(path, context=2048) as model:
        yield model


def test_forms_and_budgets_hold_behind_the_thinking(model: edgellm.Model) -> None:
    ask = [{"role": "user", "content": "hello"}]
    assert model.thinking == "always"
    for seed in range(4):
        answer = model.chat(ask, choices=["yes", "no"], think_budget=20, seed=seed, temperature=1.5, top_k=0, max_tokens=300)
        assert answer.text in ("yes", "no") and answer.stop_reason == "eog"
        answer = model.chat(ask, schema={"type": "boolean"}, think_budget=0, seed=seed, temperature=1.5, top_k=0, max_tokens=300)
        assert isinstance(answer.parsed, bool) and not answer.thinking
        tools = [
            {
                "name": "now",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "boolean"}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            }
        ]
        answer = model.chat(ask, tools=tools, think_budget=5, seed=seed, temperature=1.5, top_k=0, max_tokens=300)
        assert all(call.name == "now" and isinstance(call.arguments["a"], bool) for call in answer.tool_calls)
        assert len(model.tokenizer.encode(answer.thinking)) < 60, answer.thinking
