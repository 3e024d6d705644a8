"""Keeps JSON within what Python holds: numbers that a float has, integers of some hundred digits, nesting that parsers take."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from edgellm.sampling.pieces import Mask, Pieces

MAX_DIGITS = 180  # of a number before its exponent
MAX_EXPONENT = 2  # digits: 1e180 times 1e99 is far below 1.8e308
MAX_MARK = 200  # bytes of a mark with a name in it
MAX_NESTING = 120  # lists and objects; schemas nest up to 110
LONG_EXPONENT = rb"[0-9.][eE][+-]?[0-9]{3}|^[eE][+-]?[0-9]{3}"
OPENS = (ord("["), ord("{"))
CLOSES = (ord("]"), ord("}"))


class JsonState(NamedTuple):
    """Where JSON stands after some bytes."""

    text: bool = False
    escaped: bool = False
    depth: int = 0
    digits: int = 0  # of the number that is being written
    exponent: int = -1  # digits of its exponent, -1 without one

    def after(self, piece: bytes) -> JsonState:
        """Behind more bytes."""
        text, escaped, depth, digits, exponent = self
        for byte in piece:
            if text:
                escaped, text = (False, True) if escaped else (byte == 0x5C, byte != 0x22)
            elif 0x30 <= byte <= 0x39:
                digits, exponent = digits + (exponent < 0), exponent + (exponent >= 0)
            elif byte in b"eE" and digits:
                exponent = 0
            elif byte not in b"+-.":
                digits, exponent, text = 0, -1, byte == 0x22
                depth += (byte in OPENS) - (byte in CLOSES)
        return JsonState(text, escaped, depth, digits, exponent)


class Values(NamedTuple):
    """Where JSON stands among texts without quotes."""

    following: re.Pattern[bytes]  # what ends a value, or leads to the next one, whose name is a group
    typed: frozenset[bytes]  # names of values that are no texts

    @classmethod
    def of(cls, key: str, close: str, typed: frozenset[str]) -> Values:
        return cls(re.compile(f"{re.escape(close)}|{key}".encode()), frozenset(name.encode() for name in typed))


class ValueState(NamedTuple):
    """Where a text with such values stands after some bytes. `json`: of the value that is being written, None in texts."""

    values: Values
    json: JsonState | None = None
    name: bytes | None = None  # of a value that has no character yet
    held: bytes = b""  # may begin what follows a value

    def after(self, piece: bytes) -> ValueState:
        """Behind more bytes."""
        values, json, name, rest = self.values, self.json, self.name, self.held + piece
        while found := values.following.search(rest):
            json, name = self._begun(json, name, rest[: found.start()])
            if json is not None and json.text:  # within a text of the JSON
                json, rest = json.after(found[0]), rest[found.end() :]
            else:
                json, name, rest = None, found[1] if found.lastindex else None, rest[found.end() :]
        held = rest.find(b"<", max(0, len(rest) - MAX_MARK))
        held = len(rest) if held < 0 else held
        json, name = self._begun(json, name, rest[:held])
        return ValueState(values, json, name, rest[held:])

    def _begun(self, json: JsonState | None, name: bytes | None, text: bytes) -> tuple[JsonState | None, bytes | None]:
        if name is not None and text.strip():
            json, name = JsonState() if name.strip() in self.values.typed or text.strip()[:1] in (b"[", b"{") else None, None
        return json.after(text) if json is not None else None, name


class JsonLimits:
    """The tokens that would go beyond the limits; the answers of a model share it."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces

    def prepare(self) -> None:
        """Make the tables, so that no answer waits for them."""
        for _ in (self._small, self._shorter, self._flat, self._closing):
            pass

    def restrict(self, mask: Mask, state: JsonState | ValueState) -> None:
        """Take them out of a mask."""
        if isinstance(state, ValueState):
            if state.json is None:
                return
            state = state.json
        if state.depth >= MAX_NESTING:
            mask &= self._closing if state.text else self._flat
        if state.text:
            return
        if state.exponent >= 0:
            mask &= self._shorter[min(state.exponent, MAX_EXPONENT)]
        else:
            mask &= self._small
            if state.digits >= MAX_DIGITS:
                mask &= self._shorter[MAX_EXPONENT]

    @cached_property
    def _small(self) -> Mask:
        """No token with a long exponent."""
        return self.pieces.mask_without(self.pieces.having(LONG_EXPONENT))

    @cached_property
    def _shorter(self) -> list[Mask]:
        """No token that brings an exponent of so many digits beyond the limit."""
        beyond = [self.pieces.having(rb"^[+-]?[0-9]{%d}" % n) for n in range(MAX_EXPONENT + 1, 0, -1)]
        return [self.pieces.mask_without(tokens) for tokens in beyond]

    @cached_property
    def _flat(self) -> Mask:
        """No token that opens a list or an object."""
        return self.pieces.mask_without(self.pieces.having(rb"[\[{]"))

    @cached_property
    def _closing(self) -> Mask:
        """No token that ends a text and then opens one."""
        return self.pieces.mask_without([token for token in self.pieces.having(rb"[\[{]") if b'"' in self.pieces[token]])
