"""The filters and tests of chat templates: jinja2's where they are cheap, each charged to the budget before it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pprint import PrettyPrinter
from typing import IO, Any, cast

from jinja2 import filters as builtin
from jinja2 import pass_environment, pass_eval_context
from jinja2.tests import TESTS

from edgellm.chat import costs
from edgellm.chat.budget import BUDGET, Budget, check_size, exceeded, spans
from edgellm.chat.costs import Rule, Value
from edgellm.chat.provenance import joined

MAX_DIGITS = 1000  # characters of a text that is read as a number
MAX_PATH = 5  # parts of an attribute's path


class Counted:
    """A loop's iterable: counts iterations, and has a length where the original has one."""

    def __init__(self, items: Iterable[Value]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Value]:
        budget = BUDGET.get()
        for item in self._items:
            budget.step()
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]  # jinja2 catches the TypeError of a generator

    def __bool__(self) -> bool:
        return bool(self._items)


class Items(list[Any]):
    """A list in place of jinja2's generator. True also when it is empty, as a generator is."""

    def __bool__(self) -> bool:
        return True


def tojson(
    value: Value,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: no HTML escapes, letters as they are."""
    budget, length, parts = BUDGET.get(), 0, []
    for option in (indent, *(separators or ())):
        check_size(option)
    budget.room(12 * budget.printed(value))
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    for part in encoder.iterencode(value):
        length += len(part)
        budget.length(length)
        budget.step()
        parts.append(part)
    return "".join(parts)


@pass_eval_context
def join(context: Value, value: Iterable[Value], d: str = "", attribute: str | int | None = None) -> str:
    """jinja2's `join`, keeping track of who wrote what."""
    if attribute is not None:
        value = map(builtin.make_attrgetter(context.environment, attribute), value)
    return glue(value, str(d))


def glue(values: Iterable[Value], separator: str) -> str:
    """`separator.join(values)`, all of them turned to text, within the limits."""
    budget, length, parts = BUDGET.get(), 0, []
    for value in values:
        length += budget.printed(value) + len(separator)
        budget.length(length)
        budget.step(100 * (spans(value) + spans(separator)))
        parts.append(str(value))
    budget.items(len(parts))
    budget.room(130 * len(parts) * spans(separator))
    return joined(parts, separator)


def replace(s: Value, old: Value, new: Value, count: int | None = None) -> str:
    """jinja2's `replace`."""
    text, old, new = shown(s), shown(old), shown(new)
    costs.replace(BUDGET.get(), text, (old, new))
    return text.replace(old, new, -1 if count is None else count)


def escape(s: Value) -> str:
    """HTML's escapes, as plain text: what it is joined with later stays as it is."""
    text = shown(s)
    BUDGET.get().length(5 * len(text))
    for letter, name in (("&", "&amp;"), (">", "&gt;"), ("<", "&lt;"), ("'", "&#39;"), ('"', "&#34;")):
        text = replace(text, letter, name)
    return text


def shown(value: Value) -> str:
    """The text of a value in the output."""
    BUDGET.get().printed(value)
    return value if isinstance(value, str) else str(value)


@pass_environment
def total(context: Value, iterable: Iterable[Value], attribute: str | int | None = None, start: Value = 0) -> Value:
    """jinja2's `sum` for numbers: of lists it would be quadratic."""
    if not isinstance(start, int | float):
        raise exceeded("it sums up something else than numbers")
    if attribute is not None:
        iterable = map(builtin.make_attrgetter(context, attribute), iterable)
    return sum(iterable, start)


def urlencode(value: Value) -> str:
    """jinja2's `urlencode`."""
    text = shown(value) if not isinstance(value, dict | list | tuple) else value
    budget = BUDGET.get()
    budget.length(12 * budget.printed(text))
    budget.step(200 * budget.printed(text))
    budget.room(60 * budget.printed(text))  # a list of the bytes
    return builtin.do_urlencode(text)


@pass_environment
def wordwrap(
    context: Value,
    s: Value,
    width: int = 79,
    break_long_words: bool = True,
    wrapstring: str | None = None,
    break_on_hyphens: bool = True,
) -> str:
    """jinja2's `wordwrap`. Wrapping takes about 1 us a character, and a long word is copied for each line of it."""
    text, budget = shown(s), BUDGET.get()
    for option in (width, wrapstring):
        check_size(option)
    least = max(1, width) if isinstance(width, int) else 1
    costs.lines(budget, text)
    budget.step(1000 * len(text) + len(text) ** 2 // least)
    budget.room(60 * len(text))
    budget.length(len(text) + (costs.count_lines(text) + 2 * len(text) // least + 1) * costs.size(wrapstring))
    return builtin.do_wordwrap(context, text, width, break_long_words, wrapstring, break_on_hyphens)


def striptags(value: Value) -> str:
    """jinja2's `striptags`, as plain text; every tag copies the text once."""
    text, budget = shown(value), BUDGET.get()
    budget.step(10 * len(text) * text.count("<") + 5000 * text.count("&"))
    budget.room(60 * len(text))
    return str.__str__(builtin.do_striptags(text))


@pass_eval_context
def xmlattr(context: Value, d: Value, autospace: bool = True) -> str:
    """jinja2's `xmlattr`. A character that is escaped becomes five."""
    budget = BUDGET.get()
    length = sum(budget.printed(part) for pair in d.items() for part in pair)
    budget.length(5 * length)
    budget.step(1000 * len(d) + 20 * length)
    return builtin.do_xmlattr(context, d, autospace)


def pretty(value: Value) -> str:
    """jinja2's `pprint`."""
    out = Printed(value)
    PrettyPrinter(stream=cast("IO[str]", out)).pprint(value)
    return "".join(out.parts).removesuffix("\n")


class Printed:
    """The file that Python's `pprint` writes to. Before each part it may print all of the value, to see if it fits a line."""

    def __init__(self, value: Value) -> None:
        self.parts: list[str] = []
        self._length, self._budget = 0, BUDGET.get()
        self._budget.printed(value)
        entries, characters = self._budget.weigh(value)
        self._budget.room(900 * entries + 40 * characters)
        self._work = 3000 * entries + 300 * characters
        self._budget.step(self._work)

    def write(self, part: str) -> None:
        self._length += len(part)
        self._budget.length(self._length)
        self._budget.step(self._work)
        self.parts.append(part)


def _text(rule: Rule) -> Rule:
    """A rule for filters that turn any value to text first."""

    def charged(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
        budget.printed(value)
        rule(budget, value, arguments)

    return charged


def _counts(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    """Widths and counts."""
    for option in arguments:
        check_size(option)
    _each(budget, value, ())


def _each(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    """An object for every character of a text, or for every entry: by an attribute's path, or in order."""
    if isinstance(value, str):
        costs.pieces(budget, value, len(value))
    entries, characters = budget.weigh(value)
    for option in arguments:
        check_name(option)
    budget.step(3000 * entries + 20 * characters)
    budget.room(16 * characters)


def check_name(option: Value) -> None:
    costs.check_name(option)
    if isinstance(option, str) and option.count(".") + option.count(",") > MAX_PATH:
        raise exceeded(f"it follows a path of more than {MAX_PATH} attributes")


def _number(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        raise exceeded(f"it reads a number of {len(value)} characters")
    budget.step()


def _named(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    for option in arguments[:1]:
        check_name(option)
    budget.step(100)


def _words(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    costs.pieces(budget, value, costs.size(value) // 2)


def _by_test(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    """`selectattr(path, test, text)`: the text may be long."""
    _each(budget, value, arguments[:1])


def _mapped(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    """`map(filter, ...)` or `map(attribute=path, default=...)`."""
    _each(budget, value, arguments[:2])


def _join(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    """`join(separator, path)`."""
    _each(budget, value, arguments[1:])


def _in(budget: Budget, value: Value, arguments: tuple[Value, ...]) -> None:
    costs.contains(budget, costs.argument(arguments, 0), (value,))


FILTERS: dict[str, tuple[Callable[..., Value], Rule]] = {
    name: (cast("Callable[..., Value]", function or builtin.FILTERS[name]), rule)
    for name, function, rule in (
        ("abs", None, costs.free),
        ("attr", None, _named),
        ("batch", None, _counts),
        ("capitalize", None, _text(costs.recase)),
        ("center", None, costs.pad),
        ("count", None, costs.free),
        ("d", None, costs.free),
        ("default", None, costs.free),
        ("dictsort", None, _each),
        ("e", escape, costs.scan),
        ("escape", escape, costs.scan),
        ("filesizeformat", None, _number),
        ("first", None, costs.free),
        ("float", None, _number),
        ("format", None, costs.formatting),
        ("groupby", None, _each),
        ("indent", None, costs.indent),
        ("int", None, _number),
        ("items", None, _each),
        ("join", join, _join),
        ("last", None, costs.free),
        ("length", None, costs.free),
        ("list", None, _each),
        ("lower", None, _text(costs.recase)),
        ("map", None, _mapped),
        ("max", None, _each),
        ("min", None, _each),
        ("pprint", pretty, costs.free),
        ("reject", None, _by_test),
        ("rejectattr", None, _by_test),
        ("replace", replace, costs.free),
        ("reverse", None, costs.scan),
        ("round", None, _counts),
        ("safe", shown, costs.scan),
        ("select", None, _by_test),
        ("selectattr", None, _by_test),
        ("slice", None, _counts),
        ("sort", None, _each),
        ("string", shown, costs.scan),
        ("striptags", striptags, costs.free),
        ("sum", total, _each),
        ("title", None, _text(_words)),
        ("tojson", tojson, costs.free),
        ("trim", None, _text(costs.search_back)),
        ("truncate", None, costs.pad),
        ("unique", None, _each),
        ("upper", None, _text(costs.recase)),
        ("urlencode", urlencode, costs.free),
        ("wordcount", None, _text(_words)),
        ("wordwrap", wordwrap, costs.free),
        ("xmlattr", xmlattr, costs.free),
    )
}
# These go through what they are given in Python, without a step of their own.
LOOPING = frozenset(
    {
        "batch",
        "groupby",
        "join",
        "list",
        "map",
        "max",
        "min",
        "reject",
        "rejectattr",
        "select",
        "selectattr",
        "slice",
        "sort",
        "sum",
        "unique",
    }
)


def guarded(name: str, function: Callable[..., Value], rule: Rule) -> Callable[..., Value]:
    """A filter or test that counts as a step and is looked at before and after."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def called(*args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        if len(args) > first:
            rule(budget, args[first], (*args[first + 1 :], *kwargs.values()))
            if name in LOOPING and not isinstance(args[first], str):
                args = (*args[:first], Counted(args[first]), *args[first + 1 :])
        value = function(*args, **kwargs)
        if hasattr(value, "__next__"):
            value = Items(Counted(value))
        budget.made(value)
        return value

    return called


def guarded_filters() -> dict[str, Callable[..., Value]]:
    return {name: guarded(name, function, rule) for name, (function, rule) in FILTERS.items()}


def guarded_tests() -> dict[str, Callable[..., Value]]:
    return {
        name: guarded(f"test {name}", cast("Callable[..., Value]", function), _in if name == "in" else costs.compare)
        for name, function in TESTS.items()
    }
