"""Thinking before the answer: told apart wherever the text is cut, switched by templates, an event of its own in the library."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_model import split_thinking
from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.chat.answer_marks import ANSWER, RESPONSE
from edgellm.chat.fallback import BUILT_IN
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
