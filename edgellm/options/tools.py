"""The rows of the tools that read a text in windows: perplexity and imatrix."""

from __future__ import annotations

from edgellm.options.option import MAX_INTEGER, Option

STRIDE = Option(
    name="stride",
    kind=int,
    low=1,
    high=MAX_INTEGER,
    flags=("--stride", "--ppl-stride"),
    metavar="N",
    help="Start a window every N tokens and score its last N.",
    part="tools",
)
CHUNKS = Option(
    name="chunks",
    kind=int,
    low=1,
    high=MAX_INTEGER,
    usual="the whole text",
    metavar="N",
    help="Stop after N windows.",
    part="tools",
)

TOOLS = (STRIDE, CHUNKS)
