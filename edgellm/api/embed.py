"""Vectors of texts: many documents in a step, each by itself, with the pooling that the file names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from edgellm.arguments import as_int, check_flag, check_progress
from edgellm.backends.base import Executable, Segment, StepBatch, StepStopped
from edgellm.engine.prompts import TokenIds, checked_ids
from edgellm.errors import ContextFull, ModelClosed, NumericError, OptionError, OptionValue, TextNumber, shown
from edgellm.loading.loaded import LoadedModel
from edgellm.memory.documents import first_slots, place

Vectors = npt.NDArray[np.float32]
Texts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | npt.NDArray[np.integer]
EmbedProgress = Callable[[int, int], None]  # (done, of) texts
Result = TypeVar("Result")

NO_ROWS = np.empty(0, np.int32)
FEW = 256  # tokens: steps of fewer would read the weights too often, however long they take


class EmbedKeywords(TypedDict, total=False):
    """The options of `embed`."""

    normalize: bool  # vectors of length 1 (default)
    dimensions: int | None  # the first so many values of each vector alone (Matryoshka), before they are normalised
    truncate: bool  # cut what exceeds the context, where it is an error else
    progress: EmbedProgress | None  # called between steps


async def cancellable(call: Callable[[Callable[[], bool]], Result]) -> Result:
    """A call's result, from a thread of its own; where the task is cancelled, the call's `stop()` is true from then on."""
    from asyncio import CancelledError, to_thread  # 3 MB, which most programs never need
    from threading import Event

    stopped = Event()
    try:
        return await to_thread(call, stopped.is_set)
    except CancelledError:
        stopped.set()
        raise


def embed(model: LoadedModel, texts: Texts, options: EmbedKeywords, stop: Callable[[], bool] = bool) -> tuple[Vectors, TokenIds]:
    """The vectors of texts and their numbers of tokens; see `Model.embed`. Raises StepStopped where `stop()` is true."""
    _check_names(options)
    normalize, truncate = check_flag("normalize", options.get("normalize", True)), options.get("truncate", False)
    progress = check_progress(options.get("progress"), "(done, of) texts")
    if not model.info.pooling:
        raise OptionError(
            f"{model.path.name} writes text, and its file names no pooling; take an embedding model, such as "
            'nomic-embed-text-v1.5, for embed, or load it with pooling="last" or "mean".'
        )
    dimensions = _dimensions(options.get("dimensions"), model)
    ids = documents(model, texts)
    if check_flag("truncate", truncate):
        ids = [cut(each, model) for each in ids]
    check_lengths(ids, model)
    vectors = compute(model, ids, progress, stop=stop)
    counts = np.array([len(each) for each in ids], np.int32)
    if model.info.pooling == "rank":
        return vectors, counts
    vectors = np.ascontiguousarray(vectors[:, :dimensions])
    return normalized(vectors) if normalize else vectors, counts


def _check_names(options: EmbedKeywords) -> None:
    wrong = next((name for name in options if name not in EmbedKeywords.__annotations__), None)
    if wrong is not None:
        known = (*EmbedKeywords.__annotations__, "return_counts")
        raise OptionError(f"{wrong} is not an option of embed; there are {', '.join(known)}.")


def _dimensions(asked: object, model: LoadedModel) -> int | None:
    """Values of a vector. Raises OptionError."""
    if asked is None:
        return None
    number = as_int(asked)
    if model.info.pooling == "rank":
        raise OptionError("is not possible with a reranker", option="dimensions", value=asked, advice="leave it out")
    if number is None or not 1 <= number <= model.info.embedding:
        raise OptionError(option="dimensions", value=asked, advice=f"give a number from 1 to {model.info.embedding}")
    return number


def cut(ids: TokenIds, model: LoadedModel) -> TokenIds:
    """The first tokens, as many as the context holds; a token that ends every text stays the last."""
    ends = int(model.info.has_tokenizer and model.tokenizer.add_eos)
    return ids if len(ids) <= model.context else np.append(ids[: model.context - ends], ids[len(ids) - ends :])


def documents(model: LoadedModel, texts: Texts) -> list[TokenIds]:
    """The token ids of each text; of a flat sequence of ids, one. Raises OptionError, NoTokenizer."""
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, np.ndarray) and texts.ndim and (texts.dtype.kind in "UO" or not texts.size or texts.ndim == 2):
        texts = list(texts)
    if isinstance(texts, bytes | bytearray | Mapping | set | frozenset) or not isinstance(texts, Collection):
        raise OptionError(f"texts is {type(texts).__name__}; give a str, a list of str, or token ids.")
    if not isinstance(texts, np.ndarray) and not len(texts):
        return []
    if isinstance(texts, np.ndarray) or not any(isinstance(text, Sequence | np.ndarray) for text in texts):
        return [checked_ids(texts, model.n_vocab, name="texts")]  # type: ignore[arg-type]  # ids
    return [_encoded(model, text, index) for index, text in enumerate(texts)]


def _encoded(model: LoadedModel, text: object, index: int) -> TokenIds:
    """The token ids of one of several texts."""
    if isinstance(text, str):
        ids = np.array(model.tokenizer.encode(str(text), add_special=True), np.int32)
        if not len(ids):
            raise OptionError(f"texts[{index}] is empty, and this model has no token that begins a text; leave it out.")
        return ids
    if isinstance(text, bytes | bytearray) or not isinstance(text, Sequence | np.ndarray):
        raise OptionError(f"texts has {shown(text)} among its texts; give a list of str, or of token ids.")
    return checked_ids(text, model.n_vocab, name=f"texts[{index}]")


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


def compute(
    model: LoadedModel,
    ids: Sequence[TokenIds],
    progress: EmbedProgress | None = None,
    *,
    types: Sequence[TokenIds] | None = None,
    stop: Callable[[], bool] = bool,
) -> Vectors:
    """The vectors (n, d) of documents, in their order. Others that use the model have their turn between two steps.

    `types`: 1 for the tokens of the second text of a pair. Raises StepStopped where `stop()` is true.
    """
    done, rows = 0, list[Vectors]()
    while done < len(ids):
        with model.engine.alone() as executable:
            try:
                kinds = types[done:] if types is not None else None
                rows.append(_step(executable, ids[done:], kinds, lambda: model.engine.core.closing or stop()))
            except StepStopped as stopped:
                if not model.engine.core.closing:
                    raise
                raise ModelClosed("the model was closed while it embedded texts; load it again.") from stopped
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


def _step(executable: Executable, ids: Sequence[TokenIds], types: Sequence[TokenIds] | None, stop: Callable[[], bool]) -> Vectors:
    """The vectors of the first documents: as many as one step has room for."""
    lengths = [len(each) for each in ids[: executable.max_segments]]
    starts = first_slots(lengths, executable.layout, executable.max_segments)
    while len(starts) > 1 and sum(lengths[: len(starts)]) > max(executable.step_size.tokens, FEW):
        del starts[-1]
    n = len(starts)
    placed, state = place(lengths[:n], starts, executable.layout), executable.new_state()
    firsts = np.cumsum([0, *lengths[:n]]).tolist()
    segments = tuple(Segment(state, first, length) for first, length in zip(firsts, lengths[:n], strict=False))
    batch = StepBatch(
        np.concatenate(ids[:n]),
        placed.positions,
        placed.sink_positions,
        placed.spans,
        NO_ROWS,
        segments,
        types=None if types is None else np.concatenate(types[:n]),
    )
    return executable.submit(batch).wait(stop)["embedding"].copy()


def normalized(vectors: Vectors) -> Vectors:
    """Each vector divided by its length; one of zeros stays so."""
    length = np.sqrt(np.sum(np.square(vectors, dtype=np.float64), axis=1, keepdims=True))
    unit: Vectors = np.divide(vectors, np.maximum(length, 1e-12)).astype(np.float32)
    return unit
