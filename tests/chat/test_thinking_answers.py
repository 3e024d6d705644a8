"""Answers of models that think: streams, switches, and channels between control tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import Loader, toys
from test_thinking import FINAL_SOURCE, STEPS
from tiny_models import tiny_model

import edgellm
from edgellm.chat.shape import TemplateShape
from edgellm.chat.soft_switch import with_soft_switch
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.thinking import opens_thinking, reads_soft_switch, switch, thinking_of
from edgellm.errors import OptionError

# Thinks where the prompt leaves it open, as Qwen3.5 does.
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    "{% if enable_thinking is false %}<think></think>{% else %}<think>{% endif %}"
)


@pytest.fixture
def loader() -> Loader:
    return toys()


@pytest.fixture
def model(loader: Loader, tmp_path: Path) -> Iterator[edgellm.Model]:
    path = tiny_model(tmp_path / "thinker.gguf", "llama", "F16", tokenizer="bpe", template=TEMPLATE, n_layers=1, context=256)
    with loader.load(path, context=256) as model:
        yield model


# Nemotron Nano 2's way, and that of Llama Nemotron, which reads the system message alone.
SOFT = """{% set ns = namespace(thinks=true, text='') %}{% for m in messages %}{% if m.role in ('system', 'user') %}\
{% if '/think' in m.content %}{% set ns.thinks = true %}{% elif '/no_think' in m.content %}{% set ns.thinks = false %}{% endif %}\
{{ m.role }}: {{ m.content.replace('/think', '').replace('/no_think', '').strip() }}
{% endif %}{% endfor %}assistant: {{ '<think>' if ns.thinks else '<think></think>' }}"""


SOFT_SYSTEM = """{% set enable_thinking = true %}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}\
{% if "/no_think" in system %}{% set system = system.replace('/no_think', '') | trim %}{% set enable_thinking = false %}\
{% elif "/think" in system %}{% set system = system.replace('/think', '') | trim %}{% endif %}system: {{ system }}
{% endif %}{% for m in messages if m.role == 'user' %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant: {% if enable_thinking %}<think>{% else %}<think></think>{% endif %}"""


@pytest.mark.parametrize("source", [SOFT, SOFT_SYSTEM], ids=["any message", "system message"])
def test_a_soft_switch_is_put_in_the_system_message(source: str) -> None:
    shape, user = TemplateShape(ChatTemplate(source)), {"role": "user", "content": "Hi"}
    assert thinking_of(source) == "optional" and reads_soft_switch(source)
    for role, system in (
        ("system", "Be brief."),
        ("system", "Be brief. /think"),
        ("system", "/no_think Be brief."),
        ("developer", "Be brief."),
    ):
        for think in (True, False):
            text = shape.render([{"role": role, "content": system}, user], None, **switch("optional", think)).text
            assert text == f"system: Be brief.\nuser: Hi\nassistant: {'<think>' if think else '<think></think>'}"
    for asked, opened in ((None, True), (True, True), (False, False)):
        text = shape.render([user], None, **switch("optional", asked)).text
        assert opens_thinking(text) is opened and text.removeprefix("system: \n").startswith("user: Hi\n"), text
    assert "system" not in shape.render([user], None).text
    users = shape.render([{**user, "content": "Hi /think"}], None, **switch("optional", False)).text
    assert opens_thinking(users) is (source == SOFT), "what the user writes counts as the template says"


def test_soft_switches_are_left_alone_where_the_template_has_an_option() -> None:
    source = "{% if enable_thinking %}{% endif %}{% if '/no_think' in messages[0].content %}{% endif %}<think></think>"
    assert thinking_of(source) == "optional" and not reads_soft_switch(source)
    assert with_soft_switch(QUESTION, source, False) is QUESTION and with_soft_switch(QUESTION, SOFT, None) is QUESTION
    assert with_soft_switch([], SOFT, True) == []
    listed = [{"role": "system", "content": [{"type": "text", "text": "Hm."}]}]
    assert with_soft_switch(listed, SOFT, True) is listed
    assert with_soft_switch([{"role": "system", "content": None}], SOFT, True) == [{"role": "system", "content": "/think"}]


def test_a_soft_switch_in_a_conversation(loader: Loader, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "soft.gguf", "llama", "F16", tokenizer="bpe", template=SOFT, n_layers=1, context=256)
    with loader.load(path, context=256) as model:
        assert model.thinking == "optional"
        for think, said, wanted in ((None, "Hm.</think>Paris.", ("Hm.", "Paris.")), (False, "Paris.", ("", "Paris."))):
            lets_say(loader, model, said)
            answer = model.chat(QUESTION, think=think, temperature=0)
            assert (answer.thinking, answer.text) == wanted


def lets_say(loader: Loader, model: edgellm.Model, text: str) -> None:
    """The toy says `text` and ends."""
    ids = [*model.tokenizer.encode_trusted(text, ((0, len(text)),), add_special=False), min(model.tokenizer.eog_ids)]
    lengths: list[int] = []

    def logits_of(seen: np.ndarray) -> np.ndarray:
        lengths.append(len(seen))
        logits = np.zeros(model.n_vocab, np.float32)
        logits[ids[len(seen) - lengths[0]]] = 9
        return logits

    loader.toy.logits_of = logits_of


COMMAND_TOKENS = tuple(f"<|{which}_{what}|>" for which in ("START", "END") for what in ("THINKING", "RESPONSE", "ACTION"))


QUESTION = [{"role": "user", "content": "Capital of France?"}]


def test_a_stream_tells_thinking_from_the_answer(loader: Loader, model: edgellm.Model) -> None:
    assert model.thinking == "optional"
    lets_say(loader, model, "Hm, France.\n</think>\n\nParis, of course.")
    stream = model.chat(QUESTION, stream=True, temperature=0)
    events = list(stream.events())
    kinds = list(dict.fromkeys(event.kind for event in events))
    assert kinds == ["prompt", "thinking", "text", "done"] and len(events) > 6 and events[-1].result is stream.result
    assert "".join(text for kind, text, *_ in events if kind == "thinking") == stream.result.thinking == "Hm, France."
    assert "".join(text for kind, text, *_ in events if kind == "text") == stream.result.text == "Paris, of course."

    lets_say(loader, model, "Hm, France.\n</think>\n\nParis, of course.")
    pieces = list(model.chat(QUESTION, stream=True, temperature=0))
    assert "".join(pieces) == "Paris, of course." and "".join(piece.thinking for piece in pieces) == "Hm, France."


def test_without_thinking_all_is_answer(loader: Loader, model: edgellm.Model) -> None:
    lets_say(loader, model, "Paris </think>.")
    result = model.chat(QUESTION, think=False, temperature=0)
    assert (result.thinking, result.text) == ("", "Paris </think>.")
    lets_say(loader, model, "Hm.</think>Paris.")
    result = model.generate("What?", temperature=0)
    assert (result.thinking, result.text) == ("", "Hm.</think>Paris."), "a prompt that is not a conversation is not looked into"


def test_cut_while_it_thinks(loader: Loader, model: edgellm.Model) -> None:
    lets_say(loader, model, "Hm, France is a country.")
    result = model.chat(QUESTION, temperature=0, max_tokens=5)
    assert result.text == "" and result.stop_reason == "length" and "Hm, France is a country.".startswith(result.thinking)
    assert result.thinking


def test_a_model_that_does_not_think(loader: Loader, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "plain.gguf", tokenizer="bpe", template="{{ messages[0].content }}", n_layers=1)
    with loader.load(path) as model:
        assert model.thinking == "no"
        with pytest.raises(OptionError, match="think=True"):
            model.chat(QUESTION, think=True, temperature=0)
        lets_say(loader, model, "<think>a</think>b")
        assert model.chat(QUESTION, think=False, temperature=0).text == "<think>a</think>b"


def test_a_model_with_channels(loader: Loader, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m.content.split('<channel|>')[-1] }}\n{% endfor %}"
        "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"
    )
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", template=template, n_layers=1, context=256)
    with loader.load(path, context=256) as model:
        assert model.thinking == "optional"
        lets_say(loader, model, "<|channel>thought\nHm.\n<channel|>Paris.")
        answer = model.chat(QUESTION, think=True, temperature=0)
        assert (answer.thinking, answer.text) == ("Hm.", "Paris.")


@pytest.mark.parametrize("controls", [COMMAND_TOKENS, ()], ids=["tokens", "text"])
@pytest.mark.parametrize("opened", [True, False])
def test_command_thinks_and_answers_between_control_tokens(
    loader: Loader, tmp_path: Path, controls: tuple[str, ...], opened: bool
) -> None:
    template = (
        "{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}\n{% endfor %}{# <|END_THINKING|> "
        f"<|START_RESPONSE|> <|START_ACTION|> #}}{'<|START_THINKING|>' if opened else ''}"
    )
    path = tiny_model(
        tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", template=template, n_layers=1, context=1024, controls=controls
    )
    tool = {"name": "find", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}
    action = '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "find", "parameters": {"x": 1}}\n]<|END_ACTION|>'
    with loader.load(path, context=1024) as model:
        for tools in ([tool], None):
            for said, text in (("<|START_RESPONSE|>Paris.<|END_RESPONSE|>", "Paris."), ("Paris.", "Paris."), (action, "")):
                said = f"{'' if opened else '<|START_THINKING|>'}Hm.<|END_THINKING|>{said}"
                if tools or text:
                    lets_say(loader, model, said)
                    answer = model.chat(QUESTION, tools=tools, temperature=0, max_tokens=300)
                    assert (answer.thinking, answer.text, bool(answer.tool_calls)) == ("Hm.", text, not text)


@pytest.mark.parametrize("controls", [COMMAND_TOKENS, ()], ids=["tokens", "text"])
@pytest.mark.parametrize("thinks", [True, False])
def test_an_answer_with_a_form_may_begin_with_its_mark(
    loader: Loader, tmp_path: Path, controls: tuple[str, ...], thinks: bool
) -> None:
    """As the model was trained to; what is behind the mark is the form's alone, white space and other marks included."""
    template = (
        "{% for m in messages %}{{ m.content }}\n{% endfor %}{# <|END_THINKING|> <|START_RESPONSE|> #}"
        "{% if reasoning %}<|START_THINKING|>{% endif %}"
    )
    path = tiny_model(
        tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", template=template, n_layers=1, context=1024, controls=controls
    )
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    city = "Rome" if controls else "<|END_RESPONSE|>"
    forms: list[tuple[str, Any]] = [
        (f'{{"city":"{city}"}}', {"schema": schema}),
        (" Paris ", {"choices": [" Paris "]}),
        ("Paris.", {"regex": "[A-Z][a-z]+[.]"}),
        ("\nParis", {"grammar": 'start: "\\n" "Paris"'}),
    ]
    with loader.load(path, context=1024) as model:
        for text, form in forms:
            for mark in ("<|START_RESPONSE|>", *([""] if text.strip() == text or not thinks else [])):
                lets_say(loader, model, ("Hm.<|END_THINKING|>" if thinks else "") + mark + text)
                answer = model.chat(QUESTION, think=thinks, temperature=0, max_tokens=200, **form)
                assert (answer.text, answer.thinking, answer.stop_reason) == (text, "Hm." if thinks else "", "eog")
                said = model.tokenizer.decode(answer.token_ids, skip_special=False)
                assert said.endswith(mark + text) and answer.parsed == (json.loads(text) if "schema" in form else None)


def test_apriel_in_a_conversation(loader: Loader, tmp_path: Path) -> None:
    template = "{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}\n{% endfor %}" + FINAL_SOURCE + STEPS
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", template=template, n_layers=1, context=1024)
    calls = '<tool_calls>[{"name": "find", "arguments": {}}]</tool_calls>'
    with loader.load(path, context=1024) as model:
        for tools, said, text in ((None, "Paris.", "Paris."), (["find"], "Paris.", "Paris."), (["find"], calls, "")):
            lets_say(loader, model, f"Hm.\n[BEGIN FINAL RESPONSE]\n{said}")
            answer = model.chat(QUESTION, tools=[{"name": name} for name in tools or ()] or None, temperature=0, max_tokens=300)
            assert (answer.thinking, answer.text) == ("Hm.", text) and [call.name for call in answer.tool_calls] == ["find"] * (
                not text
            )
        lets_say(loader, model, "Hm." + "[BEGIN FINAL RESPONSE]" + '"yes"')
        answer = model.chat(QUESTION, choices=['"yes"', '"no"'], temperature=0, max_tokens=300)
        assert (answer.thinking, answer.text) == ("Hm.", '"yes"')
