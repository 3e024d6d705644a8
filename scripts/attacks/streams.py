"""Streams of text that mean to steer a terminal, cut anywhere."""

from __future__ import annotations

import random
from pathlib import Path

from test_cli_terminal import FORBIDDEN, SEQUENCES

from attacks import Figure
from edgellm.cli.terminal.filter import Filter

PIECES = "\x1b[]P\\;0m\x07\x9b\x9c\n a"


def _stream(source: random.Random) -> list[str]:
    pieces = []
    for _ in range(source.randrange(1, 12)):
        kind = source.random()
        if kind < 0.4:
            piece = source.choice(list(SEQUENCES.values()))
            at = source.randrange(len(piece) + 1)
            pieces += [piece[:at], piece[at:]]
        elif kind < 0.7:
            pieces.append("".join(source.choices(PIECES, k=source.randrange(12))))
        else:
            pieces.append("".join(chr(source.randrange(0x11_0000)) for _ in range(source.randrange(8))))
    return pieces


def filtered(folder: Path, seed: int, n: int) -> Figure:
    """Figure 11: nothing that steers a terminal leaves the filter, and words around named sequences stay."""
    faults, splits = list[str](), 0
    for name, sequence in SEQUENCES.items():
        text = f"before{sequence}after"
        for first in range(len(text) + 1):
            for second in range(first, len(text) + 1):
                keep, splits = Filter(), splits + 1
                if keep(text[:first]) + keep(text[first:second]) + keep(text[second:]) != "beforeafter":
                    faults.append(f"{name} cut at {first} and {second}")
    for case in range(n):
        pieces, keep = _stream(random.Random(f"{seed} {case}")), Filter()
        if FORBIDDEN.search("".join(map(keep, pieces))):
            faults.append(f"stream {case}: {pieces!r}")
    return Figure(
        f"{n:,} random streams, and {len(SEQUENCES)} named sequences cut in {splits:,} ways",
        f"{len(faults)} let a control character through or lost a word",
        faults,
    )
