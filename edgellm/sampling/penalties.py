"""Changes to single logits before anything is cut: biases, and penalties for tokens that occurred lately."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgellm.errors import OptionError, shown
from edgellm.options.sampling import SamplingOptions

History = npt.NDArray[np.int32]  # (n,) the latest token ids, oldest first
Change = tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]  # tokens, and their logits before it
Edit = Callable[[npt.NDArray[np.float32], History], Change]  # changes logits (n_vocab,) in place


class TokenPieces(Protocol):
    """The texts of tokens, for DRY; the engine lends the model's tokenizer."""

    def pieces(self) -> Sequence[str]:
        """The text of every token, by id."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Ids of plain text, nothing added."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingContext:
    """The facts that stages may use besides the options."""

    n_vocab: int
    context: int  # what a last_n of -1 stands for
    end_tokens: Collection[int]
    vocabulary: TokenPieces | None
    suppressed: Collection[int]  # tokens that the model's file bars


@dataclass(frozen=True, slots=True)
class EditStage:
    """A change of single logits over all of the vocabulary."""

    name: str
    active: Callable[[SamplingOptions, SamplingContext], bool]
    build: Callable[[SamplingOptions, SamplingContext], Edit]
    looks_back: bool = True  # it needs the latest tokens


def last_n(value: int, around: SamplingContext) -> int:
    return around.context if value < 0 else value


def logit_bias(options: SamplingOptions, n_vocab: int, banned: Collection[int]) -> Edit:
    """Add the user's biases, and ban tokens."""
    outside = [token for token in options.logit_bias if token >= n_vocab]
    if outside:
        raise OptionError(f"logit_bias names token {shown(outside[0])}, but the last one is {n_vocab - 1}; leave it out.")
    values = dict(options.logit_bias)
    values.update(dict.fromkeys(banned, -np.inf))
    ids = np.array(list(values), np.intp)
    bias = np.array(list(values.values()), np.float32)

    def edit(logits: npt.NDArray[np.float32], history: History) -> Change:
        before = logits[ids]
        logits[ids] = before + bias
        return ids, before

    return edit


def penalties(options: SamplingOptions, last_n: int) -> Edit:
    """Repeat, frequency and presence penalties over the last `last_n` tokens (llama.cpp: llama_sampler_penalties)."""
    repeat = np.float32(options.repeat_penalty)
    frequency, presence = np.float32(options.frequency_penalty), np.float32(options.presence_penalty)

    def edit(logits: npt.NDArray[np.float32], history: History) -> Change:
        ids, counts = np.unique(history[max(0, len(history) - last_n) :], return_counts=True)
        before = logits[ids]
        values = np.where(before > 0, before / repeat, before * repeat)
        logits[ids] = values - (counts.astype(np.float32) * frequency + presence)
        return ids.astype(np.intp), before

    return edit


def _penalises(o: SamplingOptions, around: SamplingContext) -> bool:
    return o.repeat_last_n != 0 and (o.repeat_penalty, o.frequency_penalty, o.presence_penalty) != (1, 0, 0)


STAGES = (
    EditStage(
        "logit_bias",
        lambda o, around: bool(o.logit_bias or around.suppressed) or o.ignore_eos,
        lambda o, around: logit_bias(o, around.n_vocab, {*around.suppressed, *(around.end_tokens if o.ignore_eos else ())}),
        looks_back=False,
    ),
    EditStage("penalties", _penalises, lambda o, around: penalties(o, last_n(o.repeat_last_n, around))),
)
