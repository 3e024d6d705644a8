"""Functionary 3.2: whom the parts of an answer are for is told however it is cut, from the beginning that the prompt has opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from call_formats import accepts
from tiny_models import tiny_model

import edgellm
from edgellm.api.tools import toolbox
from edgellm.chat import ChatTemplate, shape_of
from edgellm.chat.families import find_format
from edgellm.chat.tools import Tool

TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:
{% if m.role == 'assistant' %}{% if m.content %}{{ '>>>all\n' + m.content }}{% endif %}{% for c in m.tool_calls %}\
{{ '>>>' + c.function.name + '\n' + c.function.arguments }}{% endfor %}{% else %}{{ m.content }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ 'assistant:\n>>>' }}{% endif %}"""
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"name": "weather", "parameters": PARAMETERS}, {"name": "all_notes", "parameters": {}}]
ASK = [{"role": "user", "content": "hello"}]
ROME = 'weather\n{"city": "Rome"}'
CASES: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [  # (answer, text, calls)
    ("all\nHello.", "Hello.", []),
    ("all\n", "", []),
    (ROME, "", [("weather", {"city": "Rome"})]),
    (f"all\nI look.\n>>>{ROME}\n", "I look.\n", [("weather", {"city": "Rome"})]),
    ('all_notes\n{"all\\n": 1}', "", [("all_notes", {"all\n": 1})]),
    (
        f'{ROME}\n>>>all_notes\n{{"a": ">>>weather\\n"}}>>>{ROME}',
        "",
        [("weather", {"city": "Rome"}), ("all_notes", {"a": ">>>weather\n"}), ("weather", {"city": "Rome"})],
    ),
    ('all_notes\n{"a": ">>>weather"}', "", [("all_notes", {"a": ">>>weather"})]),
    ("", "", []),
    ("al", "al", []),
    ("weather", "weather", []),
    ("weather\n", "weather\n", []),
    ("weather\n{broken", "weather\n{broken", []),
    ("Paris.", "Paris.", []),
    ("all\n>>> 1 + 1\n2\n>>>other\n{}", ">>> 1 + 1\n2\n>>>other\n{}", []),
    ("other\n{}", "other\n{}", []),
    ("weather\n[]>>>all_notes\n{}", "weather\n[]", [("all_notes", {})]),
    ("all\nall\nb", "all\nb", []),
    ("all\nweather\n{}", "weather\n{}", []),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_recipients_are_recognised_however_the_text_is_cut(
    case: tuple[str, str, list[tuple[str, dict[str, Any]]]], size: int
) -> None:
    said, shown, wanted = case
    box = toolbox(TOOLS, ChatTemplate(TEMPLATE))
    assert box is not None and box.format.name == "functionary-v3.2"
    splitter = box.splitter()
    found = [*(splitter.push(said[at : at + size]) for at in range(0, len(said), size)), splitter.flush()]
    assert "".join(text for text, _ in found) == shown
    assert [(call.name, call.arguments) for _, calls in found for call in calls] == wanted


def test_a_text_is_shown_as_soon_as_it_is_known_to_be_one() -> None:
    box = toolbox(TOOLS, ChatTemplate(TEMPLATE))
    assert box is not None
    splitter = box.splitter()
    shown = [splitter.push(piece)[0] for piece in ("al", "l", "\n", "He", "llo>", "> ", "1")]
    assert shown == ["", "", "", "He", "llo", ">> ", "1"]
    assert splitter.push(f">>>{ROME}>>")[1] == [] and [call.name for call in splitter.push(">all_notes")[1]] == ["weather"]


def test_arguments_of_every_call_follow_their_schema() -> None:
    tools = [Tool("weather", "", PARAMETERS), Tool("all_notes", "", {"type": "object"})]
    given_tools = find_format(TEMPLATE), tools
    for said in (
        "all\n",
        "all\n>>> 1\n1",
        ROME,
        f"all\nWell.\n>>>{ROME}\n>>>all_notes\n{{}}",
        f"all_notes\n{{}}>>>{ROME}",
        "Hello.",
        f"{ROME}\nThen.",
    ):
        assert accepts(*given_tools, said), said
    bad = 'weather\n{"city": "Bonn"}'
    for said in (bad, f"all\nWell.>>>{bad}", f"{ROME}>>>{bad}"):
        assert not accepts(*given_tools, said), said


def test_a_prompt_without_tools_asks_for_text() -> None:
    shape = shape_of(ChatTemplate(TEMPLATE))
    assert shape.render(ASK, None).text.endswith("assistant:\n>>>all\n") and shape.render(ASK, []).text.endswith(">>>all\n")
    assert shape.render(ASK, [{"type": "function", "function": TOOLS[0]}]).text.endswith("assistant:\n>>>")
    assert shape.render(ASK, None, add_generation_prompt=False).text.endswith("user:\nhello")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[edgellm.Model]:
    path = tiny_model(
        tmp_path_factory.mktemp("recipients") / "m.gguf",
        "llama",
        "F16",
        tokenizer="bpe",
        n_layers=1,
        context=1024,
        template=TEMPLATE,
    )
    with edgellm.load(path, context=1024) as model:
        yield model


def test_a_chat_with_recipients(model: edgellm.Model) -> None:
    called = 0
    for seed in range(8):
        options: dict[str, Any] = {"tool_choice": "required" if seed % 2 else "auto", "seed": seed, "max_tokens": 80}
        answer = model.chat(ASK, tools=TOOLS, temperature=1.2, top_k=0, **options)
        assert not answer.text.startswith("all\n")
        with model.chat(ASK, tools=TOOLS, temperature=1.2, top_k=0, stream=True, **options) as stream:
            assert "".join(event.text for event in stream.events() if event.kind == "text") == answer.text
            assert [(call.name, call.arguments) for call in stream.result.tool_calls] == [
                (call.name, call.arguments) for call in answer.tool_calls
            ]
        for call in answer.tool_calls:
            called += 1
            assert call.name in ("weather", "all_notes")
            if call.name == "weather":
                assert call.arguments["city"] in ("Rome", "Oslo") and isinstance(call.arguments.get("days", 0), int)
    assert called
    assert model.chat(ASK, choices=["yes", "no"], seed=0).text in ("yes", "no")
