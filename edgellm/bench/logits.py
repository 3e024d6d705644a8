"""Logits of a text's tokens, a few rows at a time: what measurements need that may not hold all of them at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgellm.api.model import Model
from edgellm.engine.conversation import NO_ROWS, Conversation, Logits
from edgellm.engine.prompts import TokenIds, check_room


def rows_at_once(model: Model) -> int:
    """How many rows of logits one step of this model gives at most."""
    executable = model.engine.check()
    return min(executable.max_tokens, executable.max_outputs)


def text_logits(model: Model, ids: TokenIds, first: int, rows: int) -> Iterator[Logits]:
    """Logits (up to `rows`, n_vocab) of the tokens `first` and later of `ids` (n,), in a context of their own.

    Other calls may come between two arrays. Raises ModelClosed, ContextFull, and FormatError where the file was changed.
    """
    engine = model.engine
    check_room(len(ids), engine.positions)
    engine.check_file()
    conversation, at = Conversation.empty(engine.check()), 0
    while at < len(ids):
        with engine.alone() as executable:
            n = min(executable.max_tokens, first - at) if at < first else min(rows, len(ids) - at)
            wanted = NO_ROWS if at < first else np.arange(n, dtype=np.int32)
            logits = conversation.compute(executable, ids[at : at + n], wanted).copy()
        if at >= first:
            yield logits
        at += n
