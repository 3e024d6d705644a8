"""The template sandbox: renders like a plain jinja2 environment of transformers, and bounds what a template can cost."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pace import Clock

from edgellm.chat import ChatTemplate
from edgellm.errors import TemplateError

MESSAGES = [
    {"role": "system", "content": "Be <b>kind</b> & brief.\n"},
    {"role": "user", "content": "  Hi,\n\tthere\n"},
    {"role": "assistant", "content": "<think>\na\n</think>\n\nHello", "n": [1, 2.5, None, True, {"b": 1, "a": "é"}]},
]


def plain(source: str) -> str:
    """The output of jinja2 in the environment that transformers makes."""

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

        def _pass(self, caller: Any) -> Any:
            return caller()

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False, **options})
    return environment.from_string(source).render(
        messages=MESSAGES, add_generation_prompt=True, tools=None, bos_token="<s>", eos_token="</s>"
    )


SAME = [
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}\n",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} "
    "{{ loop.previtem.role if loop.previtem }} {{ (loop.nextitem or m).role }} {{ loop.cycle('a', 'b') }} "
    "{{ loop.changed(m.role) }}\n{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.length }}{{ m.role }}{% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}{% for m in missing %}x{% endfor %}",
    "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "{% for k, v in messages[2].items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in messages[0] | dictsort %}{{ k }}{% endfor %}",
    "{% set ns = namespace(x='', n=0) %}{% for m in messages %}{% set ns.x = ns.x + m.role ~ ns.n %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.x }}{{ ns.n }}",
    "{% macro show(m, up=false) %}{{ m.role | upper if up else m.role }}{{ caller() if caller else '' }}{% endmacro %}"
    "{{ show(messages[0]) }}{{ show(messages[1], up=true) | trim }}{% call show(messages[2]) %}!{% endcall %}",
    "{{ messages | tojson }}{{ messages[2].n | tojson(indent=2) }}{{ {'a': 1, 'b': [1, 2]} | tojson }}{{ '<é>' | tojson }}",
    "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}|{{ messages[2].content.split('<think>')[-1].rstrip('\\n') }}",
    "{{ messages[1].content.strip() }}{{ messages[1].content.startswith('  Hi') }}{{ 'Hi' in messages[1].content }}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }}{{ messages[::-1][0].role }}",
    "{{ messages[1:] | length }}{{ (messages | last).role }}{{ (messages | first)['role'] }}{{ messages[-1]['n'][4]['a'] }}",
    "{{ 'abc'[1:] }}{{ 'abc' * 3 }}{{ '%s-%05.1f' % ('x', 2) }}{{ '{}|{:>5}'.format('a', 'b') }}{{ '%s' | format('q') }}",
    "{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ -3 | abs }}{{ 7 / 2 }}{{ 3.0 }}{{ 1e3 }}{{ 10 | string ~ 5 }}{{ '12' | int + 1 }}",
    "{{ none }}{{ true }}{{ [1, 'a', none] }}{{ {'k': (1, 2)} }}{{ missing }}{{ missing is defined }}{{ x | default('d') }}",
    "{{ 'a\nb' | indent(2) }}{{ 'aXbX' | replace('X', 'Y') }}{{ 'a b' | title }}{{ 'hello world' | capitalize }}"
    "{{ 'x' | center(5) }}",
    "{{ [3, 1, 2] | sort | join('-') }}{{ [1, 1, 2] | unique | list }}{{ [1, 2, 3] | sum }}{{ [1, 2, 3, 4] | batch(3) | list }}",
    "{{ messages | groupby('role') | map('first') | list }}{{ range(3) | list }}{{ range(4, 0, -2) | list }}{{ 'é' | upper }}",
    "{{ '<b>' | e }}{{ '<b>' | safe }}{{ messages[0] | items | list }}{{ 'a,b' | replace(',', '<|x|>') }}",
    "{% set x %}a{{ messages[0].role }}{% endset %}{{ x }}{{ x is string }}{% filter upper %}up {{ x }}{% endfilter %}",
    "{% generation %}{{ messages[0].role }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
    "  {% if true %}\n    lines\n  {% endif %}\n{#- comment -#}\n  tail  \n",
    "{% raw %}{{ raw }}{% endraw %}{{ '{{' }}{{ \"it's\" }}{{ 'tab\\tnew\\nline' }}{{ 'ünïcode \\u00e9' }}",
    "{% for m in messages recursive %}{{ m.role }}{% if loop.depth0 < 1 %}({{ loop(messages[:1]) }}){% endif %}{% endfor %}",
    "{% set a, b = 'x', 'y' %}{{ a ~ b ~ 1 ~ none }}{{ a if b == 'y' }}{{ 'n' if a == 'y' }}{{ (1, 2) == (1, 2) }}",
    "{{ dict(a=1, b=2) | tojson }}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('z', 'no') }}{{ 'a' in {'a': 1} }}"
    "{{ cycler('p', 'q').next() }}",
    "{% with k = 3 %}{{ k }}{% endwith %}{{ messages[0].content | length }}{{ 'a b c' | wordcount }}"
    "{{ 'abc' | list }}{{ 'ab' | reverse }}",
    "{{ 'a b/é?' | urlencode }}{{ {'k': 'é&', 'l': 2} | urlencode }}{{ 1500000 | filesizeformat }}{{ messages[2].n[4].copy() }}"
    "{{ [{'n': 2}, {'n': 3.5}] | sum(attribute='n') }}{{ [{'a': {'n': 1}}] | sum('a.n', start=4) }}",
    "{{ ('one two-three\nfour ' * 9) | wordwrap }}|{{ 'one two-three' | wordwrap(5) }}|"
    "{{ 'abcdefgh ij' | wordwrap(3, false) }}|{{ 'abcdefgh' | wordwrap(width=3, wrapstring='<>') }}",
    "{{ '<p>a &lt; b &amp; <b>c</b>\n d <!-- e --></p> f <g' | striptags }}|"
    "{{ messages[2].content | striptags }}|{{ 3 | striptags }}",
    "{{ messages | pprint }}|{{ 'text' | pprint }}|{{ {'b': [1] * 60, 'a': 'word ' * 60, (1, 2): {'c': none}} | pprint }}|"
    "{{ missing | pprint }}|{{ [[], {}, ()] | pprint }}|{{ ('<a> \n' * 30) | pprint }}",
    "<a{{ {'id': 'x<y', 'n': 3, 'none': none, 'u': missing, 'l': ['\"']} | xmlattr }}>"
    "{{ {'a': 'b'} | xmlattr(false) }}{{ {} | xmlattr }}",
]


@pytest.mark.parametrize("source", SAME)
def test_renders_like_plain_jinja(source: str) -> None:
    ours = ChatTemplate(source, bos="<s>", eos="</s>").render(
        [{**message, "n": message["n"]} if "n" in message else message for message in MESSAGES]
    )
    assert ours.text == plain(source)


def test_safe_text_escapes_nothing_beside_it() -> None:
    """Here we leave jinja2, as llama.cpp does: `safe` hands a text on, and the template's own text keeps its right to tokens."""
    rendered = ChatTemplate("{{ '<|a|>' + ('<b>' | safe) + ('<c>' | e) + messages[1].role }}").render(MESSAGES)
    assert rendered.text == "<|a|><b>&lt;c&gt;user" and rendered.trusted[0] == (0, 8)


@pytest.mark.parametrize("filter_", ["wordwrap", "wordwrap(4)", "striptags", "pprint"])
def test_text_that_a_filter_made_anew_is_nobodys(filter_: str) -> None:
    """A name of a control token may have come about in it."""
    for text in ("&lt;|a|&gt;", "<|a|>", "<<b>|a|>"):
        for source in (f"{{{{ {text!r} | {filter_} }}}}", f"{{{{ messages[0].content | {filter_} }}}}"):
            rendered = ChatTemplate(source).render([{"role": "user", "content": text}])
            assert rendered.trusted == () and type(rendered.text) is str


def test_helpers() -> None:
    with pytest.raises(TemplateError, match="only pairs"):
        ChatTemplate("{{ raise_exception('only pairs') }}").render(MESSAGES)
    assert ChatTemplate("{{ x }}{{ now }}").render(MESSAGES, x="yes").text == "yes"
    assert len(ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render(MESSAGES).text) == 10


BOMBS = {
    "product": "{{ 'x' * 10 ** 10 }}",
    "list product": "{{ ([0] * 10 ** 9) | length }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": "{% set ns = namespace(s=7) %}{% for i in range(99) %}{% set ns.s = ns.s * ns.s %}{% endfor %}",
    "center": "{{ 'x' | center(2000000000) }}",
    "center method": "{{ 'x'.center(2000000000) }}",
    "zfill": "{{ 'x'.zfill(2000000000) }}",
    "percent": "{{ '%2000000000d' % 1 }}",
    "percent filter": "{{ '%2000000000d' | format(1) }}",
    "star": "{{ '%*d' % (2000000000, 1) }}",
    "format": "{{ '{:2000000000}'.format('x') }}",
    "format in format": "{{ '{:{w}}'.format('x', w=2000000000) }}",
    "format_map": "{{ '{a:>2000000000}'.format_map({'a': 'x'}) }}",
    "indent": "{{ ('x\n' * 9999) | indent(9999) }}",
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "nested shorter loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "letters": "{% for i in range(9999) %}{% for c in 'x' * 9999 %}{% endfor %}{% endfor %}",
    "doubling": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "doubling by tilde": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "nesting lists": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "nesting tuples": "{% set ns = namespace(s=(1,)) %}{% for i in range(60) %}{% set ns.s = (ns.s, ns.s) %}"
    "{% endfor %}{{ ns.s | string }}",
    "nesting dicts": "{% set ns = namespace(s=1) %}{% for i in range(60) %}{% set ns.s = dict(a=ns.s, b=ns.s) %}"
    "{% endfor %}{{ ns.s | tojson }}",
    "comparing": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
    "recursive loop": "{% for x in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "join": "{{ (['x' * 1000000] * 9999) | join }}",
    "join method": "{{ ('y' * 1000000).join(['x'] * 9999) }}",
    "replace": "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
    "replace method": "{{ ('x' * 1000000).replace('', 'y' * 100) }}",
    "list": "{{ ('x' * 4000000) | list | length }}",
    "split": "{{ ('ab ' * 1000000).split() | length }}",
    "lines": "{{ ('ab\n' * 1000000).splitlines() | length }}",
    "expandtabs": "{{ ('\t' * 1000000).expandtabs(9999) }}",
    "many strings": "{% set ns = namespace(l=[]) %}{% set s = 'x' * 99999 %}{% for i in range(9999) %}"
    "{% set ns.l = ns.l + [s[i:]] %}{% endfor %}",
    "mapped strings": "{{ range(9999) | map('string') | map('center', 9999) | list | length }}",
    "lists summed": "{{ ([[1]] * 50000) | sum(start=[]) | length }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "json": "{{ [[1]] | tojson(indent=2000000000) }}",
    "round": "{{ 1 | round(1000000000, 'ceil') }}",
    "to_bytes": "{{ (1).to_bytes(2000000000, 'big') }}",
    "translate": "{{ 'x'.translate({120: 'y'}) }}",
    "slow operations": "{% set s = 'x' * 4000000 %}{% for i in range(9999) %}{{ s.count('xy') }}{% endfor %}",
    "long output": "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
    "long source": "x" * 99_999,
    "large source": "{{ a.b }}" * 7000,
    "deep source": "{{ " + "(" * 9000 + "1" + ")" * 9000 + " }}",
    "deep blocks": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "big number": "{{ " + "9" * 9999 + " }}",
    "summed lists": "{{ ([{'n': [1]}] * 9999) | sum(attribute='n') }}",
    "quoted": "{{ ('é' * 900000) | urlencode }}",
    "lipsum": "{{ lipsum(n=99999) }}",
    "wrapped": "{{ ('x ' * 400000) | wordwrap(1) }}",
    "wrapped wide": "{{ 'x' | wordwrap(2000000000) }}",
    "wrapped with long ends": "{{ ('x ' * 9999) | wordwrap(1, wrapstring='y' * 100) }}",
    "wrapped word": "{{ ('x' * 90000) | wordwrap(1) }}",
    "tags": "{{ ('<b>' * 300000) | striptags }}",
    "entities": "{{ ('&a' * 400000) | striptags }}",
    "attributes": "{{ {'a': '<' * 400000} | xmlattr }}",
    "attribute lists": "{{ {'a': ['<' * 400000]} | xmlattr }}",
    "pretty": "{{ (['x'] * 9999) | pprint }}{{ ('x ' * 400000) | pprint }}",
    "pretty indents": "{{ {'k' * 400000: 'x ' * 90000} | pprint }}",
    "block": "{% block a %}{{ self.a() }}{% endblock %}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS)
def test_bombs_end_soon_and_small(source: str) -> None:
    gc.collect()
    clock = Clock()
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source, name="some.gguf").render(MESSAGES)
    assert clock.seconds() < 2 and len(str(caught.value)) < 400 and "some.gguf" in str(caught.value)
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            ChatTemplate(source).render(MESSAGES)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__.os.popen('touch PWNED').read() }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(a=1) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ raise_exception.__globals__.x }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{{ ''.encode() }}",
    "{{ (messages | map('attr', '__class__') | list)[0].x }}",
    "{{ {'a b': 1} | xmlattr }}",
    "{{ 'x' | wordwrap(0) }}",
    "{{ 'x' | random }}",
    "{{ 'http://x' | urlize }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TemplateError):
        ChatTemplate(source).render(MESSAGES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "source", ["{% if %}", "{% foo %}", "{{ 1 +", "{% for %}", "{{ messages.x.y }}", "{{ 1 / 0 }}", "{{ x | nofilter }}"]
)
def test_broken_templates(source: str) -> None:
    with pytest.raises(TemplateError, match=r"^some\.gguf"):
        ChatTemplate(source, name="some.gguf").render(MESSAGES)


def test_long_conversations_are_no_bombs() -> None:
    """A thousand messages of a thousand characters, through a template that copies lists and strips everything."""
    source = (
        "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m] %}{% endfor %}"
        "{% for m in ns.l %}{{ '<|' + m.role + '|>' + m.content.split('</think>')[-1].strip() | trim + '\n' }}{% endfor %}"
    )
    messages = [{"role": "user" if i % 2 else "assistant", "content": "word " * 200} for i in range(1000)]
    assert len(ChatTemplate(source).render(messages).text) > 1_000_000


def test_templates_may_look_back_from_each_message() -> None:
    """As Gemma 4's own does, for the role before: quadratic in the messages, and no bomb."""
    source = (
        "{% for m in messages %}{% set ns = namespace(role='', found=false) %}{% for j in range(loop.index0 - 1, -1, -1) %}"
        "{% if not ns.found %}{% if messages[j].role != 'tool' %}{% set ns.role = messages[j].role %}"
        "{% set ns.found = true %}{% endif %}{% endif %}{% endfor %}{{ ns.role[:1] }}{% endfor %}"
    )
    messages = [{"role": "user" if i % 2 else "assistant", "content": "word"} for i in range(600)]
    assert ChatTemplate(source).render(messages).text == ("au" * 300)[:599]
    clock = Clock()
    with pytest.raises(TemplateError, match="stopped"):
        ChatTemplate(BOMBS["nested loops"].replace("100000", "9999")).render(messages[:100])
    assert clock.seconds() < 3


def test_threads_render_side_by_side() -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = ChatTemplate(SAME[0], bos="<s>", eos="</s>")
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda i: template.render([{"role": "user", "content": str(i)}]).text, range(100)))
    assert [text.split("|>")[1].split("</s>")[0] for text in texts] == [str(i) for i in range(100)]


@pytest.mark.parametrize("cut", ["t.partition('x')", "t.rpartition('x')", "t.split('x')", "t.rsplit('x')", "t.splitlines()"])
def test_texts_within_what_methods_return_are_charged(cut: str) -> None:
    """Each of them has the text once more, 4 MB in all."""
    source = "{% set t='\\n' ~ '\U0001f600' * 1000000 %}{% for i in range(9999) %}{% set q = " + cut + " %}{% endfor %}"
    with pytest.raises(TemplateError, match="too many and too long texts"):
        ChatTemplate(source).render([{"role": "user", "content": "x"}])
