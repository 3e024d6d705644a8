"""How likely a model finds a text that is already there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgellm.api.records import TokenLogprobs
from edgellm.engine.prompts import checked_ids
from edgellm.sampling.logprobs import log_probabilities

if TYPE_CHECKING:
    from edgellm.api.model import Model


def logprobs(model: Model, token_ids: Sequence[int], top: int) -> list[TokenLogprobs]:
    """See `Model.logprobs`."""
    ids = checked_ids(token_ids, model.n_vocab, name="token_ids").tolist()
    rows = model.logits(ids[:-1]) if len(ids) > 1 else ()
    return [TokenLogprobs(token, *log_probabilities(row, token, top)) for row, token in zip(rows, ids[1:], strict=True)]
