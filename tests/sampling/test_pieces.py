"""Tokens found by their bytes, as a look at each of them finds them."""

from __future__ import annotations

import random
import re

import pytest

from edgellm.sampling.pieces import Pieces

SOURCE = random.Random(1)
TEXTS = [bytes(SOURCE.choices(b'0129eE+-.x[{"\x00 \n', k=SOURCE.randrange(7))) for _ in range(9000)] + [b""]


@pytest.mark.parametrize("pattern", [rb"[0-9.][eE][+-]?[0-9]{3}|^[eE][+-]?[0-9]{3}", rb"^[+-]?[0-9]{2}", rb"[\[{]", rb"^[ \n]"])
def test_tokens_are_those_that_a_look_at_each_finds(pattern: bytes) -> None:
    pieces = Pieces(TEXTS)
    wanted = [token for token, piece in enumerate(TEXTS) if re.search(pattern, piece)]
    assert wanted and pieces.having(pattern) == wanted
    mask = pieces.mask_without(wanted)
    assert len(mask) == pieces.n_words
    assert [token for token in range(len(TEXTS)) if not mask[token // 32] >> token % 32 & 1] == wanted
