"""Conversations in OpenAI's form, put in the shape that each template reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from vocabulary_cases import bpe_metadata, with_tokens

from edgellm.api.tools import toolbox
from edgellm.chat import ChatTemplate, encode_chat
from edgellm.chat.families import CallSplitter, find_format
from edgellm.chat.shape import TemplateShape
from edgellm.chat.tools import Tool
from edgellm.errors import OptionError, TemplateError
from edgellm.tokenizer import build_tokenizer

WEATHER = Tool("weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
ASK = {"role": "user", "content": "Rome?"}
ANSWER = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "sun"}
EACH = "{% for m in messages %}"
END = "{% endfor %}"
# Phi-4-mini's way: the tools are a text in the system message.
PHI = (
    EACH + "<|{{ m.role }}|>{{ m.content }}{% if m.role == 'system' and 'tools' in m and m['tools'] is not none %}"
    "{{ '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}<|end|>" + END
)
# SmolLM3's: an option of another name.
SMOL = (
    "{% if xml_tools %}<tools>{% for t in xml_tools[:] %}{{ t | string }}{% endfor %}</tools>{% endif %}"
    + EACH
    + "{{ m.content }}|"
    + END
)


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}], **more}


def shape(source: str) -> TemplateShape:
    return TemplateShape(ChatTemplate(source, name="the template"))


def test_tools_are_shown_to_models_as_their_templates_have_them() -> None:
    tools = [WEATHER.message]
    assert shape(PHI).render([ASK], tools).text.count('<|tool|>[{"name": "weather", "description": "The weather"') == 1
    assert shape(PHI).render([{"role": "system", "content": "Hm."}, ASK], tools).text.startswith('<|system|>Hm.<|tool|>[{"name"')
    assert find_format(PHI).name == "phi"
    assert "<tools>{'type': 'function'" in shape(SMOL).render([ASK], tools).text
    assert [shape(source).tools for source in (PHI, SMOL, "{{ tools }}", "{# tools #}", "x")] == [
        "system",
        "xml_tools",
        "tools",
        None,
        None,
    ]
    with pytest.raises(TemplateError, match="doesn't support tools"):
        toolbox([WEATHER._asdict()], ChatTemplate("{# tools #}{{ messages[0].content }}"))


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
@pytest.mark.parametrize(
    "source",
    [
        EACH + "{{ m['content'] + '' }}{{ m.tool_calls | tojson if m.tool_calls }}" + END,  # a text alone
        EACH + "{% if m.content is not none %}<{{ m.content + '' }}>{% endif %}{{ m.tool_calls | tojson if m.tool_calls }}" + END,
        EACH + "{{ 1 / 0 if 'content' in m and m.tool_calls }}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}" + END,
    ],
)
def test_a_message_with_calls_needs_no_content(source: str, content: dict[str, Any]) -> None:
    for arguments in ({"city": "Rom\u00e9"}, json.dumps({"city": "Rom\u00e9"})):
        text = shape(source).render([ASK, call(arguments, **content), ANSWER], None).text
        assert '"arguments": {"city": "Rom\u00e9"}' in text and "None" not in text and "<>" not in text


def test_arguments_are_texts_where_the_template_joins_them() -> None:
    source = EACH + "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}" + END
    for arguments in ({"city": "Rome"}, '{"city": "Rome"}'):
        assert shape(source).render([call(arguments, content="")], None).text == 'weather {"city": "Rome"}'


def test_parts_of_text_are_joined_where_the_template_reads_none() -> None:
    parts = [{"type": "text", "text": "one, "}, {"type": "text", "text": "two"}]
    talk = [{"role": "user", "content": parts}]
    for source in (
        EACH + "{{ m.content }}" + END,
        EACH + "{{ m.content + '' }}" + END,
        EACH + "{{ m.content | tojson }}" + END,
        EACH + "{% for p in m.content if p.type %}{{ p.text }}{% endfor %}{{ m.content if m.content is string }}" + END,
    ):
        assert shape(source).render(talk, None).text.strip('"') == "one, two"


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "'image_url'"),
        ({"type": "input_audio", "input_audio": {}}, "reads text only"),
        ({"type": "image"}, "reads text only"),
        ({"type": "input_text", "text": "one"}, "'input_text'"),
        ({"type": "text"}, "not text"),
        ({"type": 1}, "not text"),
        (1, "not text"),
    ],
)
def test_parts_that_are_no_text_are_refused(part: object, says: str) -> None:
    """Also by templates that show any content, or have a place for images."""
    talk = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "one"}, part]}]
    places = "{% for p in m.content %}{{ '<image>' if p.type == 'image' }}{% endfor %}"
    for source in (EACH + "{{ m.content }}" + END, EACH + places + END):
        with pytest.raises(OptionError, match=r"messages\[1\] has a part .*" + re.escape(says)):
            shape(source).render(talk, None)


def test_parts_that_a_template_knows_by_their_type_reach_it() -> None:
    talk = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "one"}]}]
    source = EACH + "{% for p in m.content %}{{ p.thinking if p.type == 'thinking' else p.text }}{% endfor %}" + END
    assert shape(source).render(talk, None).text == "Hm.one"


def test_reasoning_takes_the_place_of_words_where_both_are_refused() -> None:
    source = (
        EACH
        + (
            "{{ raise_exception('not both') if m.tool_calls and m.content and m.thinking }}{{ m.content }}{{ m.thinking }}"
            "{{ m.tool_calls | tojson if m.tool_calls }}"
        )
        + END
    )
    text = shape(source).render([ASK, call({}, content="Let me see.", reasoning_content="Hm."), ANSWER], None).text
    assert "Hm." in text and "Let me see." not in text
    assert "Let me see." in shape(source).render([ASK, call({}, content="Let me see."), ANSWER], None).text


@pytest.mark.parametrize(
    ("mark", "opener", "closer"),
    [
        ("<tool_call>", "<tool_call>", "</tool_call>"),
        ("<|tool_call|>", "<|tool_call|>", ""),
        ("<|tool_list_start|>", "<|tool_call_start|>", "<|tool_call_end|>"),
        ("<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    ],
)
def test_calls_that_a_template_leaves_out_are_written_as_the_model_wrote_them(mark: str, opener: str, closer: str) -> None:
    source = "{# " + mark + " #}{{ tools | tojson }}" + EACH + "<|im_start|>{{ m.content }}<|im_end|>" + END
    city = {"city": "R </tool_call><|im_end|> \u00e9"}
    controls = dict.fromkeys(
        (
            "<tool_call>",
            "</tool_call>",
            "<|tool_call|>",
            "<|tool_call_start|>",
            "<|tool_call_end|>",
            "<|START_ACTION|>",
            "<|END_ACTION|>",
        ),
        3,
    )
    tokenizer = build_tokenizer(with_tokens(bpe_metadata(), *controls.items()), file="x")
    rendered = shape(source).render([ASK, call(json.dumps(city), content="Well."), ANSWER], [WEATHER.message])
    ids = encode_chat(tokenizer, rendered)
    found = [tokenizer.token_text(i) for i in ids if tokenizer.is_control(i)]
    assert found == [
        "<|im_start|>",
        "<|im_end|>",
        "<|im_start|>",
        opener,
        *([closer] if closer else []),
        "<|im_end|>",
        "<|im_start|>",
        "<|im_end|>",
    ]
    splitter = CallSplitter(find_format(source), [WEATHER])
    said = rendered.text.split("<|im_start|>")[2].removesuffix("<|im_end|>")
    pushed, flushed = splitter.push(said), splitter.flush()
    assert pushed[0] + flushed[0] == "Well.\n" and [each.arguments for each in pushed[1] + flushed[1]] == [city]


def test_calls_get_the_ids_that_a_model_knows() -> None:
    source = EACH + (
        "{{ m.tool_call_id }}{% for c in m.tool_calls %}<|tool_calls_section_begin|>{{ c.id }}"
        "{{ c.function.arguments | tojson }}{% endfor %};" + END
    )
    own = call({}, content="")
    own["tool_calls"][0]["id"] = "functions.weather:7"
    talk = [own, {**ANSWER, "tool_call_id": "functions.weather:7"}, call({}, content=""), ANSWER, {**ANSWER, "tool_call_id": "x"}]
    text = shape(source).render(talk, None).text
    assert (
        text.replace("<|tool_calls_section_begin|>", "")
        == "functions.weather:7{};functions.weather:7;functions.weather:1{};functions.weather:1;x;"
    )
    for faulty in (
        [{"role": "assistant", "content": "", "tool_calls": [3, {"id": []}, {"function": {"name": 3}}]}],
        [{"role": "assistant", "content": "", "tool_calls": 3}, "x"],
    ):
        with pytest.raises(TemplateError):
            shape(source).render(faulty, None)  # type: ignore[arg-type]  # that is the point


def test_a_plan_stands_before_the_calls_of_command() -> None:
    source = EACH + "{{ m.tool_plan if m.tool_calls else m.content }}{{ m.tool_calls | tojson if m.tool_calls }};" + END
    text = shape(source).render([ASK, call({}, content="", reasoning_content="I ask."), ANSWER], None).text
    assert text.startswith("Rome?;I ask.[{")


def test_developers_are_heard() -> None:
    talk = [{"role": "developer", "content": "Be brief."}, ASK]
    for source in (
        EACH + "{% if m.role in ('system', 'user') %}{{ m.role + m.content }};{% endif %}" + END,
        EACH + "{{ raise_exception('role') if m.role == 'developer' }}{{ m.role + m.content }};" + END,
    ):
        assert shape(source).render(talk, None).text == "systemBe brief.;userRome?;"
    assert shape(EACH + "{{ m.role }};" + "{{ m.content }}" + END).render(talk, None).text.startswith("developer;")


def test_what_is_no_conversation_is_refused_as_before() -> None:
    for messages in ([], ["hi"], [call({"city": object()})], [{"role": "user", "content": [3]}, {"role": "user", "content": b"x"}]):
        with pytest.raises((TemplateError, OptionError)):
            shape(EACH + "{{ m.content }}{{ m.tool_calls }}" + END).render(messages, None)  # type: ignore[arg-type]  # so


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "source",
    [
        EACH + "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}" + END,
        EACH + "{{ m.content }}{% for c in m.tool_calls %}{{ '' + c.function.arguments }}{% endfor %}" + END,
        "{{ tools }}<|tool_call|>" + EACH + "{{ m.content }}" + END,
    ],
    ids=["objects", "texts", "written"],
)
def test_numbers_that_json_does_not_have_are_refused(source: str, number: float) -> None:
    talks = [
        [ASK, call(arguments), ANSWER]
        for given in ({"city": "Rome", "n": [1.5, {"x": number}]}, {"city": number})
        for arguments in (given, json.dumps(given))
    ]
    talks += [[ASK, call({"city": "Rome"}), {**ANSWER, "content": content}] for content in (number, {"degrees": number}, [number])]
    for talk in talks:
        with pytest.raises(TemplateError, match=f"holds the number {number}, which JSON does not have; give None or a text"):
            shape(source).render(talk, [WEATHER.message])
    assert shape(source).render([ASK, call({"city": 1.5}), {**ANSWER, "content": "NaN"}], [WEATHER.message]).text.endswith("NaN")


def test_published_templates_take_calls_as_programs_send_them(shared: Path) -> None:
    known = 0
    for path in sorted((shared / "templates").glob("*.jinja")):
        asked = TemplateShape(ChatTemplate(path.read_text(encoding="utf-8"), bos="<s>", eos="</s>", name=path.stem))
        if asked.tools is None:
            continue
        known += 1
        text = asked.render([ASK, call('{"city": "Paris"}', content=None), ANSWER], [WEATHER.message]).text
        assert "Paris" in text and '\\"Paris' not in text and "sun" in text, path.stem
    assert known >= 10


FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('not at the beginning') }}"
    "{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def test_system_messages_in_the_middle_reach_templates_that_refuse_them() -> None:
    first, assistant = shape(FIRST_ONLY), {"role": "assistant", "content": "Hi"}
    talk = [system("A"), system("B"), ASK, assistant, system("C"), system("D"), ASK]
    assert (
        first.render(talk, None).text == "<|system|>A\n\nB<|user|>Rome?<|assistant|>Hi<|user|>[System: C]\n\n[System: D]\n\nRome?"
    )
    assert first.render([ASK, system("C")], None).text == "<|user|>Rome?\n\n[System: C]"
    assert first.render([ASK, assistant, system("C")], None).text == "<|user|>Rome?<|assistant|>Hi<|user|>[System: C]"
    parts = {"role": "user", "content": [{"type": "text", "text": "Rome?"}]}
    assert first.render([ASK, assistant, system("C"), parts], None).text.endswith("<|user|>[System: C]\n\nRome?")
    anywhere = shape(EACH + "<|{{ m.role }}|>{{ m.content }}" + END)
    assert anywhere.render(talk, None).text.count("<|system|>") == 4


def test_published_templates_take_system_messages_in_the_middle(shared: Path) -> None:
    paths = sorted((shared / "templates").rglob("*.jinja"))
    talk = [system("Be brief."), ASK, {"role": "assistant", "content": "Hi"}, ASK]
    taken = 0
    for path in paths:
        each = TemplateShape(ChatTemplate(path.read_text(encoding="utf-8"), name=path.name))
        try:
            plain = each.render(talk, None).text
        except (TemplateError, OptionError):
            continue
        if "Be brief." not in plain:
            continue
        taken += 1
        assert "zqlate" in each.render([*talk[:3], system("zqlate"), ASK], None).text, path.name
    assert taken > len(paths) // 3
