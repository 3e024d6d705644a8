"""A model's vocabulary as grammars and thinking see it: built once, when an answer first has a form."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from edgellm.api.forms.call_grammars import CallGrammars
from edgellm.api.forms.form import Form, check_grammar, marks_in
from edgellm.api.tools import Toolbox
from edgellm.chat.families import with_forms
from edgellm.chat.thinking import HARMONY, Free, Marks
from edgellm.sampling.channels import ChannelConstraint, Channels, ChannelTokens, Headers
from edgellm.sampling.constraint import GrammarConstraint, TokenConstraint
from edgellm.sampling.json_limits import JsonLimits
from edgellm.sampling.matcher import TokenTree, token_tree
from edgellm.sampling.pieces import Pieces
from edgellm.tokenizer import Tokenizer


class GrammarVocabulary:
    """Makes the constraints of answers. The tree of all tokens takes 0.4 s for 150k of them, beside the prompt's first steps."""

    def __init__(self, tokenizer: Tokenizer, n_vocab: int) -> None:
        self._tokenizer, self._n_vocab = tokenizer, n_vocab
        self._lock = threading.Lock()
        self._tree: TokenTree | None = None
        self._building: threading.Thread | None = None
        self._marked: dict[Marks | None, ChannelTokens] = {}

    def constraint(self, form: Form | None, free: Free | None, tools: Toolbox | None = None) -> TokenConstraint | None:
        """A constraint that keeps an answer in its form behind its thinking, and calls in their grammar. Raises SchemaError."""
        mark = marks_in(self._tokenizer)
        if form is not None and free is not None and free.marks.answer is not None:
            form = replace(form, grammar=with_forms(f"start: {mark(free.marks.answer.open)}? @form", form=form.grammar))
        inner = self._formed(form) if form is not None else None
        if tools is None and (free is None or (inner is None and free.budget is None)):
            return inner
        channels = Channels(self._channel_tokens(free.marks if free is not None else None), inner)
        if free is not None:
            inside = free.inside or free.marks is HARMONY  # whose messages before the last stand in the place of thinking
            message = tuple(self._tokenizer.encode_continuation(free.message))
            channels = replace(channels, inside=inside, may_open=free.may_open, budget=free.budget, message=message)
        if tools is not None:
            first = self._formed(tools.first_call(mark)) if tools.must or inner is not None else None
            channels = replace(channels, calls=self._calls(tools), first=first, once=tools.once)
        return ChannelConstraint(channels)

    def _calls(self, tools: Toolbox) -> CallGrammars:
        grammars = tools.grammars(marks_in(self._tokenizer))
        self._start_building()
        return CallGrammars(tools, grammars, self._built, self._n_vocab + 1, self._tokenizer, self._json_limits)

    def warm_up(self, form: Form | None, tools: Toolbox | None) -> None:
        """Build what the first answer of a form, or with tools, would wait for. Raises SchemaError."""
        tree = self._built()
        if (constraint := self.constraint(form, None, tools)) is not None:
            constraint.mask()
        for grammar in tools.grammars(marks_in(self._tokenizer)).values() if tools is not None else ():
            tree.matcher(grammar)

    def _start_building(self) -> None:
        with self._lock:
            if self._building is None:
                self._building = threading.Thread(target=self._built, name="edgellm-grammar", daemon=True)
                self._building.start()

    def _formed(self, form: Form) -> TokenConstraint:
        if form.names_tokens:
            check_grammar(form.grammar, "grammar", self._built())
        self._start_building()
        limits = self._json_limits if form.json else None
        return GrammarConstraint(lambda: self._built().matcher(form.grammar), self._n_vocab + 1, limits)

    @cached_property
    def _json_limits(self) -> JsonLimits:
        return JsonLimits(self._pieces)

    @cached_property
    def _pieces(self) -> Pieces:
        """With an id that no token has behind them: it stands for an end that is missing."""
        pieces = self._tokenizer.pieces()
        return Pieces(pieces + [b""] * (self._n_vocab + 1 - len(pieces)))

    def _channel_tokens(self, marks: Marks | None) -> ChannelTokens:
        if marks not in self._marked:
            tokenizer = self._tokenizer
            if marks is None:
                self._marked[marks] = ChannelTokens(self._pieces, ends=tokenizer.eog_ids)
            else:
                headers = None
                if marks is HARMONY:
                    ending = tuple(self._marks("<|end|>")), tuple(self._marks("<|start|>assistant"))
                    thinking, said = marks.open.encode() + b"<|message|>", b"<|channel|>commentary<|message|>"
                    headers = Headers(b"<|start|>assistant", thinking, said, b"<|end|>", *ending)
                self._marked[marks] = ChannelTokens(
                    self._pieces,
                    opening=tokenizer.token_id(marks.token),
                    closing=self._marks(marks.close),
                    close=marks.close.encode(),
                    ends=tokenizer.eog_ids,
                    headers=headers,
                )
        return self._marked[marks]

    def _marks(self, text: str) -> Sequence[int]:
        """The tokens of a text of control tokens."""
        return self._tokenizer.encode_trusted(text, ((0, len(text)),), add_special=False)

    def _built(self) -> TokenTree:
        with self._lock:
            if self._tree is None:
                tokenizer = self._tokenizer
                ends = tokenizer.eog_ids or {len(self._pieces) - 1}
                self._tree = token_tree(self._pieces, ends, tokenizer.vocabulary.control, tokenizer.encode_continuation)
                self._json_limits.prepare()
            return self._tree
