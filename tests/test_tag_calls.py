"""Calls whose arguments stand between tags: told by templates, read back as templates write them, names that they cannot hold."""
from __future__ import annotations

from typing import Any

import pytest

from edgellm.chat import ChatTemplate
from edgellm.chat.parsers import CallSplitter, find_format, tool_grammar
from edgellm.chat.parsers._format import literal
from edgellm.chat.shape import Shape
from edgellm.chat.tools import Tool
from edgellm.errors import SchemaError

EACH = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}"
ITEMS = "{% for k, v in c.function.arguments.items() %}"
VALUE = "{{ v if v is string else v | tojson }}"
END = "{% endfor %}{% endfor %}"
TEMPLATES = {
    "glm": EACH + "<tool_call>{{ c.function.name }}\n" + ITEMS + "<arg_key>{{ k }}</arg_key>\n<arg_value>" + VALUE
    + "</arg_value>\n{% endfor %}</tool_call>" + END,
    "glm-4.7": EACH + "<tool_call>{{ c.function.name }}" + ITEMS + "<arg_key>{{ k }}</arg_key><arg_value>" + VALUE
    + "</arg_value>{% endfor %}</tool_call>" + END,
    "seed": EACH + "{{ '<seed:tool_call>' }}\n<function={{ c.function.name }}>\n" + ITEMS + "<parameter={{ k }}>"
    + VALUE + "</parameter>\n{% endfor %}</function>\n</seed:tool_call>" + END,
    "minimax": EACH + '<minimax:tool_call>\n<invoke name="{{ c.function.name }}">\n' + ITEMS + '<parameter name="{{ k }}">' + VALUE
    + "</parameter>\n{% endfor %}</invoke>\n</minimax:tool_call>" + END,
    "qwen3-coder": EACH + "<tool_call>\n<function={{ c.function.name }}>\n" + ITEMS + "<parameter={{ k }}>\n" + VALUE
    + "\n</parameter>\n{% endfor %}</function>\n</tool_call>" + END}
WRITE = Tool("write", "", {"type": "object", "properties": {
    "text": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}, "any": {}}, "required": ["text"]})


def accepts(grammar: str, text: str) -> bool:
    from llguidance import LLMatcher, LLTokenizer

    matcher, tokens = LLMatcher(LLTokenizer("byte"), grammar, log_level=0), list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("text", ["def f():\n    return '</tool_call>'\n", "", " 3 ", "\n", '"quoted"',
                                  "</function>\n</tool_call>\n<b>"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_are_read_as_templates_write_them(name: str, text: str) -> None:
    format = find_format(TEMPLATES[name])
    assert format.name == name
    arguments: dict[str, Any] = {"text": text, "lines": [1, 2], "any": {"x": [True, None]}}
    call = {"id": "a", "type": "function", "function": {"name": "write", "arguments": arguments}}
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    said = Shape(ChatTemplate(TEMPLATES[name])).render(talk, None).text.removeprefix("Hi")
    assert accepts(tool_grammar(format, [WRITE, Tool("write_all", "", WRITE.parameters)], literal), said), said
    splitter = CallSplitter(format, [WRITE])
    (shown, calls), (rest, more) = splitter.push(said), splitter.flush()
    assert shown + rest == "" and [(each.name, each.arguments) for each in [*calls, *more]] == [("write", arguments)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_between_tags_keep_their_bounds(name: str) -> None:
    """A new line at both ends would be taken off, and the text be too short."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 3}}, "required": ["text"]}
    format, tools = find_format(TEMPLATES[name]), [Tool("write", "", schema)]
    for text, fits in (("\nb\n", name == "qwen3-coder"), ("ab", False), ("a\nb\n", True)):
        call = {"function": {"name": "write", "arguments": {"text": text}}}
        said = ChatTemplate(TEMPLATES[name]).render([{"role": "assistant", "content": "", "tool_calls": [call]}]).text
        assert accepts(tool_grammar(format, tools, literal), said) == fits, text


@pytest.mark.parametrize(("source", "name"), [
    ("<function>\n<name>{{ tool.name }}</name> <tool_call>\n<function=example>", "qwen3-coder"),     # Nemotron 3, Step 3.5
    ("<tools></tools> <tool_call><function=example><parameter=a>b</parameter>", "qwen3-coder"),       # MiMo V2
    ('<role>SYSTEM</role> <tools></tools> <tool_call>\n{"name": <function-name>', "hermes"),          # Ling, Ring
    ("{%- set begin = '<seed:tool_call>' %} <function=example>", "seed"), ("{%- set begin = '<minimax:tool_call>' -%}", "minimax"),
    ("<tool_call>{function-name}\n<arg_key>{a}</arg_key>\n<arg_value>", "glm"),
    ("<tool_call>{function-name}<arg_key>{a}</arg_key><arg_value>", "glm-4.7")])
def test_families_are_told_by_their_templates_marks(source: str, name: str) -> None:
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
            tool_grammar(find_format(TEMPLATES["minimax"]), [tool], literal)
