"""Hostile chat templates in a process of its own: every one ends within a second and 64 MiB, and Ctrl-C is never deaf."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from places import TESTS

METER = TESTS / "helpers" / "template_meter.py"
LONG = "{% set s = 'a' * 1000000 %}{% set t = 'b' ~ 'a' * 400000 %}"
WIDE = "{% set s = '\U0001f600' * 1000000 %}{% set t = messages[0].content %}"
LOOP = "{% for i in range(9999) %}"
END = "{% endfor %}"

ATTACKS = {
    **{
        f"{name} long": f"{LONG}{LOOP}{{% set x = s.{name}(t) %}}{END}"
        for name in (
            "rindex",
            "rfind",
            "rpartition",
            "rsplit",
            "strip",
            "lstrip",
            "rstrip",
            "find",
            "index",
            "partition",
            "split",
            "count",
            "startswith",
            "endswith",
            "removeprefix",
        )
    },
    "empty lists": f"{WIDE}{LOOP}{{% set x = 'ab' | slice(10000) %}}{END}",
    "lists in views": f"{{% set d = {{'a': 1, 'b': 2}} %}}{LOOP}{{% set x = ([d.items()] * 99) | map('list') | list %}}{END}",
    **{f"{name} once": f"{LONG}{{% set x = (s ~ 'c').{name}(t ~ 'c' ~ t) %}}" for name in ("rfind", "strip", "rpartition", "find")},
    **{
        f"{name} wide": f"{WIDE}{LOOP}{{% set x = s.{name}() %}}{END}"
        for name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold", "split", "splitlines")
    },
    **{
        f"{name} filter": f"{WIDE}{LOOP}{{% set x = s | {name} %}}{END}"
        for name in (
            "upper",
            "title",
            "capitalize",
            "e",
            "list",
            "sort",
            "unique",
            "join('x')",
            "wordcount",
            "reverse",
            "tojson",
            "indent",
            "trim(s)",
            "wordwrap",
            "wordwrap(1)",
            "striptags",
            "pprint",
            "truncate(9999)",
            "batch(2)",
            "map('upper')",
            "center(9999)",
            "replace('\U0001f600', 'xx')",
            "int",
            "float",
        )
    },
    "fields": "{{ ('{0:>9999}' * 400000).format(1) }}",
    "fewer fields": "{{ ('{0:>9999}' * 3000).format(1) }}",
    "format_map": "{{ ('{a:>9999}' * 400000).format_map({'a': 1}) }}",
    "fields of text": f"{LONG}{{{{ ('{{0}}' * 900).format(s) }}}}",
    "fields of lists": "{{ ('{0}' * 9000).format(range(9999) | list) }}",
    "percent widths": "{{ ('%9999d' * 9000) % ((1,) * 9000) }}",
    "percent lists": "{{ ('%s' * 90) % ((range(9999) | list,) * 90) }}",
    "quoted": f"{WIDE}{{{{ '%a' % s }}}}{{{{ '{{!a}}'.format(s) }}}}",
    "indented json": "{{ (range(9999) | list) | tojson(indent=9999) }}",
    "separators": f"{LONG}{{{{ [1, 2] | tojson(separators=(s, s)) }}}}",
    "nested json": "{% set ns = namespace(s=[]) %}{% for i in range(900) %}{% set ns.s = [ns.s] %}{% endfor %}"
    "{{ ns.s | tojson(indent=9999) }}{{ ns.s | tojson(indent='x' * 100) }}",
    "doubling replace": "{% set ns = namespace(s='x') %}"
    "{% for i in range(60) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
    "doubling replace filter": "{% set ns = namespace(s='x') %}"
    "{% for i in range(60) %}{% set ns.s = ns.s | replace('x', 'xx') %}{% endfor %}",
    "doubling join": "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}",
    "text in text": f"{LONG}{LOOP}{{% if t in s %}}{{% endif %}}{END}",
    "text in list": f"{{% set s = 'a' * 900000 %}}{{% set l = [s ~ 'b'] %}}{LOOP}{{% if s ~ 'c' in l %}}{{% endif %}}{END}",
    "compared": "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{{ " + " and ".join(["a == b"] * 1200) + " }}",
    "sliced": f"{WIDE}{LOOP}{{% set x = s[::-1] %}}{END}",
    "long slices": f"{WIDE}{LOOP}{{% set x = s[1:] %}}{END}",
    "hex": "{% set a = 'f' * 900000 %}{% set n = a | int(base=16) %}{{ n // 7 }}",
    "big integers": "{{ 0x" + "f" * 60000 + " // 7 }}",
    "integer list": "{{ [2 ** 255] * 9999 }}{{ [2 ** 4000] * 9999 }}",
    "many spans": "{% set p = ('x,' * 4000).split(',') %}"
    "{% set s = messages[1].content.join(p) %}" + LOOP + "{% set x = s.split('l') %}{% set y = s[1:] ~ s %}" + END,
    "many lists": LOOP + LOOP.replace("i in", "j in") + "{% set x = [] %}" + END + END,
    "kept lists": "{% set ns = namespace(l=[]) %}" + LOOP + "{% set ns.l = [ns.l, i] %}" + END + "{{ ns.l }}",
    "colliding keys": "{% set ns = namespace(l=[]) %}"
    "{% for i in range(9000) %}{% set ns.l = ns.l + [[i * 2305843009213693951, 1]] %}"
    "{% endfor %}{{ dict(ns.l) | length }}",
    "colliding all at once": "{% set l = range(9000) | map('string') | map('int') | list %}{{ dict(l | batch(2)) | length }}",
    "fromkeys": "{{ {}.fromkeys(range(9999)) }}",
    "nested generators": "{% set ns = namespace(g=[1]) %}"
    + LOOP
    + "{% set ns.g = ns.g | map('string') %}"
    + END
    + "{{ ns.g | list }}",
    "attribute path": "{{ range(9999) | map(attribute='a.' * 400000) | list }}",
    "long key": "{{ {}[('\U000e0001' * 900000,)].x }}",
    "long name": "{{ ({} | attr('a' * 900000)).x }}",
    "printed views": "{% set d = {'a': '\U000e0001' * 900000} %}{{ d.items() }}",
    "tags": f"{LOOP}{{{{ ('<b>&lt;' * 900) | striptags }}}}{END}",
    "tags once": "{{ ('<b>' * 1800) | striptags }}",
    "comments in text": "{{ ('<!--' * 1500) | striptags }}",
    "no entities": "{{ ('&abcdefghijklmnopqrstuvwxyzabcdef' * 19000) | striptags }}",
    "wrapped": f"{LOOP}{{{{ ('a-b c' * 900) | wordwrap(1) }}}}{END}",
    "wrapped once": "{{ ('a ' * 49000) | wordwrap(1) }}",
    "wrapped word": "{{ ('a' * 9900) | wordwrap(1) }}",
    "wrapped dashes": "{{ ('a--' * 30000) | wordwrap }}{{ ('-' * 90000) | wordwrap }}",
    "wrapped tabs": "{{ ('\t' * 90000) | wordwrap }}",
    "pretty": "{{ ('a ' * 150000) | pprint }}",
    "pretty list": "{{ range(9999) | map('string') | list | pprint }}",
    "pretty nesting": "{% set ns = namespace(s=range(3000) | list) %}{% for i in range(90) %}{% set ns.s = [ns.s] %}{% endfor %}"
    "{{ ns.s | pprint }}",
    "pretty doubling": "{% set ns = namespace(s='a b ' * 30) %}{% for i in range(9) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
    + LOOP
    + "{{ ns.s | pprint }}"
    + END,
    "pretty indents": "{{ {'k' * 100000: {'k' * 90000: 'x ' * 9000}} | pprint }}",
    "attributes": LOOP + "{{ {'a': '<' * 9999} | xmlattr }}" + END,
    "html": "{% autoescape true %}{{ '<' * 900000 }}{% endautoescape %}",
    "tests": f"{LONG}{LOOP}{{% if s is eq(s[1:] ~ 'b') %}}{{% endif %}}{END}",
    "test in": f"{LONG}{LOOP}{{% if t is in(s) %}}{{% endif %}}{END}",
    "select": f"{LONG}{{{{ ([s] * 9999) | select('in', t) | list }}}}",
    "sort": f"{LONG}{{{{ ([s] * 9999) | sort | list }}}}",
    "blocks": "{% if 1 %}" * 90 + LONG + "{{ s }}" * 40 + "{% endif %}" * 90,
    "deep macros": "{% macro f(n) %}{{ 'x' * 90000 }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(150) }}",
    "nodes": "{{ a.b }}" * 1200,
    "names": "{{ a" + ".a" * 2000 + " }}",
    "tokens": "{{a}}" * 13000,
    "quotes": "{{ '" * 16000,
    "comments": "{# #}" * 13000,
    "blanks": "{%-" + " " * 60000 + "if 1 %}x{% endif %}",
    "sets": "{% set a = 1 %}" * 1600,
}


def meter(sources: list[str]) -> tuple[float, list[dict[str, float | str]]]:
    """The time of each template, and the memory of the process before the first."""
    done = subprocess.run(
        [sys.executable, METER], input=json.dumps(sources), capture_output=True, text=True, timeout=600, check=True
    )
    idle, *rows = json.loads(done.stdout)
    return float(idle["mebibytes"]), rows


def check(sources: dict[str, str]) -> list[dict[str, float | str]]:
    idle, rows = meter(list(sources.values()))
    peak = idle
    for (name, source), row in zip(sources.items(), rows, strict=True):
        took = f"{name}: {row} {source[:300]}"
        assert float(row["seconds"]) <= 1 and float(row["deaf"]) <= 0.3, took
        assert float(row["mebibytes"]) - peak <= 64 and float(row["mebibytes"]) - idle <= 80, took
        peak = float(row["mebibytes"])
    return rows


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_attacks_end_soon_and_small(every: int) -> None:
    check(dict(list(ATTACKS.items())[::every]))


TEXTS = ("s", "t", "'a'", "''", "s ~ t", "s[1:]", "s[::-1]", "s | upper", "messages[0].content", "t ~ 'b'", "s | string", "x")
METHODS = (
    "find",
    "rfind",
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "strip",
    "rstrip",
    "replace",
    "join",
    "count",
    "format",
    "center",
    "expandtabs",
    "zfill",
    "splitlines",
    "title",
    "casefold",
    "startswith",
    "encode",
    "translate",
    "removesuffix",
)
FILTERS = (
    "upper",
    "list",
    "join(T)",
    "replace(T, T)",
    "trim(T)",
    "tojson",
    "tojson(indent=N)",
    "indent(N)",
    "center(N)",
    "sort",
    "unique",
    "map('upper')",
    "select('in', T)",
    "batch(N)",
    "slice(N)",
    "reverse",
    "wordcount",
    "wordwrap(N)",
    "striptags",
    "pprint",
    "e",
    "format(T)",
    "truncate(N)",
    "int(N)",
    "groupby(T)",
    "dictsort",
    "title",
    "round(N)",
    "sum",
    "items",
    "max",
    "first",
    "default(T)",
)


def generated(random: random.Random) -> str:
    """A template that puts long texts, sizes and loops together at random."""

    def text() -> str:
        return random.choice(TEXTS)

    def number() -> str:
        return random.choice(("1", "0", "-1", "7", "9999", "10000", "2 ** 31", "10 ** 12"))

    def expression() -> str:
        kind = random.random()
        if kind < 0.35:
            arguments = ", ".join(random.choice((text, number))() for _ in range(random.randrange(3)))
            return f"({text()}).{random.choice(METHODS)}({arguments})"
        if kind < 0.7:
            return f"({text()}) | {''.join(text() if c == 'T' else number() if c == 'N' else c for c in random.choice(FILTERS))}"
        if kind < 0.9:
            return f"({text()}) {random.choice(('~', '+', '*', '%', 'in', '==', '<', '//'))} ({random.choice((text, number))()})"
        return f"[{text()}, {text()}] * {number()}"

    sizes = [random.choice((3, 900, 40_000, 250_000, 1_000_000)) for _ in range(2)]
    unit = random.choice(("a", "ab ", "\n", "é", "\U0001f600", "{0} ", "%s", "<", "1"))
    body = "".join(f"{{% set x = {expression()} %}}" for _ in range(random.randint(1, 4)))
    if random.random() < 0.6:
        body = (
            f"{{% for i in range({random.choice((20, 500, 9999))}) %}}{{% set ns.x = {expression()} %}}{body}"
            "{% set x = ns.x %}{% endfor %}"
        )
    start = (
        f"{{% set s = {unit!r} * {sizes[0]} %}}{{% set t = ('b' ~ {unit!r}) * {sizes[1]} %}}"
        "{% set x = t %}{% set ns = namespace(x=s) %}"
    )
    return start + body + "{{ x }}"


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_generated_templates_end_soon_and_small(count: int) -> None:
    check({f"seed {seed}": generated(random.Random(seed)) for seed in range(count)})
