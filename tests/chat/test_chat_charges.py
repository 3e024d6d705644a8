"""Every method, filter, test and global that a chat template may use, over and over: what they make is charged, within 64 MiB."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from itertools import islice

import pytest

from edgellm.chat import ChatTemplate, costs
from edgellm.chat.budget import Budget
from edgellm.chat.filters import FILTERS
from edgellm.chat.sandbox import ChatEnvironment
from edgellm.errors import TemplateError

PROMISED = 64 << 20
DRAWN = 3  # expressions that can be rendered, of each name
TURNS = 40  # of a macro that calls itself, so that all of them are kept
SMALL, LARGE = (2, 2, 2), (480_000, 300, 60)  # of a text of four bytes a character, of lists
GIVEN = (
    "{{% set t = 'b\n ' ~ '\U0001f600' * {0} ~ ' x' %}}{{% set l = ['\U0001f600b' * 300 ~ ' x'] * {1} %}}"
    "{{% set d = {{'k': t, 'x': [t[:90]] * {1}}} %}}{{% set r = [{{'k': t[:4000], 'x': 1}}] * {2} %}}{{% set n = [1, 7] * {2} %}}"
)
OWNERS = {str: ("t",), list: ("l",), tuple: ("(d.items() | first)",), dict: ("d",), range: ("range(9)",)}
ARGUMENTS = ("", "'x'", "2", "t", "l", "'x', t", "2, 'x'", "'k'", "attribute='k'", "'k', 'in', 'x'", "'upper'", "l[0]", "{0: 1}")


def calls() -> dict[str, list[str]]:
    """The expressions to try, by what they call; the names are those of the sandbox's own tables."""
    environment, found = ChatEnvironment(), dict[str, list[str]]()
    for kind, names in costs.METHODS.items():
        for name in names:
            found[f"{kind.__name__}.{name}"] = [f"{owner}.{name}({given})" for owner in OWNERS[kind] for given in ARGUMENTS]
    for name in FILTERS:
        found[f"| {name}"] = [
            f"{value} | {name}({given})" for value in ("t", "t[:9000]", "l", "d", "r", "n", "7") for given in ARGUMENTS[:11]
        ]
    for name in environment.tests:
        if name.isidentifier():
            found[f"is {name}"] = [f"{value} is {name}({given})" for value in ("t", "l", "7") for given in ARGUMENTS[:5]]
    for name in environment.globals:
        found[name] = [f"{name}({given})" for given in (*ARGUMENTS, "k=t", "[['a', t]]")]
    found["cycler"].append("cycler(t, t[1:]).next()")
    return found


CALLS = calls()


def render(expression: str, sizes: Sequence[int], turns: int) -> TemplateError | None:
    macro = f"{{% macro f(left) %}}{{% set q = {expression} %}}{{% if left %}}{{{{ f(left - 1) }}}}{{% endif %}}{{% endmacro %}}"
    try:
        ChatTemplate(f"{GIVEN.format(*sizes)}{macro}{{{{ f({turns}) }}}}").render([{"role": "user", "content": "x"}])
    except TemplateError as error:
        return error
    return None


def peak(expression: str) -> int:
    """Bytes that a template of this expression takes at most."""
    tracemalloc.start()
    try:
        render(expression, LARGE, TURNS)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_made_over_and_over_is_charged(every: int) -> None:
    over = dict[str, int]()
    for name, tried in list(CALLS.items())[::every]:
        drawn = random.Random(name).sample(tried, len(tried))
        possible = list(islice((each for each in drawn if render(each, SMALL, 2) is None), DRAWN))
        assert possible or name == "raise_exception", f"{name} is never called"
        over |= {each: most >> 20 for each in possible if (most := peak(each)) > PROMISED}
    assert not over, "MiB"


def free(budget: Budget, value: costs.Value, arguments: tuple[costs.Value, ...]) -> None:
    """The rule of something that costs nothing."""


@pytest.mark.parametrize("name", ["partition", "rpartition", "split", "rsplit", "splitlines"])
def test_what_is_not_charged_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(costs.STR_METHODS, name, free)
    assert max(peak(f"t.{name}({given})") for given in ("", "'x'") if (name == "splitlines") == (not given)) > PROMISED
