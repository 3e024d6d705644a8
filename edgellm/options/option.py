"""A row of the option table, and the checks of values, typed or given in Python, that follow from it."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Literal, cast

from edgellm.errors import OptionError

MAX_NUMBER = 1e6  # of what multiplies or is added to float32 logits, which end at 3e38
MAX_INTEGER = 2**63 - 1
Part = Literal["sampling", "generation", "chat", "loading", "tools", "serving"]
_KINDS = {int: "a whole number", float: "a number", bool: "True or False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `low` to `high`, both included, is the range of numbers; `values` are the texts that there are."""

    name: str = ""  # in Python
    kind: type = str  # int, float, bool or str; list: of texts, the flag may be repeated
    default: object = None
    low: float = -math.inf
    high: float = math.inf
    least: float | None = None  # of what may be typed, where Python code may give less
    unset: tuple[int, str] | None = None  # the number that means `unset_value` where it is typed, in words
    unset_value: object = None
    values: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()  # texts that completion offers, where others are possible
    flags: tuple[str, ...] = ()  # the first is the one that messages name; the Python name's where none is given
    metavar: str = "X"
    help: str = ""
    usual: str = ""  # the default in words, where `default` does not say it
    gguf: str = ""  # the metadata key with which a model file recommends a value
    part: Part = "sampling"
    listed: bool = True  # by --help; the others stand in docs/options.md

    def __post_init__(self) -> None:
        if self.name and not self.flags:
            object.__setattr__(self, "flags", (f"--{self.name.replace('_', '-')}",))

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return self.flags[0]

    @property
    def typed_names(self) -> tuple[str, ...]:
        """The names in a chat's /set, the first of which is shown: the flags without dashes, and the Python name."""
        names = [flag.partition("/")[0].lstrip("-") for flag in self.flags]
        return tuple(dict.fromkeys([*names, self.name.replace("_", "-")]))

    @property
    def default_words(self) -> str:
        """The default as help and documentation show it."""
        if self.usual or self.default is None:
            return self.usual or "none"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    def check(self, value: object) -> None:
        """Raises OptionError where Python code may not give this value."""
        if value is None and self.default is None:
            return
        if self.values:
            if not isinstance(value, str) or value not in self.values:
                self._refuse(value, self.range_words())
        elif self.kind in _KINDS:
            if not _has_kind(value, self.kind):
                self._refuse(value, _KINDS[self.kind])
            number = cast(float, value)  # or an int of any length; NaN is in no range
            if not self.low <= number <= self.high:
                self._refuse(value, self.range_words(number))

    def number(self, value: object) -> int | None:
        """A whole number that Python code gave, as an int. Raises OptionError."""
        self.check(value)
        return None if value is None else int(cast(int, value))

    def check_typed(self, value: object) -> None:
        """Raises OptionError where nobody may type this value on the command line or in a chat."""
        if self.kind not in (int, float) or value is None:
            return self.check(value)
        number = cast(float, value)
        low = self.low if self.least is None else self.least
        if self.unset is not None and number == self.unset[0]:
            return None
        if not low <= number <= self.high or math.isinf(number):
            after = f", or {self.unset[0]} {self.unset[1]}" if self.unset else ""
            self._refuse(value, self.range_words(number, low) + after)
        return None

    def read(self, text: str) -> object:
        """The value that a person typed. Raises OptionError."""
        if self.kind is bool:
            if text not in ("on", "off"):
                self._refuse(text, "on or off")
            return text == "on"
        value: object = text
        if self.kind in (int, float):
            try:
                value = self.kind(text)
            except ValueError:
                self._refuse(text, _KINDS[self.kind])
        self.check_typed(value)
        return self.meant(value)

    def meant(self, typed: object) -> object:
        """The library's value for a typed one."""
        return self.unset_value if self.unset is not None and typed == self.unset[0] else typed

    def range_words(self, number: float = math.nan, low: float | None = None) -> str:
        """The values that are possible, for an error of `number`."""
        if self.values:
            return f"{', '.join(self.values[:-1])} or {self.values[-1]}"
        low = self.low if low is None else low
        if number == math.inf or (low <= -MAX_NUMBER and self.high >= MAX_NUMBER):
            return "a whole number" if self.kind is int else "a finite number"
        if low <= -MAX_NUMBER or (number > self.high >= MAX_NUMBER):
            return f"{self.high:.0f} or less"
        if self.high < MAX_NUMBER:
            kind = "whole number" if self.kind is int else "number"
            return f"a {kind} from {low:g} to {self.high:g}"
        return "more than 0" if low == 1 / MAX_NUMBER else f"{low:g} or more"

    def _refuse(self, value: object, possible: str) -> None:
        raise OptionError(option=self.name, value=value, advice=f"give {possible}")


def _has_kind(value: object, kind: type) -> bool:
    if type(value) is kind:  # nearly always, and much faster than a class of `numbers`
        return True
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, numbers.Integral if kind is int else numbers.Real)
