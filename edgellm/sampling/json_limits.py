"""Keeps JSON within what Python holds: numbers that a float has, integers of some hundred digits, nesting that parsers take."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]  # as in constraint.py
MAX_DIGITS = 180  # of a number before its exponent
MAX_EXPONENT = 2  # digits: 1e180 times 1e99 is far below 1.8e308
MAX_NESTING = 120  # lists and objects; schemas nest up to 110
LEADING = re.compile(rb"[+-]?([0-9]*)")
EXPONENT = re.compile(rb"[0-9.][eE][+-]?[0-9]{3}|^[eE][+-]?[0-9]{3}")
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


class JsonLimits:
    """The tokens that would go beyond the limits; the answers of a model share it."""

    def __init__(self, pieces: Sequence[bytes], n_vocab: int) -> None:
        self.pieces, self._n_words = pieces, (n_vocab + 31) // 32

    def restrict(self, mask: Mask, state: JsonState) -> None:
        """Take them out of a mask."""
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
        return self._without(lambda piece: EXPONENT.search(piece) is not None)

    @cached_property
    def _shorter(self) -> list[Mask]:
        """No token that brings an exponent of so many digits beyond the limit."""

        def beyond(n: int) -> Callable[[bytes], bool]:
            return lambda piece: n + len(LEADING.match(piece)[1]) > MAX_EXPONENT  # type: ignore[index]  # it matches nothing as well

        return [self._without(beyond(n)) for n in range(MAX_EXPONENT + 1)]

    @cached_property
    def _flat(self) -> Mask:
        """No token that opens a list or an object."""
        return self._without(lambda piece: b"[" in piece or b"{" in piece)

    @cached_property
    def _closing(self) -> Mask:
        """No token that ends a text and then opens one."""
        return self._without(lambda piece: b'"' in piece and (b"[" in piece or b"{" in piece))

    def _without(self, bad: Callable[[bytes], bool]) -> Mask:
        mask = np.full(self._n_words, 0xFFFFFFFF, np.uint32)
        for token, piece in enumerate(self.pieces):
            if bad(piece):
                mask[token // 32] &= np.uint32(~(1 << token % 32) & 0xFFFFFFFF)
        return mask
