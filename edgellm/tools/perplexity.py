"""Perplexity of a text by llama.cpp's definition: windows of one length, of which the second half, or a stride, is scored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgellm.api.model import Model
from edgellm.bench.logits import rows_at_once, text_logits
from edgellm.checkpoints.opening import open_model
from edgellm.errors import BadHParam, NumericError, OptionError
from edgellm.hparams import architecture_of
from edgellm.options.tools import CHUNKS
from edgellm.tools.kl import Divergence, Divergences

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
DEFAULT_CONTEXT = 512
SMALLEST_CONTEXT = 8


@dataclass(frozen=True, slots=True)
class TextWindows:
    """How a text is cut: window i starts at token i * step; its rows `first`..size-2 predict the tokens after them."""

    size: int
    step: int
    first: int
    count: int

    @property
    def scored(self) -> int:
        """Tokens of one window that are predicted."""
        return self.size - 1 - self.first


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp of the mean negative log-likelihood; `error` is one standard error, as llama.cpp states it. Counts in tokens."""

    value: float
    error: float
    tokens: int
    windows: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a measurement; `divergence` where there was a base model."""

    perplexity: Perplexity
    divergence: Divergence | None
    windows: TextWindows


def window_size(context: int, stride: int | None = None) -> int:
    """Tokens of a window. Raises OptionError for numbers that are not possible."""
    if context < SMALLEST_CONTEXT:
        raise OptionError(
            "is too short", option="context", value=context, advice=f"give at least {SMALLEST_CONTEXT} tokens, 512 is usual"
        )
    if stride is not None and not 1 <= stride <= context:
        raise OptionError(
            f"is not possible with a context of {context}",
            option="stride",
            value=stride,
            advice=f"give a number from 1 to {context}",
        )
    return context if stride is None else context + stride // 2


def cut(n_tokens: int, context: int, stride: int | None = None, most: int | None = None) -> TextWindows:
    """The windows of a text of `n_tokens`; at most `most` of them.

    Without a stride they follow each other, and each one's second half is scored. With one, a window of context + stride/2
    tokens starts every `stride` tokens, and its last `stride` tokens are scored. Raises OptionError where the text is too short.
    """
    size = window_size(context, stride)
    CHUNKS.check(most)
    needed = 2 * size if stride is None else size + 1
    if n_tokens < needed:
        raise OptionError(
            f"the text has {n_tokens} tokens, and a context of {context} needs {needed}; give a longer text or a smaller --context."
        )
    step, first = (size, size // 2) if stride is None else (stride, size - stride - 1)
    count = n_tokens // size if stride is None else -(-(n_tokens - size) // stride)
    return TextWindows(size, step, max(first, 0), count if most is None else min(count, most))


def trained_context(path: str | os.PathLike[str]) -> int:
    """Tokens that a model was trained for, by its header. Raises BadHParam and the other FormatErrors."""
    with open_model(path) as gguf:
        length = gguf.metadata.get(f"{architecture_of(gguf)}.context_length")
        if isinstance(length, bool) or not isinstance(length, int):
            raise BadHParam("says no context_length; the file is damaged, get it again", file=gguf.path)
        return length


def measure(
    model: Model,
    ids: Sequence[int],
    windows: TextWindows,
    *,
    base: Model | None = None,
    progress: Callable[[Perplexity, int, int], None] | None = None,
) -> Report:
    """Perplexity of the tokens `ids`, and with `base` how far the model's predictions are from that one's.

    The first token of each window is replaced by BOS where the vocabulary puts one before texts. `progress(so_far, done, of)` is
    called after each window. Raises NumericError, OptionError (other vocabulary) and what computing raises.
    """
    if base is not None:
        _check_same_vocabulary(model, base)
    rows = min(map(rows_at_once, (model, base) if base else (model,)))
    tokens, bos = np.array(ids, np.int32), _begin(model)
    losses, divergences = _Losses(), Divergences() if base is not None else None
    for window in range(windows.count):
        text = tokens[window * windows.step :][: windows.size].copy()
        targets = text[windows.first + 1 :].copy()
        if bos is not None:
            text[0] = bos
        at = 0
        for ours, theirs in _pairs(model, base, text[:-1], windows.first, rows):
            wanted = targets[at : at + len(ours)]
            at += len(ours)
            losses.add(-ours[np.arange(len(wanted)), wanted].astype(np.float64))
            if divergences is not None and theirs is not None:
                divergences.add(theirs, ours, wanted)
        if progress is not None:
            progress(losses.perplexity(window + 1), window + 1, windows.count)
    return Report(losses.perplexity(windows.count), None if divergences is None else divergences.result(), windows)


class _Losses:
    """Negative log-likelihoods of tokens, as sums."""

    def __init__(self) -> None:
        self._count, self._sum, self._squares = 0, 0.0, 0.0

    def add(self, values: npt.NDArray[np.float64]) -> None:
        self._count += len(values)
        self._sum += float(values.sum())
        self._squares += float((values**2).sum())

    def perplexity(self, windows: int) -> Perplexity:
        mean = self._sum / self._count
        variance = max(self._squares / self._count - mean * mean, 0.0)
        value = float(np.exp(mean))
        return Perplexity(value, value * (variance / max(self._count - 1, 1)) ** 0.5, self._count, windows)


def _check_same_vocabulary(model: Model, base: Model) -> None:
    same = base.n_vocab == model.n_vocab
    if same and base.info.has_tokenizer and model.info.has_tokenizer:
        same = base.tokenizer.vocabulary.texts == model.tokenizer.vocabulary.texts
    if not same:
        raise OptionError(f"{base.path} and {model.path} have different vocabularies; compare with a base that has the same one.")


def _begin(model: Model) -> int | None:
    return model.tokenizer.bos_id if model.info.has_tokenizer and model.tokenizer.add_bos else None


def _pairs(model: Model, base: Model | None, ids: Ids, first: int, rows: int) -> Iterator[tuple[Floats, Floats | None]]:
    """Log-probabilities (rows, n_vocab) of the model, and beside them those of the base."""
    others = text_logits(base, ids, first, rows) if base is not None else None
    for logits in text_logits(model, ids, first, rows):
        theirs = None if others is None or base is None else log_softmax(next(others), base)
        yield log_softmax(logits, model), theirs


def log_softmax(logits: Floats, model: Model) -> Floats:
    """Logarithms of the probabilities, newly allocated. Raises NumericError where a logit is NaN or Inf."""
    shifted: Floats = logits - logits.max(axis=-1, keepdims=True)
    sums = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    if not np.isfinite(sums).all():
        raise NumericError(
            f"{model.path}: logits are NaN or Inf; the file is damaged (edgellm verify says where), or get another "
            "quantisation of it."
        )
    shifted -= np.log(sums).astype(np.float32)
    return shifted
