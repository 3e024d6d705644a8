"""The grammars of an answer's calls: where one has begun in what a model wrote, and what may follow of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgellm.api.forms.form import marks_in
from edgellm.api.tools import Toolbox
from edgellm.chat.families import Format, Openings, plain, ways
from edgellm.chat.schemas import argument_of, variants
from edgellm.errors import SchemaError
from edgellm.sampling.constraint import AnyConstraint, GrammarConstraint, TokenConstraint
from edgellm.sampling.json_limits import JsonLimits, JsonState, Values, ValueState
from edgellm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from edgellm.sampling.matcher import Matcher, TokenTree


class CallGrammars:
    """See `sampling.channels.Calls`. A grammar is compiled when a call of its kind first begins."""

    def __init__(
        self,
        tools: Toolbox,
        grammars: Mapping[str, str],
        tree: Callable[[], TokenTree],
        n_vocab: int,
        tokenizer: Tokenizer,
        limits: JsonLimits | None = None,
    ) -> None:
        """`grammars`: by the names of formats; those of others are made when one is needed. `limits`: of the JSON in calls."""
        self._limits, self._tools, self._mark = limits, tools, marks_in(tokenizer)
        self._grammars, self._tree, self._n_vocab, self._tokenizer = grammars, tree, n_vocab, tokenizer
        self._openings = Openings(ways(tools.format, plain(tools.allowed or tools.tools)), _spelled)
        self._typed = frozenset(
            name
            for tool in plain(tools.allowed or tools.tools)
            for each in variants(tool.name, tool.parameters)
            for name, schema in each["properties"].items()
            if not argument_of(schema, tool.parameters).texts
        )
        self._names = [_spelled(tool.name) for tool in tools.allowed or tools.tools]
        self.addresses = [f"<|channel|>commentary to=functions.{name}".encode("latin-1") for name in self._names]
        marks = {
            text
            for format in ways(tools.format, tools.tools)
            for text in (*format.markers, *format.unseen, *format.openers, *format.closers)
        }
        self._control = {
            text: token for text in marks if (token := tokenizer.token_id(text)) is not None and tokenizer.is_control(token)
        }
        self._split = re.compile("|".join(map(re.escape, sorted(self._control, key=len, reverse=True)))) if self._control else None

    def begun(self, text: bytes, *, said: bool, mid_line: bool, thinking: bool) -> TokenConstraint | int:
        """See `sampling.channels.Calls`."""
        spelled, done = text.decode("latin-1"), 0
        while True:
            mid_line = mid_line if done == 0 else not spelled[:done].endswith("\n")
            opening = self._openings.find(spelled[done:], begun=said or done > 0, mid_line=mid_line, thinking=thinking)
            if opening is None:
                return done
            at, opener, format = done + opening.at, opening.opener, opening.format
            there = spelled[at:]
            if format.shows and not any(format.shows.replace("{}", name) in there for name in self._names):
                return at  # text may begin like that
            if (thinking or format.first) and not there[len(opener) :].strip() and not format.whole_body:
                return at  # the text may name the mark alone
            block = there[len(opener) :]
            likely = [format.suited(block)] if block.strip() else [format, *format.others]
            if fitting := [each for each in map(partial(self._rest, there), likely) if each is not None]:
                return fitting[0] if len(fitting) == 1 else AnyConstraint(fitting)
            done = at + max(1, len(opener))  # it is no call of these tools

    def _rest(self, there: str, format: Format) -> TokenConstraint | None:
        """The rest of a call that may follow in a format; None where the text does not fit it."""
        if (matcher := self._matcher(format, there)) is None:
            return None
        begun = JsonState() if format.values is None else ValueState(Values.of(*format.values, self._typed))
        return GrammarConstraint(lambda: matcher, self._n_vocab, self._limits, begun.after(there.encode("latin-1")))

    def _matcher(self, format: Format, there: str) -> Matcher | None:
        """The continuation of a call's text in its grammar, None where it does not fit."""
        if (grammar := self._grammars.get(format.name)) is None:
            try:
                grammar = self._tools.grammar(format, self._mark)
            except SchemaError:  # names that these tags cannot hold
                return None
        matcher = self._tree().matcher(grammar)
        tokens = self._tokens(there.encode("latin-1").decode(errors="replace"))
        return None if matcher.is_error() or matcher.try_consume_tokens(tokens) < len(tokens) else matcher

    def _tokens(self, text: str) -> list[int]:
        """The text so far, as tokens of the matcher: control tokens are marks."""
        found, at = list[int](), 0
        for mark in self._split.finditer(text) if self._split is not None else ():
            found += [*self._tree().tokenize(text[at : mark.start()].encode()), self._control[mark[0]]]
            at = mark.end()
        return [*found, *self._tree().tokenize(text[at:].encode())]


def _spelled(text: str) -> str:
    """A text as its bytes are read as latin-1."""
    return text.encode().decode("latin-1")
