"""The grammars of tool calls: they allow what fits the schemas, and what they allow is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from call_formats import BY_NAME, MARKS, TOOLS, accepts, dsml, template

from edgellm.api.tools import toolbox
from edgellm.chat.families import CallSplitter, call_grammar
from edgellm.chat.families._format import literal
from edgellm.chat.tools import Tool, ToolCall
from edgellm.errors import SchemaError


def test_a_grammar_names_control_tokens_by_their_id() -> None:
    grammar = call_grammar(BY_NAME["lfm2"], TOOLS, lambda text: {"<|tool_call_start|>": "<[10]>"}.get(text, "<[11]>"))
    assert "<[10]>" in grammar and "<[11]>" in grammar and "tool_call_start" not in grammar


def fields(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
ODD = fields(["in-unit", "from", "a.b"], **{"in-unit": TEXT, "from": WHOLE, "a.b": {"type": "array", "items": WHOLE}})
ODD_CALL = {"in-unit": "x), y=']", "from": 1, "a.b": [1, -2]}
ANY = {"type": "object", "properties": {"v": {}, "l": {"type": "array"}}, "required": ["v"]}
PAIR = fields(["x"], x=WHOLE)
TAGGED = fields(
    ["e", "c", "o", "l"],
    e={"enum": ["</parameter>", "b"]},
    c={"type": "string", "const": '"x'},
    o={"type": "string", "enum": ["\na\n", "b"]},
    l={"type": "array", "items": TEXT},
)
TAGGED_CALL = {"e": "</parameter>", "c": '"x', "o": "\na\n", "l": ["</parameter>\n"]}
SEVERAL = {"anyOf": [fields(["a"], a=TEXT), {"allOf": [PAIR, fields(["y"], y=TEXT)]}]}
XML = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
GLM = "<arg_key>{}</arg_key><arg_value>{}</arg_value>"
DSML_CALL = dsml('<@{0}_calls>\n<@invoke name="f">\n<@parameter name="x" string="false">1</@parameter>\n</@invoke>\n</@{0}_calls>')
X_CALLS = {
    "seed": "<seed:tool_call>\n<function=f>\n<parameter=x>1</parameter>\n</function>\n</seed:tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="x">1</parameter>\n</invoke>\n</minimax:tool_call>',
    "glm": "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "glm-4.7": f"<tool_call>f{GLM.format('x', 1)}</tool_call>",
    "hermes": '<tool_call>\n{"name":"f","arguments":{"x":1}}\n</tool_call>',
    "gemma": "<|tool_call>call:f{x:1}<tool_call|>",
    "qwen3-coder": XML.format("<parameter=x>\n1\n</parameter>\n"),
    "granite": '<|tool_call|>[{"name":"f","arguments":{"x":1}}]',
    "lfm2": "<|tool_call_start|>[f(x=1)]<|tool_call_end|>",
    "mistral": '[TOOL_CALLS][{"name":"f","arguments":{"x":1}}]',
    "mistral-named": '[TOOL_CALLS]f[ARGS]{"x":1}',
    "nemotron": '<TOOLCALL>[{"name":"f","arguments":{"x":1}}]</TOOLCALL>',
    "xlam": '[{"name":"f","arguments":{"x":1}}]',
    "hunyuan": '<tool_calls>[{"name":"f","arguments":{"x":1}}]</tool_calls>',
    "phi": '<|tool_call|>[{"name":"f","arguments":{"x":1}}]<|/tool_call|>',
    "functionary": '<function=f>{"x":1}</function>',
    "functionary-v3.2": 'f\n{"x":1}',
    "gigachat-3": '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name":"f","arguments":{"x":1}}',
    "gigachat-3.1": '<|function_call|>{"name":"f","arguments":{"x":1}}',
    "apertus": '<|tools_prefix|>[{"f":{"x":1}}]<|tools_suffix|>',
    "internlm": '<|action_start|><|plugin|>\n{"name":"f","parameters":{"x":1}}<|action_end|>',
    "llama3": '{"name":"f","parameters":{"x":1}}',
    "pythonic": "[f(x=1)]",
    "harmony": '<|channel|>commentary to=functions.f<|message|>{"x":1}',
    "command": '<|START_ACTION|>[\n    {"tool_call_id":"0","tool_name":"f","parameters":{"x":1}}\n]<|END_ACTION|>',
    "command-r": 'Action: ```json\n[{"tool_name":"f","parameters":{"x":1}}]\n```',
    "deepseek-v3.2": DSML_CALL.format("function"),
    "deepseek-v4": DSML_CALL.format("tool"),
    "deepseek-v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
    '{"x":1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek-v3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "kimi": '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x":1}'
    "<|tool_call_end|><|tool_calls_section_end|>",
}
ROOTS = {
    "ref": {"$ref": "#/$defs/P", "$defs": {"P": PAIR}},
    "of definitions": {"$ref": "#/definitions/P", "definitions": {"P": PAIR}},
    "all": {"allOf": [PAIR]},
    "any": {"anyOf": [fields(["b"], b=TEXT), PAIR]},
    "unlisted": {"type": "object", "required": ["x"]},
    "itself": fields(["x"], x=WHOLE, child={"$ref": "#"}),
    "property": fields(["x"], a=WHOLE, x={"$ref": "#/properties/a"}),
    "nulls": {
        "type": "object",
        "properties": {"x": WHOLE | {"description": None}, "o": {"type": "object", "properties": None}},
        "required": None,
        "$defs": None,
        "anyOf": [{"required": ["x"], "properties": None}],
    },
    "annotations": fields(
        ["x"],
        x=WHOLE | {"format": "int64", "nullable": True},
        y={"type": "object", "propertyNames": TEXT, "additionalProperties": TEXT},
    ),
}


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("$ref", 3),
        ("allOf", True),
        ("allOf", [3]),
        ("anyOf", {"a": 1}),
        ("oneOf", -1.5),
        ("type", 3),
        ("type", [{}]),
        ("enum", True),
        ("required", 3),
        ("required", [None]),
        ("properties", [1]),
        ("properties", {"a": 3}),
        ("$defs", True),
        ("maxItems", "#"),
        ("minItems", -1),
    ],
)
def test_a_keyword_with_a_value_that_it_cannot_have_is_named(keyword: str, value: object) -> None:
    inner = {"type": "object", "properties": {"x": {keyword: value}}}
    for parameters in ({"type": "object", keyword: value}, inner, {"$ref": "#/$defs/A", "$defs": {"A": inner}}):
        with pytest.raises(SchemaError, match=r"the parameters of f (have|are) ") as caught:
            toolbox([{"name": "f", "parameters": parameters}], template(MARKS["hermes"]))
        assert keyword in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("name", X_CALLS)
@pytest.mark.parametrize("root", ROOTS)
def test_arguments_may_be_said_in_any_way_that_makes_an_object(name: str, root: str) -> None:
    box = toolbox([{"name": "f", "description": None, "parameters": ROOTS[root]}], template(MARKS[name]))
    assert box is not None and box.format.name == name and box.tools[0].description == ""
    given_tools = box.format, box.tools
    assert accepts(*given_tools, X_CALLS[name]), given_tools
    splitter = box.splitter()
    calls = [*splitter.push(X_CALLS[name])[1], *splitter.flush()[1]]
    assert [(call.name, call.arguments) for call in calls] == [("f", {"x": 1})]
    if root == "itself":
        assert not accepts(*given_tools, X_CALLS[name].replace("1", '1,"child":{"name":"f","arguments":{}}'))


CALLS: list[tuple[str, str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "lfm2",
        "get-weather",
        ODD,
        '<|tool_call_start|>[get-weather(in-unit="x), y=\']", from=1, a.b=[1, -2])]<|tool_call_end|>',
        ODD_CALL,
    ),
    ("pythonic", "class", ODD, '[class(in-unit="x), y=\']", from=1, a.b=[1, -2])]', ODD_CALL),
    ("pythonic", "a/b (c)", fields(["x y"], **{"x y": WHOLE}), "[a/b (c)(x y=1)]", {"x y": 1}),
    ("mistral-named", "ns/get:it", PAIR, '[TOOL_CALLS]ns/get:it[ARGS]{"x":1}', {"x": 1}),
    ("mistral-named", "ns get", PAIR, '[TOOL_CALLS]ns get[ARGS]{"x":1}', {"x": 1}),
    ("gemma", "ns/get:it", PAIR, "<|tool_call>call:ns/get:it{x:1}<tool_call|>", {"x": 1}),
    ("harmony", "ns/get:it", PAIR, '<|channel|>commentary to=functions.ns/get:it<|message|>{"x":1}', {"x": 1}),
    (
        "gemma",
        "f",
        ANY,
        '<|tool_call>call:f{l:[1,[true,null]],v:{a:<|"|>b<|"|>,<|"|>c d<|"|>:{}}}<tool_call|>',
        {"l": [1, [True, None]], "v": {"a": "b", "c d": {}}},
    ),
    ("gemma", "f", {}, "<|tool_call>call:f{a:[1]}<tool_call|>", {"a": [1]}),
    (
        "gemma",
        "f",
        fields(["l"], l={"type": "array", "maxItems": 1, "items": WHOLE}),
        "<|tool_call>call:f{l:[1]}<tool_call|>",
        {"l": [1]},
    ),
    (
        "deepseek-v3.1",
        "get it",
        PAIR,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>other<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        '<｜tool▁call▁begin｜>get it<｜tool▁sep｜>{"x":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        {"x": 1},
    ),
    (
        "command-r",
        "f",
        PAIR,
        'Action: ```json\n[{"tool_name": "directly_answer", "parameters": {}}, {"tool_name":"f","parameters":{"x":1}}]```',
        {"x": 1},
    ),
    (
        "kimi",
        "ns.get it:1",
        PAIR,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ns.get it:1:12"
        '<|tool_call_argument_begin|>{"x":1}<|tool_call_end|><|tool_calls_section_end|>',
        {"x": 1},
    ),
    (
        "qwen3-coder",
        "f",
        TAGGED,
        XML.format(
            '<parameter=e>\n"</parameter>"\n</parameter>\n<parameter=c>\n"\\"x"\n</parameter>\n'
            '<parameter=o>\n\na\n\n</parameter>\n<parameter=l>\n["</parameter>\\n"]\n</parameter>\n'
        ),
        TAGGED_CALL,
    ),
    (
        "minimax",
        "f",
        TAGGED,
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="e">"</parameter>"</parameter>\n'
        '<parameter name="c">"\\"x"</parameter>\n<parameter name="o">"\\na\\n"</parameter>\n<parameter name="l">["</parameter>\\n"]'
        '</parameter>\n</invoke>\n<invoke name="other">\n</invoke>\n<invoke name="f">\n<parameter name="e">"b"</parameter>\n'
        '<parameter name="c">"\\"x"</parameter>\n<parameter name="o">"b"</parameter>\n<parameter name="l">["</parameter>\\n"]'
        "</parameter>\n</invoke>\n</minimax:tool_call>",
        TAGGED_CALL | {"e": "b", "o": "b"},
    ),
    (
        "glm-4.7",
        "f",
        TAGGED,
        "<tool_call>f"
        + GLM.format("e", "</parameter>")
        + GLM.format("c", '"\\"x"')
        + GLM.format("o", '"\\na\\n"')
        + GLM.format("l", '["</parameter>\\n"]')
        + "</tool_call>",
        TAGGED_CALL,
    ),
    ("glm-4.7", "fo", fields(), "<tool_call>fo</tool_call>", {}),
    (
        "qwen3-coder",
        "f",
        SEVERAL,
        XML.format("<parameter=x>\n1\n</parameter>\n<parameter=y>\n2\n</parameter>\n"),
        {"x": 1, "y": "2"},
    ),
    ("lfm2", "f", SEVERAL, '<|tool_call_start|>[f(a="1"), f(x=1, y="2")]<|tool_call_end|>', {"x": 1, "y": "2"}),
]


@pytest.mark.parametrize("case", CALLS, ids=lambda case: f"{case[0]}-{case[1]}")
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_what_a_grammar_allows_is_parsed(case: tuple[str, str, dict[str, Any], str, dict[str, Any]], size: int) -> None:
    name, tool, parameters, text, wanted = case
    tools = [Tool(tool, "", parameters), Tool("other", "", fields())]
    assert accepts(BY_NAME[name], tools, text)
    splitter, calls = CallSplitter(BY_NAME[name], tools), list[ToolCall]()
    for at in range(0, len(text), size):
        calls += splitter.push(text[at : at + size])[1]
    calls += splitter.flush()[1]
    assert calls[-1].name == tool and calls[-1].arguments == wanted


@pytest.mark.parametrize("name", ["hermes", "mistral", "llama3"])
def test_arguments_are_an_object_whatever_their_schema_leaves_open(name: str) -> None:
    given_tools = BY_NAME[name], [Tool("f", "", {})]
    assert accepts(*given_tools, X_CALLS[name]) and not accepts(*given_tools, X_CALLS[name].replace('{"x":1}', "[1]"))


def test_alternatives_of_arguments_are_kept_apart() -> None:
    given_tools = BY_NAME["lfm2"], [Tool("f", "", SEVERAL)]
    for each in ("", 'a="1", x=1, y="2"', "x=1"):
        assert not accepts(*given_tools, f"<|tool_call_start|>[f({each})]<|tool_call_end|>")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"type": "string"}, "object"),
        ({"properties": [1]}, "properties"),
        ({"required": "x"}, "required"),
        ({"allOf": [{"anyOf": [PAIR] * 9}] * 2}, "81"),
        ({"$ref": "#"}, "without end"),
    ],
)
def test_parameters_that_are_no_object_are_refused(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        box = toolbox([{"name": "f", "parameters": parameters}], template(MARKS["qwen3-coder"]))
        assert box is not None
        call_grammar(box.format, box.tools, literal)
