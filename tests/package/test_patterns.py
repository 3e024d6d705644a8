"""Foreign regular expressions: what `re` says of them, in linear time; and which ones a backtracking engine may run."""

from __future__ import annotations

import random
import re
import time

import pytest
from seeds import seed

from edgellm.patterns import LinearPattern, check_cuts
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS

ATOMS = ("a", "b", ".", r"\.", "[ab]", "[^a]", r"\w", r"\d", "^", "$", r"\x61", "{")
TIMES = ("*", "+", "?", "{2}", "{1,3}", "{,2}", "*?", "")


def drawn(source: random.Random, depth: int = 0) -> str:
    kind = source.random()
    if depth > 3 or kind < 0.4:
        return source.choice(ATOMS)
    if kind < 0.6:
        return f"(?:{drawn(source, depth + 1)}|{drawn(source, depth + 1)})"
    if kind < 0.8:
        return f"({drawn(source, depth + 1)}{drawn(source, depth + 1)}){source.choice(TIMES)}"
    return drawn(source, depth + 1) + drawn(source, depth + 1)


def test_as_re_matches() -> None:
    source, matched = random.Random(seed(1)), 0
    for _ in range(1500):
        text = drawn(source)
        pattern, wanted = LinearPattern(text), re.compile(text)
        for _ in range(6):
            word = "".join(source.choice("ab.1{") for _ in range(source.randint(0, 7)))
            assert pattern.fullmatch(word) == (wanted.fullmatch(word) is not None), (text, word)
            matched += pattern.fullmatch(word)
    assert matched > 500


@pytest.mark.parametrize("text", [r"(a+)+!", "(a|a)*!", "(a?){50}a{50}!", "(.*)*(.*)*!", "((a*)*)*!"])
def test_without_trying_again(text: str) -> None:
    start = time.process_time()
    assert not LinearPattern(text).fullmatch("a" * 2000) and time.process_time() - start < 5


@pytest.mark.parametrize(
    "text", ["(", ")", "a)", "*a", "a**", "[a", r"(a)\1", "(?=a)", r"\bа", "a{3,1}", "(?i:a)", "(a{999}){999}"]
)
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(ValueError):
        LinearPattern(text)


def test_cuts_of_the_table_pass_but_two() -> None:
    """Of these two alternatives are trusted: letters and marks exclude each other, and so do the letters of an image's tokens."""
    refused = set()
    for name, row in PRE_TOKENIZERS.items():
        for text in row.expressions:
            try:
                check_cuts(text)
            except ValueError:
                refused.add(name)
    assert refused == {"exaone-moe", "chameleon"}


@pytest.mark.parametrize(
    "text",
    [
        r"(a+)+$",
        "(a|a)+!",
        "a*a*a*!",
        r"\s*\w*!",
        "(?:a?){50}b",
        "(.*)*x",
        r"(?=(a+)+b)",
        "((a{1,20}){1,20}){1,20}b",
        "a{0,999}a{0,999}b",
    ],
)
def test_cuts_that_may_take_for_ever(text: str) -> None:
    with pytest.raises(ValueError):
        check_cuts(text)
    check_cuts(text, {text})
