"""The rows of one answer: its length, what ends it, drafts, structured output, thinking."""

from __future__ import annotations

from functools import partial

from edgellm.options.option import MAX_INTEGER, Option

UNLIMITED = "unlimited"
_row = partial(Option, part="generation")
MAX_TOKENS = _row(
    name="max_tokens",
    kind=int,
    low=0,
    high=MAX_INTEGER,
    unset=(-1, "for no limit"),
    unset_value=UNLIMITED,
    usual="as many as the context holds",
    flags=("-n", "--predict", "--n-predict", "--max-tokens"),
    metavar="N",
    help="Maximum number of tokens to generate; -1 for no limit.",
)
STOP = _row(name="stop", kind=list, metavar="TEXT", help=r"End the answer before this text (\n is a line break). May be repeated.")
CONTEXT_POLICY = _row(
    name="context_policy",
    values=("ring", "drop-oldest-turns", "error"),
    usual="ring",
    metavar="NAME",
    help="When the context is full: ring (evict the oldest tokens), drop-oldest-turns (drop whole turns, but not the system "
    "prompt) or error.",
)
DRAFT = _row(
    name="draft",
    suggestions=("ngram",),
    metavar="ngram|MODEL",
    help="Speculative decoding, by prompt lookup (ngram) or with a small model of the same vocabulary. With ngram, or at "
    "temperature 0, or with a seed, the output is identical; with a draft model and no seed it is another sample from the "
    "same distribution.",
)
SCHEMA = _row(name="schema", metavar="FILE|JSON", help="Constrain the output to this JSON schema: a file, or the schema itself.")
CHOICES = _row(
    name="choices", metavar="A,B,...", help="Constrain the output to one of these texts; give a JSON list if they contain commas."
)
REGEX = _row(name="regex", metavar="REGEX", help="Constrain the output to match this regular expression as a whole.")
GRAMMAR = _row(
    name="grammar",
    metavar="FILE",
    help="Constrain the output to the grammar in this file: Lark's syntax from its rule `start`, or llama.cpp's GBNF from `root`.",
)
LOGPROBS = _row(
    name="logprobs",
    kind=int,
    low=0,
    high=100,
    metavar="K",
    help="With --json: the log probability of each token, and of the K most likely.",
)
THINK = Option(
    name="think",
    kind=bool,
    usual="up to the chat template",
    flags=("--think/--no-think",),
    help="Turn thinking before the answer on or off. Thinking is shown in a terminal only.",
    part="chat",
)
THINK_BUDGET = Option(
    name="think_budget",
    kind=int,
    low=0,
    high=MAX_INTEGER,
    unset=(-1, "for no limit"),
    usual="no limit",
    metavar="N",
    help="End thinking after N tokens.",
    part="chat",
)
THINK_MESSAGE = Option(
    name="think_message", metavar="TEXT", help="Close thinking with this sentence where --think-budget ends it.", part="chat"
)
BAN = _row(
    name="ban",
    kind=list,
    metavar="TEXT",
    help=r"Never write this text (\n is a line break): the answer goes back to where it began. May be repeated.",
)
ECHO = _row(
    name="echo",
    kind=bool,
    default=False,
    help="With --json: log probabilities of the prompt as well, and of the most likely tokens with --logprobs.",
)

GENERATION = (
    *(MAX_TOKENS, STOP, BAN, CONTEXT_POLICY, DRAFT, SCHEMA, CHOICES, REGEX, GRAMMAR, LOGPROBS, ECHO),
    *(THINK, THINK_BUDGET, THINK_MESSAGE),
)
