"""Vectors of texts: many documents in a step, each by itself, with the pooling that the file names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Executable, Segment, StepBatch, StepStopped
from edgellm.engine.prompts import TokenIds, checked_ids
from edgellm.errors import ContextFull, ModelClosed, NumericError, OptionError, OptionValue, TextNumber, shown
from edgellm.loading.loaded import LoadedModel
from edgellm.memory.documents import first_slots, place

Vectors = npt.NDArray[np.float32]
Texts = str | Sequence[str] | Sequence[int] | npt.NDArray[np.integer]
EmbedProgress = Callable[[int, int], None]  # (done, of) texts

NO_ROWS = np.empty(0, np.int32)
FEW = 256  # tokens: steps of fewer would read the weights too often, whatever the pace


class _Model(Protocol):
    def embed(self, texts: Texts, *, normalize: bool = True, progress: EmbedProgress | None = None) -> Vectors: ...


class AsyncEmbedding:
    """`embed` for programs that run on asyncio."""

    async def aembed(self: _Model, texts: Texts, *, normalize: bool = True, progress: EmbedProgress | None = None) -> Vectors:
        """`embed` in a thread of its own. A cancelled task does not wait for it; it goes on to its end."""
        from asyncio import to_thread

        return await to_thread(self.embed, texts, normalize=normalize, progress=progress)


def documents(model: LoadedModel, texts: Texts) -> list[TokenIds]:
    """The token ids of each text; of a flat sequence of ids, one. Raises OptionError, NoTokenizer."""
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, np.ndarray) and texts.ndim == 1 and (texts.dtype.kind in "UO" or not texts.size):
        texts = texts.tolist()
    if isinstance(texts, bytes | bytearray | Mapping | set | frozenset) or not isinstance(texts, Collection):
        raise OptionError(f"texts is {type(texts).__name__}; give a str, a list of str, or the token ids of one text.")
    if not isinstance(texts, np.ndarray) and not len(texts):
        return []
    if isinstance(texts, np.ndarray) or not any(isinstance(text, str) for text in texts):
        return [checked_ids(texts, model.n_vocab, name="texts")]  # type: ignore[arg-type]  # ids
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise OptionError(f"texts has {shown(wrong)} among its texts; give a list of str, or the token ids of one text.")
    tokenizer = model.tokenizer
    return [
        _checked(np.array(tokenizer.encode(str(text), add_special=True), np.int32), index, model)
        for index, text in enumerate(texts)
    ]


def _checked(ids: TokenIds, index: int, model: LoadedModel) -> TokenIds:
    if not len(ids):
        raise OptionError(f"texts[{index}] is empty, and this model has no token that begins a text; leave it out.")
    return ids


def check_lengths(ids: Sequence[TokenIds], model: LoadedModel) -> None:
    """Raises ContextFull, naming the text, where one does not fit into a step."""
    for index, each in enumerate(ids):
        if len(each) > model.context:
            longer = model.info.slides or len(each) <= model.info.context_train
            way = (", or load the model with ", OptionValue("context", len(each))) if longer else ()
            raise ContextFull(
                TextNumber(index),
                f" has {len(each)} tokens, and the model reads at most {model.context} at once; cut it into shorter texts",
                *way,
                ".",
            )


def compute(model: LoadedModel, ids: Sequence[TokenIds], progress: EmbedProgress | None = None) -> Vectors:
    """The vectors (n, d) of documents, in their order. Others that use the model have their turn between two steps."""
    done, rows = 0, list[Vectors]()
    while done < len(ids):
        with model.engine.alone() as executable:
            rows.append(_step(executable, ids[done:], lambda: model.engine.core.closing))
        done += len(rows[-1])
        if progress is not None:
            progress(done, len(ids))
    found = np.concatenate(rows) if rows else np.empty((0, model.info.embedding), np.float32)
    if not np.isfinite(found).all():
        index = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise NumericError(
            "the vector of ", TextNumber(index), " has NaN or Inf values; the model's file may be damaged: fetch it again."
        )
    return found


def _step(executable: Executable, ids: Sequence[TokenIds], stop: Callable[[], bool]) -> Vectors:
    """The vectors of the first documents: as many as one step has room for."""
    lengths = [len(each) for each in ids[: executable.max_segments]]
    starts = first_slots(lengths, executable.layout, executable.max_segments)
    while len(starts) > 1 and sum(lengths[: len(starts)]) > max(executable.pace.tokens, FEW):
        del starts[-1]
    lengths = lengths[: len(starts)]
    placed, state = place(lengths, starts, executable.layout), executable.new_state()
    firsts = np.cumsum([0, *lengths]).tolist()
    segments = tuple(Segment(state, first, n) for first, n in zip(firsts, lengths, strict=False))
    batch = StepBatch(np.concatenate(ids[: len(starts)]), placed.positions, placed.sink_positions, placed.spans, NO_ROWS, segments)
    try:
        return executable.submit(batch).wait(stop)["embedding"].copy()
    except StepStopped as stopped:
        raise ModelClosed("the model was closed while it embedded texts; load it again.") from stopped


def normalized(vectors: Vectors) -> Vectors:
    """Each vector divided by its length; one of zeros stays so."""
    length = np.sqrt(np.sum(np.square(vectors, dtype=np.float64), axis=1, keepdims=True))
    unit: Vectors = np.divide(vectors, np.maximum(length, 1e-12)).astype(np.float32)
    return unit
