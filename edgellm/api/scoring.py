"""Log probabilities of the tokens of a text, computed step by step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.api.records import TokenLogprobs
from edgellm.engine.prompts import TokenIds, check_room
from edgellm.engine.request import Scoring
from edgellm.errors import ModelClosed
from edgellm.loading.loaded import LoadedModel
from edgellm.sampling.logprobs import log_probabilities


def score(model: LoadedModel, scoring: Scoring) -> None:
    """Compute a scoring request. Raises ContextFull where learned positions end, ModelClosed."""
    check_room(len(scoring.ids), model.engine.positions)
    model.engine.run(scoring)
    if scoring.cancelled:
        raise ModelClosed(f"{model.path}: the model was closed; load it again.")


def prompt_logprobs(model: LoadedModel, ids: TokenIds, top: int) -> list[TokenLogprobs]:
    """Log probabilities of each token but the first, after those before it, with `top` alternatives."""
    found = list[TokenLogprobs]()

    def take(first: int, logits: npt.NDArray[np.float32]) -> None:
        for row, token in zip(logits, ids[first + 1 : first + 1 + len(logits)].tolist(), strict=True):
            found.append(TokenLogprobs(token, *log_probabilities(row, token, top)))

    if len(ids) > 1:
        score(model, Scoring(np.ascontiguousarray(ids[:-1]), take))
    return found
