"""Arguments of kernels by name: emitter and kernel cannot disagree."""

from __future__ import annotations

import pytest

from edgellm.backends.cpu import abi
from edgellm.backends.cpu.record import Signature


def test_words_lie_behind_the_step_block_in_order() -> None:
    words = Signature("a b c")
    assert words(c=3, a=1, b=2) == (1, 2, 3)
    assert [words.at(name) for name in ("step", "a", "c")] == [8 * abi.STEP, 8 * abi.FIRST_ARGUMENT, 8 * (abi.FIRST_ARGUMENT + 2)]
    record = words.record(step=7, c=9)
    assert record[abi.STEP] == 7 and record[abi.FIRST_ARGUMENT + 2] == 9 and record.sum() == 16


def test_forgotten_unknown_and_too_many_words() -> None:
    for values in ({"a": 1}, {"a": 1, "b": 2, "c": 3}):
        with pytest.raises(AssertionError):
            Signature("a b")(**values)
    with pytest.raises(KeyError):
        Signature("a b").at("c")
    with pytest.raises(AssertionError):
        Signature("a a")
    Signature(" ".join(f"a{i}" for i in range(25)))
    with pytest.raises(AssertionError):  # word 27 says what is prefetched
        Signature(" ".join(f"a{i}" for i in range(26)))
