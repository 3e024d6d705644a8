"""Thinking before the answer: told apart wherever the text is cut, switched by templates, an event of its own in the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_backend import Loader, toys
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

import edgellm
from edgellm.chat.answer_marks import ANSWER, RESPONSE
from edgellm.chat.fallback import BUILT_IN
from edgellm.chat.shape import Shape
from edgellm.chat.soft_switch import with_soft_switch
from edgellm.chat.templates import ChatTemplate
from edgellm.chat.thinking import (
    BRACKETS,
    CHANNEL,
    COMMAND,
    FINAL,
    INNER,
    SEED,
    THINK,
    Marks,
    ThinkingSplitter,
    marks_of,
    opens_thinking,
    reads_soft_switch,
    split_thinking,
    switch,
    thinking_of,
)
from edgellm.errors import OptionError

CASES = [  # (opened by the prompt, text, thinking, answer)
    (False, "Paris.", "", "Paris."),
    (False, "<think>\nHm.\n\nYes.\n</think>\n\nParis.", "Hm.\n\nYes.", "Paris."),
    (False, "\n <think>a</think>b", "a", "b"),
    (False, "<think>\n\n</think>\n\nParis.", "", "Paris."),
    (True, "Hm.\n</think>\n\nParis.\n", "Hm.", "Paris.\n"),
    (True, "never closed </th", "never closed </th", ""),
    (True, "a </b> < / think> </think> b", "a </b> < / think>", "b"),
    (False, "Write <think>x</think> so.", "", "Write <think>x</think> so."),
    (False, "<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    (False, " <thinking> is a word", "", " <thinking> is a word"),
    (False, "  <thi", "", "  <thi"),
    (False, "</think>", "", "</think>"),
    (False, "", "", ""),
]


@pytest.mark.parametrize("inside, text, thinking, answer", CASES)
def test_thinking_is_told_apart_wherever_it_is_cut(inside: bool, text: str, thinking: str, answer: str) -> None:
    assert split_thinking(text, inside=inside) == (thinking, answer)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert parts([text[:first], text[first:second], text[second:]], inside) == (thinking, answer)
    assert parts(list(text), inside) == (thinking, answer)


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<|channel>thought\nHm.\n<channel|>Paris.", "Hm.", "Paris."),
        ("<|channel>thought\n<channel|>Paris.", "", "Paris."),
        ("<|channel>though", "", "<|channel>though"),
        ("Paris <channel|>", "", "Paris <channel|>"),
    ],
)
def test_channels_of_gemma_4(text: str, thinking: str, answer: str) -> None:
    for cut in range(len(text) + 1):
        splitter = ThinkingSplitter(inside=False, marks=CHANNEL)
        told = [splitter.push(text[:cut]), splitter.push(text[cut:]), splitter.flush()]
        assert ("".join(one for one, _ in told), "".join(one for _, one in told)) == (thinking, answer)


def test_marks_of_magistral_and_seed_oss() -> None:
    assert marks_of("First think: [THINK]...[/THINK]") == BRACKETS and marks_of("{% set end = '</seed:think>' %}") == SEED
    assert split_thinking("[THINK]Hm.[/THINK]Paris.", marks=BRACKETS) == ("Hm.", "Paris.")
    assert split_thinking("<seed:think>\nHm.\n</seed:think>Paris.", marks=SEED) == ("Hm.", "Paris.")
    assert thinking_of("[THINK][/THINK]") == "always"


WRAPPED = [  # (text, thinking, answer)
    ("<think>a</think>\n<response>\nParis.\n</response>\n", "a", "Paris."),
    ("<think>a</think>Paris.", "a", "Paris."),
    ("<response>Paris </response>", "", "Paris"),
    ("\n <response> </response>", "", ""),
    ("<think>a</think><response>a <b> </resp onse></response>\n\n# Sources", "a", "a <b> </resp onse>\n\n# Sources"),
    ("<think>a</think><response>Paris. </respo", "a", "Paris. </respo"),
    ("<think>a</think> <resp", "a", "<resp"),
    ("Say <response>x</response> so.\n", "", "Say <response>x</response> so.\n"),
    ("<responses>\n", "", "<responses>\n"),
    ("<response>a</response><response>b</response> ", "", "a<response>b</response> "),
    (" \n", "", " \n"),
]


@pytest.mark.parametrize("text, thinking, answer", WRAPPED)
def test_marks_around_the_answer_are_taken_off_wherever_it_is_cut(text: str, thinking: str, answer: str) -> None:
    marks = THINK._replace(answer=RESPONSE)
    cuts = [
        [text[:first], text[first:second], text[second:]]
        for first in range(len(text) + 1)
        for second in range(first, len(text) + 1)
    ]
    for pieces in [[text], list(text), *cuts]:
        assert parts(pieces, False, marks) == (thinking, answer)


def test_which_answers_stand_between_marks() -> None:
    told = {
        "<think></think> <response></response>": RESPONSE,
        "</think><answer></answer>": ANSWER,
        "<|extra_4|><think></think>": ANSWER,
        "</think> a <response>": None,
        "<think></think>": None,
    }
    for source, answer in told.items():
        marks = marks_of(source)
        assert marks is not None and marks.answer == answer and set(answer or ()) <= set(marks.shown)


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<|inner_prefix|>Hm.<|inner_suffix|>Paris.", "Hm.", "Paris."),
        ("<|inner_prefix|>Hm. <|tools_prefix|>[]<|tools_suffix|>", "Hm.", "<|tools_prefix|>[]<|tools_suffix|>"),
        ("<|inner_prefix|>Hm. <|tools_pre", "Hm. <|tools_pre", ""),
    ],
)
def test_calls_end_the_thinking_of_apertus(text: str, thinking: str, answer: str) -> None:
    marks = marks_of("{% set inner = '<|inner_suffix|>' %}{{ enable_thinking }}")
    assert marks == INNER and {"<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>"} <= set(marks.shown)
    for cut in range(len(text) + 1):
        assert parts([text[:cut], text[cut:]], False, marks) == (thinking, answer)


@given(st.lists(st.sampled_from(["<", "<think>", "</think>", "</", "think", ">", " ", "\n", "a", "<thi", "nk>"])), st.booleans())
@settings(deadline=None)
def test_pieces_joined_are_the_whole(pieces: list[str], inside: bool) -> None:
    assert parts(pieces, inside) == split_thinking("".join(pieces), inside=inside)


def parts(pieces: list[str], inside: bool, marks: Marks = THINK) -> tuple[str, str]:
    splitter = ThinkingSplitter(inside=inside, marks=marks)
    told = [*map(splitter.push, pieces), splitter.flush()]
    return "".join(thinking for thinking, _ in told), "".join(answer for _, answer in told)


def test_nothing_is_held_back_that_cannot_become_a_marker() -> None:
    splitter = ThinkingSplitter(inside=False)
    assert splitter.push("<think>") == ("", "")
    assert splitter.push("a b") == ("a b", "")
    assert splitter.push(" <") == ("", "")
    assert splitter.push("c") == (" <c", "")
    assert splitter.push("</think>d") == ("", "d")
    assert splitter.push("<") == ("", "<")


@pytest.mark.parametrize(
    "source, thinking",
    [
        ("{% if enable_thinking is false %}<think></think>{% endif %}", "optional"),
        ("{%- if thinking %}between <think></think>{% endif %}", "optional"),
        ("{{ content.split('</think>')[-1] }}, a thinking model", "always"),
        ("{{ messages[0].content.split('<channel|>')[-1] }}{% if enable_thinking %}<|think|>{% endif %}", "optional"),
        ("{% set ns = namespace(enable_thinking=true) %}{% if ns.enable_thinking %}<think></think>{% endif %}", "always"),
        ("{% set enable_thinking = true %}{% if not enable_thinking %}<think></think>{% endif %}", "always"),
        ("{% set ns = namespace(enable_thinking=enable_thinking) %}<think></think>", "optional"),
        ("{% set enable_thinking = enable_thinking if enable_thinking is defined else True %}<think></think>", "optional"),
        ("{% set ns = namespace(enable_thinking=true) %}{% if '/no_think' in m.content %}{% endif %}<think></think>", "optional"),
        ("{% if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}<think></think>", "optional"),
        ("{{ messages[0].content }}", "no"),
        *((source, "no") for source in BUILT_IN.values()),
    ],
)
def test_what_a_template_tells(source: str, thinking: str) -> None:
    assert thinking_of(source) == thinking


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Paris.<|END_RESPONSE|>", "Hm.", "Paris."),
        ("<|START_RESPONSE|>Paris.<|END_RESPONSE|>\n", "", "Paris."),
        ("<|START_RESPONSE|>Par", "", "Par"),
        ("Paris.", "", "Paris."),
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[]<|END_ACTION|>", "Hm.", "<|START_ACTION|>[]<|END_ACTION|>"),
        ("<|START_THINKING|>Hm. <|START_ACTION|>[]<|END_ACTION|>", "Hm.", "<|START_ACTION|>[]<|END_ACTION|>"),
    ],
)
def test_thinking_and_answers_of_command(text: str, thinking: str, answer: str) -> None:
    source = "{{ '<|START_THINKING|>' + m.tool_plan + '<|END_THINKING|>' }}{{ '<|START_RESPONSE|>' + m.content }}"
    marks = marks_of(source)
    assert marks is not None and marks.open == COMMAND.open and {"<|START_RESPONSE|>", "<|END_RESPONSE|>"} <= set(marks.shown)
    for cut in range(len(text) + 1):
        assert parts([text[:cut], text[cut:]], False, marks) == (thinking, answer)
    assert thinking_of(source) == "always" and thinking_of("reasoning " + source) == "always"
    for test in (
        "{% set reasoning = reasoning if reasoning is not undefined else true %}",
        "{%- if not reasoning -%}",
        "{% if tools and reasoning %}",
    ):
        assert thinking_of(source + test) == "optional"
    assert thinking_of(source + "{% if m.reasoning or m['reasoning'] %}") == "always"
    assert marks_of("<|END_THINKING|><|START_TEXT|>") == COMMAND._replace(answer=("<|START_TEXT|>", "<|END_TEXT|>"))


FINAL_SOURCE = "{# ... the final response after [BEGIN FINAL RESPONSE]. <tool_calls>[...]</tool_calls> #}"
STEPS = "Here are my reasoning steps:\n"


@pytest.mark.parametrize("prompt", [f"<|begin_assistant|>\n{STEPS}", "<|assistant|>\n"])  # of Apriel 1.6 and 1.5
@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("Hm. [BEGIN FINAL RESPONSE\n[BEGIN FINAL RESPONSE]\nParis.\n", "Hm. [BEGIN FINAL RESPONSE", "Paris.\n"),
        (f"{STEPS}Hm.\n\n[BEGIN FINAL RESPONSE]\nParis [END].\n[END FINAL RESPONSE]\n", f"{STEPS}Hm.", "Paris [END]."),
        ("[BEGIN FINAL RESPONSE]Paris. [END FINAL", "", "Paris. [END FINAL"),
        ("Hm. [BEGIN FINAL", "Hm. [BEGIN FINAL", ""),
        ("a[BEGIN FINAL RESPONSE]b [BEGIN FINAL RESPONSE] [END FINAL RESPONSE] c", "a", "b [BEGIN FINAL RESPONSE] c"),
        ("Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[]</tool_calls>", "Hm.", "<tool_calls>[]</tool_calls>"),
        ("Hm.\n<tool_calls>[]</tool_calls>", "Hm.", "<tool_calls>[]</tool_calls>"),
    ],
)
def test_apriel_thinks_before_its_final_response(prompt: str, text: str, thinking: str, answer: str) -> None:
    marks = marks_of(FINAL_SOURCE)
    assert marks == FINAL and thinking_of(FINAL_SOURCE) == "always" and opens_thinking(prompt, marks) and "" not in marks.shown
    cuts = [
        [text[:first], text[first:second], text[second:]]
        for first in range(len(text) + 1)
        for second in range(first, len(text) + 1)
    ]
    for pieces in [[text], list(text), *cuts]:
        assert parts(pieces, True, marks) == (thinking, answer)


def test_calls_end_the_thinking_of_kimi() -> None:
    source = "{% if thinking is defined and thinking is false %}<think></think>{% endif %}<|tool_calls_section_begin|>"
    marks = marks_of(source)
    assert marks is not None and thinking_of(source) == "optional"
    assert parts(["Hm. <|tool_calls_se", "ction_begin|>x"], True, marks) == ("Hm.", "<|tool_calls_section_begin|>x")


def test_calls_end_the_thinking_of_deepseek() -> None:
    marks = marks_of("{% set mark = '｜DSML｜' %}<think></think>")
    assert marks is not None
    for name in ("function_calls", "tool_calls"):
        assert parts(["Hm.\n\n<｜DS", f"ML｜{name}>x"], True, marks) == ("Hm.", f"<｜DSML｜{name}>x")
    assert parts(["Hm.\n\n<｜DS", "ML｜>x</think>y"], True, marks) == ("Hm.\n\n<｜DSML｜>x", "y")


def test_a_switch_that_is_not_there_is_refused() -> None:
    assert switch("no", None) == switch("always", None) == switch("no", False) == switch("always", True) == {}
    assert switch("optional", False) == {"enable_thinking": False, "thinking": False, "reasoning": False}
    with pytest.raises(OptionError, match="think=True"):
        switch("no", True)
    with pytest.raises(OptionError, match="think=False"):
        switch("always", False)


@pytest.mark.parametrize(
    "name, thinking, opened",
    [  # opened: (by default, think=True, think=False)
        ("Qwen-Qwen3-0.6B", "optional", (False, False, False)),
        ("Qwen3.5-4B", "optional", (True, True, False)),
        ("HuggingFaceTB-SmolLM3-3B", "optional", (False, False, False)),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "optional", (False, True, False)),
        ("ibm-granite-granite-3.3-2B-Instruct", "optional", (False, False, False)),
        ("meta-llama-Llama-3.2-3B-Instruct", "no", (False, None, False)),
        ("openai-gpt-oss-120b", "always", (False, False, None)),
        ("google-gemma-4-31B-it", "optional", (False, False, False)),
    ],
)
def test_published_templates(shared: Path, name: str, thinking: str, opened: tuple[bool | None, ...]) -> None:
    source = (shared / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    assert thinking_of(source) == thinking
    for think, wanted in zip((None, True, False), opened, strict=True):
        if wanted is not None:
            rendered = template.render([{"role": "user", "content": "Hi <think>"}], **switch(thinking_of(source), think))
            assert opens_thinking(rendered.text, marks_of(source) or THINK) is wanted


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
    shape, user = Shape(ChatTemplate(source)), {"role": "user", "content": "Hi"}
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
