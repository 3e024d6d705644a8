"""Calls whose arguments stand between tags: told by templates, read back as templates write them, names that they cannot hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from call_formats import BY_NAME, MARKS, Begins, accepts, template
from tiny_models import tiny_model

import edgellm
from edgellm.chat import ChatTemplate
from edgellm.chat.families import CallSplitter, call_grammar, find_format
from edgellm.chat.families._format import literal
from edgellm.chat.shape import TemplateShape
from edgellm.chat.tools import Tool
from edgellm.errors import SchemaError

EACH = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}"
ITEMS = "{% for k, v in c.function.arguments.items() %}"
VALUE = "{{ v if v is string else v | tojson }}"
END = "{% endfor %}{% endfor %}"


def dsml(text: str) -> str:
    """A text with DeepSeek's mark for each @."""
    return text.replace("@", "｜DSML｜")


DSML = dsml(
    EACH + '<@function_calls>\n<@invoke name="{{ c.function.name }}">\n' + ITEMS + '<@parameter name="{{ k }}" string='
    """"{{ 'true' if v is string else 'false' }}">""" + VALUE + "</@parameter>\n{% endfor %}</@invoke>\n</@function_calls>" + END
)
TEMPLATES = {
    "deepseek-v3.2": DSML,
    "deepseek-v4": DSML.replace("function_calls", "tool_calls"),
    "glm": EACH
    + "<tool_call>{{ c.function.name }}\n"
    + ITEMS
    + "<arg_key>{{ k }}</arg_key>\n<arg_value>"
    + VALUE
    + "</arg_value>\n{% endfor %}</tool_call>"
    + END,
    "glm-4.7": EACH
    + "<tool_call>{{ c.function.name }}"
    + ITEMS
    + "<arg_key>{{ k }}</arg_key><arg_value>"
    + VALUE
    + "</arg_value>{% endfor %}</tool_call>"
    + END,
    "seed": EACH
    + "{{ '<seed:tool_call>' }}\n<function={{ c.function.name }}>\n"
    + ITEMS
    + "<parameter={{ k }}>"
    + VALUE
    + "</parameter>\n{% endfor %}</function>\n</seed:tool_call>"
    + END,
    "minimax": EACH
    + '<minimax:tool_call>\n<invoke name="{{ c.function.name }}">\n'
    + ITEMS
    + '<parameter name="{{ k }}">'
    + VALUE
    + "</parameter>\n{% endfor %}</invoke>\n</minimax:tool_call>"
    + END,
    "qwen3-coder": EACH
    + "<tool_call>\n<function={{ c.function.name }}>\n"
    + ITEMS
    + "<parameter={{ k }}>\n"
    + VALUE
    + "\n</parameter>\n{% endfor %}</function>\n</tool_call>"
    + END,
}
WRITE = Tool(
    "write",
    "",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}, "any": {}},
        "required": ["text"],
    },
)


@pytest.mark.parametrize(
    "text", ["def f():\n    return '</tool_call>'\n", "", " 3 ", "\n", '"quoted"', "</function>\n</tool_call>\n<b>"]
)
@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_are_read_as_templates_write_them(name: str, text: str) -> None:
    format = find_format(TEMPLATES[name])
    assert format.name == name
    arguments: dict[str, Any] = {"text": text, "lines": [1, 2], "any": {"x": [True, None]}}
    call = {"id": "a", "type": "function", "function": {"name": "write", "arguments": arguments}}
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    said = TemplateShape(ChatTemplate(TEMPLATES[name])).render(talk, None).text.removeprefix("Hi")
    assert accepts(format, [WRITE, Tool("write_all", "", WRITE.parameters)], said), said
    splitter = CallSplitter(format, [WRITE])
    (shown, calls), (rest, more) = splitter.push(said), splitter.flush()
    assert shown + rest == "" and [(each.name, each.arguments) for each in [*calls, *more]] == [("write", arguments)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_between_tags_keep_their_bounds(name: str) -> None:
    """A new line at both ends is taken off by some, and the text would be too short."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 3}}, "required": ["text"]}
    format, tools = find_format(TEMPLATES[name]), [Tool("write", "", schema)]
    for text, fits in (("\nb\n", name == "qwen3-coder" or name.startswith("deepseek")), ("ab", False), ("a\nb\n", True)):
        call = {"function": {"name": "write", "arguments": {"text": text}}}
        said = ChatTemplate(TEMPLATES[name]).render([{"role": "assistant", "content": "", "tool_calls": [call]}]).text
        assert accepts(format, tools, said) == fits, text


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("<function>\n<name>{{ tool.name }}</name> <tool_call>\n<function=example>", "qwen3-coder"),  # Nemotron 3, Step 3.5
        ("<tools></tools> <tool_call><function=example><parameter=a>b</parameter>", "qwen3-coder"),  # MiMo V2
        ('<role>SYSTEM</role> <tools></tools> <tool_call>\n{"name": <function-name>', "hermes"),  # Ling, Ring
        ("{%- set begin = '<seed:tool_call>' %} <function=example>", "seed"),
        ("{%- set begin = '<minimax:tool_call>' -%}", "minimax"),
        ("{%- set dsml = '｜DSML｜' %}<{{ dsml }}function_calls> <think>", "deepseek-v3.2"),
        ("<｜DSML｜tool_calls>", "deepseek-v4"),
        ("<tool_call>{function-name}\n<arg_key>{a}</arg_key>\n<arg_value>", "glm"),
        ("<tool_call>{function-name}<arg_key>{a}</arg_key><arg_value>", "glm-4.7"),
    ],
)
def test_families_are_recognised_by_their_templates_marks(source: str, name: str) -> None:
    assert find_format(source).name == name


def test_lists_and_mappings_may_be_pythons() -> None:
    said = "<function=write>\n<parameter=text>['a']</parameter>\n<parameter=lines>{}</parameter>\n</function>"
    for text, value in (("['it', True]", ["it", True]), ("{'a': None}", {"a": None}), ("[x]", "[x]"), ("[" * 250, "[" * 250)):
        block = f"<seed:tool_call>{said.format(text)}</seed:tool_call>"
        calls = CallSplitter(find_format(TEMPLATES["seed"]), [WRITE]).push(block)[1]
        assert [call.arguments for call in calls] == [{"text": "['a']", "lines": value}]


@pytest.mark.parametrize("bad", ["a<b", 'a"b', " a", "a\nb", ""])
def test_names_that_tags_cannot_hold_are_refused(bad: str) -> None:
    for tool in (Tool("f", "", {"type": "object", "properties": {bad: {}}}), Tool(bad, "", {"type": "object"})):
        with pytest.raises(SchemaError, match="which this model's calls cannot hold"):
            call_grammar(find_format(TEMPLATES["minimax"]), [tool], literal)


@pytest.mark.parametrize("bad", ['a"b', "a\nb", ""])
def test_names_that_dsml_cannot_hold_are_refused(bad: str) -> None:
    for tool in (Tool("f", "", {"type": "object", "properties": {bad: {}}}), Tool(bad, "", {"type": "object"})):
        with pytest.raises(SchemaError, match="which this model's calls cannot hold"):
            call_grammar(find_format(DSML), [tool], literal)


def invoked(*parameters: str) -> str:
    """A call of f with parameters, each as name, whether it is a text, and value."""
    parts = (each.split(" ", 2) for each in parameters)
    inner = "".join(f'\n<@parameter name="{name}" string="{text}">{value}</@parameter>' for name, text, value in parts)
    return dsml(f'<@function_calls>\n<@invoke name="f">{inner}\n</@invoke>\n</@function_calls>')


VALUES: list[tuple[Any, str, Any]] = [  # (schema, as it is written, value)
    ({"type": "string"}, "true  </b>\n 3 ", " </b>\n 3 "),
    ({"type": "string", "enum": ["", "a b"]}, "true ", ""),
    ({"const": "a b"}, "true a b", "a b"),
    ({"enum": [1, "a"]}, 'false "a"', "a"),
    ({"type": "string", "enum": [dsml("</@parameter>")]}, 'false "</@parameter>"', dsml("</@parameter>")),
    ({"type": "string", "format": "date"}, "true 2026-01-31", "2026-01-31"),
    ({"type": ["string", "null"]}, "false null", None),
    ({"type": ["string", "null"]}, "true null", "null"),
    ({}, "true 3", "3"),
    ({}, "false 3", 3),
    (True, "true [", "["),
    ({"type": "array"}, 'false ["</@parameter>"]', [dsml("</@parameter>")]),
    ({"type": "boolean"}, "false true", True),
    ({"type": "string", "minLength": 3}, "true abc", "abc"),
]


@pytest.mark.parametrize(("schema", "written", "value"), VALUES, ids=range(len(VALUES)))
def test_an_attribute_of_dsml_tells_texts_from_json(schema: Any, written: str, value: Any) -> None:
    format, tool = find_format(DSML), Tool("f", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    given_tools, said = (format, [tool]), invoked(f"x {written}")
    assert accepts(*given_tools, said), given_tools
    for size in (1, 5, 1000):
        splitter, calls = CallSplitter(format, [tool]), []
        for at in range(0, len(said), size):
            calls += splitter.push(said[at : at + size])[1]
        assert [each.arguments for each in calls] == [{"x": value}]


def test_dsml_keeps_to_the_schema() -> None:
    properties = {"n": {"type": "integer"}, "s": {"type": "string", "minLength": 2}, "o": {"type": "string", "enum": ["a"]}}
    tool = Tool("f", "", {"type": "object", "properties": properties, "required": ["n"]})
    given_tools = find_format(DSML), [tool]
    for given in (
        [],
        ["n true 3"],
        ["n false 3.5"],
        ["n false 3", "s true a"],
        ["n false 3", 's false "ab"'],
        ["n false 3", "o true b"],
    ):
        assert not accepts(*given_tools, invoked(*given)), given
    for given in (["n false 3"], ["n false 3", "o true a"], ["n false 3", "s true ab", "o true a"]):
        assert accepts(*given_tools, "So." + invoked(*given) + "\nThen."), given
    empty = find_format(DSML), [Tool("f", "", {"type": "object"})]
    assert accepts(*empty, invoked()) and accepts(*empty, invoked().replace('">\n', '">\n\n'))


WRITTEN = [  # (schema, as it is written between tags, value, what is not taken)
    ({"type": "string", "format": "date"}, "2024-02-29", "2024-02-29", "2023-02-29"),
    ({"type": "string", "format": "uuid", "contentEncoding": "7bit"}, "0" * 8 + "-0000-0000-0000-" + "0" * 12, None, "0-0"),
    ({"type": "string", "format": "ipv6"}, "::1", "::1", "1.2.3.4"),
    ({"type": "integer"}, "9" * 180, int("9" * 180), "9" * 181),
    ({"type": "number"}, "1e99", 1e99, "1e999"),
]


@pytest.mark.parametrize("case", WRITTEN, ids=range(len(WRITTEN)))
@pytest.mark.parametrize("name", ["qwen3-coder", "seed", "minimax", "glm"])
def test_texts_with_a_format_stand_without_quotes_and_numbers_are_such_as_python_holds(name: str, case: Any) -> None:
    schema, written, value, bad = case
    tool = Tool("f", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    head, tail = {
        "qwen3-coder": ("<tool_call>\n<function=f>\n<parameter=x>\n", "\n</parameter>\n</function>\n</tool_call>"),
        "seed": ("<seed:tool_call>\n<function=f>\n<parameter=x>", "</parameter>\n</function>\n</seed:tool_call>"),
        "minimax": (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="x">',
            "</parameter>\n</invoke>\n</minimax:tool_call>",
        ),
        "glm": ("<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"),
    }[name]
    assert accepts(BY_NAME[name], [tool], head + written + tail) and not accepts(BY_NAME[name], [tool], head + bad + tail)
    calls = CallSplitter(BY_NAME[name], [tool]).push(head + written + tail)[1]
    assert [call.arguments for call in calls] == [{"x": written if value is None else value}]


@pytest.mark.parametrize("name", ["hermes", "mistral", "llama3", "kimi"])
def test_numbers_in_calls_of_json_are_such_as_python_holds(tmp_path: Path, name: str) -> None:
    """The token with the digit or the exponent too many is masked."""
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=1024)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}}
    head = {
        "hermes": '<tool_call>{"name": "f", "arguments": {"x": ',
        "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"x": ',
        "llama3": '{"name": "f", "parameters": {"x": ',
        "kimi": '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": ',
    }[name]
    with edgellm.load(path, context=1024) as model:
        model._loaded.template = template(MARKS[name])
        for number in ("1e9999", "7" * 300):
            begins = Begins(model.tokenizer.encode_continuation(head + number))
            answer = model.chat([{"role": "user", "content": "x"}], tools=[tool], processors=[begins], seed=0, max_tokens=700)
            for call in answer.tool_calls:
                assert abs(call.arguments["x"]) < 1e300
            assert number not in answer.text


NESTED = {
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=s>\n{12}\n</parameter>\n<parameter=o>\n{",
    "seed": "<seed:tool_call>\n<function=f>\n<parameter=o>{",
    "minimax": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">[1</parameter>\n<parameter name="o">{',
    "glm": "<tool_call>f\n<arg_key>o</arg_key>\n<arg_value>{",
    "deepseek-v3.2": dsml('<@function_calls>\n<@invoke name="f">\n<@parameter name="o" string="false">{'),
    "gemma": "<|tool_call>call:f{o:{",
}


@pytest.mark.parametrize("name", NESTED)
def test_numbers_within_objects_between_tags_are_such_as_python_holds(tmp_path: Path, name: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=2048)
    inner = {"type": "object", "properties": {"x": {"type": "number"}, "n": {"type": "integer", "minimum": 0}}, "required": ["x"]}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"o": inner, "s": {"type": "string"}}, "required": ["o"]}}
    colon = "x:" if name == "gemma" else '"x": '
    with edgellm.load(path, context=2048) as model:
        model._loaded.template = template(MARKS[name])
        for number in ("1e9999", "7" * 300, "8" * 150):
            begins = Begins(model.tokenizer.encode_continuation(NESTED[name] + colon + number))
            answer = model.chat([{"role": "user", "content": "x"}], tools=[tool], processors=[begins], seed=0, max_tokens=700)
            written = model.tokenizer.decode(answer.token_ids, skip_special=False)
            assert (number in written) == (number == "8" * 150), written
