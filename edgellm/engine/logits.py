"""Logits of a text's tokens, a few rows at a time: what measurements need that may not hold all of them at once."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgellm.engine.model import Model
from edgellm.engine.prompts import TokenIds
from edgellm.engine.session import NO_ROWS, Logits
from edgellm.memory.sequence import Sequence


def rows_at_once(model: Model) -> int:
    """How many rows of logits one step of this model gives at most."""
    executable = model.session.check()
    return min(executable.max_tokens, executable.max_outputs)


def text_logits(model: Model, ids: TokenIds, first: int, rows: int) -> Iterator[Logits]:
    """Logits (up to `rows`, n_vocab) of the tokens `first` and later of `ids` (n,), in a context of their own.

    Each array holds the next `rows` tokens and is valid until the next one. The model's conversation stays as it is; other calls
    wait until the iterator is exhausted or closed. Raises ModelClosed, ContextFull, and FormatError where the file was changed.
    """
    session, call = model.session, _Call()
    session.check_room(len(ids))
    try:
        session.turns.take(call, patience=0.0)
        executable = session.check()
        sequence, state = Sequence(session.layout), executable.new_state()
        at = 0
        while at < len(ids):
            n = min(executable.max_tokens, first - at) if at < first else min(rows, len(ids) - at)
            wanted = NO_ROWS if at < first else np.arange(n, dtype=np.int32)
            logits = session._step(executable, sequence, state, ids[at : at + n], wanted)
            if at >= first:
                yield logits
            at += n
    finally:
        session.turns.leave(call)


class _Call:
    """Holds the model while an iterator is read."""
