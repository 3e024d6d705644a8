"""DRY ("don't repeat yourself"): a token that would prolong a repetition is penalised by the repetition's length.

After p-e-w's sampler as llama.cpp has it (`llama_sampler_dry_apply`).
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from edgellm.options.sampling import SamplingOptions
from edgellm.sampling.penalties import Change, Edit, EditStage, History, SamplingContext, TokenPieces, last_n

FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_EXPONENT_LOG = math.log(FLOAT32_MAX)  # where llama.cpp stops the exponent
MAX_BREAKER_CHARS, MAX_TAIL_TOKENS = 40, 20  # llama.cpp's limits for one sequence breaker

Breakers = dict[int, list[tuple[int, ...]]]  # first token -> the tokens that must follow it to complete a breaker


def find_breakers(vocabulary: TokenPieces, texts: Collection[str]) -> Breakers:
    """Token sequences that contain one of `texts`: in a single token, or begun by one and completed by others."""
    found: dict[int, set[tuple[int, ...]]] = {}
    pieces = vocabulary.pieces()
    for text in texts:
        text = text[:MAX_BREAKER_CHARS]
        for token, piece in enumerate(pieces):
            if text in piece:
                found.setdefault(token, set()).add(())
                continue
            for overlap in range(1, min(len(text), len(piece) + 1)):
                if piece.endswith(text[:overlap]):
                    found.setdefault(token, set()).add(tuple(vocabulary.encode(text[overlap:])[:MAX_TAIL_TOKENS]))
    return {token: sorted(tails) for token, tails in found.items()}


def dry(options: SamplingOptions, last_n: int, breakers: Breakers) -> Edit:
    """Subtract multiplier * base ** (repeated length - allowed length) from each token that would continue a repetition."""
    allowed, multiplier, base = options.dry_allowed_length, options.dry_multiplier, options.dry_base
    max_exponent = math.floor(MAX_EXPONENT_LOG / math.log(base)) if base > 1.000001 else last_n

    def edit(logits: npt.NDArray[np.float32], history: History) -> Change:
        tokens = history[max(0, len(history) - last_n) :]
        limit = _length_since_breaker(tokens, breakers)
        lengths = _repeated_lengths(tokens, min(limit, allowed + max_exponent)) if limit >= allowed else {}
        repeated = {token: length for token, length in lengths.items() if length >= allowed}
        ids = np.array(list(repeated), np.intp)
        before = logits[ids]
        for token, length in repeated.items():
            logits[token] -= min(multiplier * base ** min(length - allowed, max_exponent), FLOAT32_MAX)
        return ids, before

    return edit


def _length_since_breaker(tokens: History, breakers: Breakers) -> int:
    """How many tokens stand after the last complete sequence breaker."""
    latest = tokens.tolist()
    for back in range(len(latest)):
        at = len(latest) - 1 - back
        tails = [tail for tail in breakers.get(latest[at], ()) if tuple(latest[at + 1 : at + 1 + len(tail)]) == tail]
        if tails:
            return back - max(len(tail) for tail in tails)
    return len(latest)


def _repeated_lengths(tokens: History, limit: int) -> dict[int, int]:
    """For each token that followed an earlier copy of the newest tokens: the longest such copy, `limit` at most.

    `ends` holds the places where a copy of the last `length` tokens ends; it shrinks as length grows.
    """
    n = len(tokens)
    longest: dict[int, int] = {}
    ends = np.flatnonzero(tokens[: n - 1] == tokens[n - 1])
    for length in range(1, limit + 1):
        if not len(ends):
            break
        for token in set(tokens[ends + 1].tolist()):
            longest[token] = length
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[n - 1 - length]]
    return longest


def _build(options: SamplingOptions, around: SamplingContext) -> Edit:
    texts = options.dry_sequence_breakers
    breakers = find_breakers(around.vocabulary, texts) if around.vocabulary and texts else {}
    return dry(options, last_n(options.dry_last_n, around), breakers)


STAGES = (EditStage("dry", lambda o, around: o.dry_multiplier > 0 and o.dry_last_n != 0, _build),)
