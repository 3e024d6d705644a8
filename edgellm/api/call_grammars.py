"""The grammars of an answer's calls: where one has begun in what a model wrote, and what may follow of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from edgellm.api.tools import Toolbox
from edgellm.chat.families import Openings, plain, ways
from edgellm.sampling.constraint import GrammarConstraint, TokenConstraint
from edgellm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer


class CallGrammars:
    """See `sampling.channels.Calls`. A grammar is compiled when a call of its kind first begins, and copied for the next."""

    def __init__(
        self, tools: Toolbox, grammars: Mapping[str, str], tree: Callable[[], LLTokenizer], n_vocab: int, tokenizer: Tokenizer
    ) -> None:
        """`grammars`: by the names of formats."""
        self._grammars, self._tree, self._n_vocab, self._tokenizer = grammars, tree, n_vocab, tokenizer
        self._openings = Openings(ways(tools.format, plain(tools.allowed or tools.tools)), _spelled)
        self._names = [_spelled(tool.name) for tool in tools.allowed or tools.tools]
        self._compiled: dict[str, LLMatcher] = {}
        marks = {text for format in ways(tools.format, tools.tools) for text in (*format.markers, *format.openers, *format.closers)}
        self._control = {
            text: token for text in marks if (token := tokenizer.token_id(text)) is not None and tokenizer.is_control(token)
        }
        self._split = re.compile("|".join(map(re.escape, sorted(self._control, key=len, reverse=True)))) if self._control else None

    def begun(self, text: bytes, *, said: bool, mid_line: bool, thinking: bool) -> TokenConstraint | int:
        """See `sampling.channels.Calls`."""
        spelled = text.decode("latin-1")
        opening = self._openings.find(spelled, begun=said, mid_line=mid_line, thinking=thinking)
        if opening is None:
            return 0
        at, opener, format = opening
        if format.at_start and not any(format.shows.format(name) in spelled[at:] for name in self._names):
            return 0  # text may begin like that
        in_body = format.at_start or format.keeps_closer  # the opener is
        there = spelled[at if in_body and format.keeps_opener else at + len(opener) :].encode("latin-1").decode(errors="replace")
        if (thinking or format.first) and not there.strip():
            return 0  # the text may name the mark alone
        if format.name not in self._compiled:
            from llguidance import LLMatcher

            self._compiled[format.name] = LLMatcher(self._tree(), self._grammars[format.name], log_level=0)
        matcher = self._compiled[format.name].deep_copy()
        tokens = self._tokens(there)
        if matcher.is_error() or matcher.try_consume_tokens(tokens) < len(tokens):
            return at + max(1, len(opener))  # it is no call of these tools
        return GrammarConstraint(lambda: matcher, self._n_vocab)

    def _tokens(self, text: str) -> list[int]:
        """The text so far, as tokens of the matcher: control tokens are marks."""
        found, at = list[int](), 0
        for mark in self._split.finditer(text) if self._split is not None else ():
            found += [*self._tree().tokenize_bytes(text[at : mark.start()].encode()), self._control[mark[0]]]
            at = mark.end()
        return [*found, *self._tree().tokenize_bytes(text[at:].encode())]


def _spelled(text: str) -> str:
    """A text as its bytes are read as latin-1."""
    return text.encode().decode("latin-1")
