"""Strings that know who wrote them: the value is always str's own, and trust never spreads to what came from outside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgellm.chat.provenance import Text, joined

OURS, THEIRS = "ABC_|", "abc<\n "  # characters that only the template, or only messages, use here
PIECES = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.randoms(use_true_random=False)), max_size=6)


def build(pieces: list[tuple[bool, int, Any]]) -> Text:
    parts = [
        Text.written("".join(random.choices(OURS, k=length))) if own else "".join(random.choices(THEIRS, k=length))
        for own, length, random in pieces
    ]
    text = joined(parts)
    return text if isinstance(text, Text) else Text(text)


def trusted(text: str) -> list[bool]:
    spans = text.spans if isinstance(text, Text) else ()
    return [any(start <= i < stop for start, stop in spans) for i in range(len(text))]


def check(text: Any, wanted: Any) -> None:
    """The same value as str gives, and every character with its true origin."""
    assert text == wanted
    for part in text if isinstance(text, list | tuple) else [text]:
        assert trusted(part) == [letter in OURS for letter in part]
        if isinstance(part, Text):
            assert all(a < b for a, b in part.spans) and list(part.spans) == sorted(part.spans)
            assert all(left[1] < right[0] for left, right in pairwise(part.spans))


OPERATIONS: list[Callable[[str, str, int], Any]] = [
    lambda t, o, n: t + o,
    lambda t, o, n: o + t,
    lambda t, o, n: t[n:],
    lambda t, o, n: t[:n],
    lambda t, o, n: t[-n : n + 2],
    lambda t, o, n: t.strip(),
    lambda t, o, n: t.lstrip("A a"),
    lambda t, o, n: t.rstrip("\nB"),
    lambda t, o, n: t.strip("|<"),
    lambda t, o, n: t.split(),
    lambda t, o, n: t.split("a"),
    lambda t, o, n: t.split("A", n),
    lambda t, o, n: t.rsplit(None, n),
    lambda t, o, n: t.rsplit("_", 1),
    lambda t, o, n: t.splitlines(),
    lambda t, o, n: t.splitlines(True),
    lambda t, o, n: t.partition("b"),
    lambda t, o, n: t.rpartition("|"),
    lambda t, o, n: t.replace("a", o),
    lambda t, o, n: t.replace("A", o, n),
    lambda t, o, n: t.removeprefix("A"),
    lambda t, o, n: t.removesuffix("<"),
    lambda t, o, n: t.join([o, t, o]),
    lambda t, o, n: t.split("a", n)[-1].lstrip("\n"),
    lambda t, o, n: str(t),
]


@given(PIECES, PIECES, st.sampled_from(OPERATIONS), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_operations_keep_value_and_origin(one: Any, two: Any, operation: Callable[[str, str, int], Any], n: int) -> None:
    text, other = build(one), build(two)
    check(text, "".join(text))
    check(operation(text, other, n), operation(str.__str__(text), str.__str__(other), n))


def test_plain_text_joined_with_the_templates() -> None:
    for text, origin in (
        ("a" + Text.written("B"), [False, True]),
        (Text.written("B") + "a", [True, False]),
        ("" + Text("a"), [False]),
    ):
        assert trusted(text) == origin


def test_what_is_not_followed_is_nobodys() -> None:
    own = Text.written("<|x|>")
    for lost in (f"{own}!", own[::-1], own.center(9), own.zfill(9), "".join(own)):
        assert not any(trusted(lost)) or lost == own
    assert trusted(own.upper()) == [True] * 5 and not any(trusted(Text.written("ß").upper()))


def test_markup_still_escapes() -> None:
    from markupsafe import Markup

    own = Text.written("<b>")
    assert own + Markup("<i>") == "&lt;b&gt;<i>" and Markup("<i>") + own == "<i>&lt;b&gt;"
