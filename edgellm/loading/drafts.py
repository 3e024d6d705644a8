"""Small models that draft tokens for a model, loaded when an answer first asks for one."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection

from edgellm.engine.speculate.drafter import Drafter
from edgellm.engine.speculate.ngram import NgramDrafter
from edgellm.engine.speculate.small_model import ModelDrafter, SmallModel, guessing
from edgellm.errors import OptionError
from edgellm.loading.load import LoadOptions, load_model
from edgellm.loading.loaded import LoadedModel
from edgellm.sampling import SamplingOptions

PADDING = 128  # tokens by which vocabularies of one family may differ at their ends

OTHER_DRAFT = "take a smaller model of the same family"


class Drafts:
    """The drafters of a model's answers, and the small models that they use."""

    def __init__(self, target: LoadedModel) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._loaded: dict[str, tuple[LoadedModel, SmallModel]] = {}

    def drafter(self, asked: str | None, drawn: SamplingOptions | None, banned: Collection[int]) -> Drafter | None:
        """The drafter of one answer; a small model draws its tokens with the options `drawn`, none of `banned`."""
        if asked is None or asked == "ngram":
            return NgramDrafter() if asked else None
        model, small = self.load(asked)
        n_vocab = min(self._target.n_vocab, model.n_vocab)
        pick = guessing(drawn, n_vocab, self._target.context, banned) if drawn is not None else None
        return ModelDrafter(small, n_vocab, pick)

    def load(self, name: str) -> tuple[LoadedModel, SmallModel]:
        """A small model. Raises OptionError where it has another vocabulary, and what `load_model` raises."""
        with self._lock:
            if name not in self._loaded:
                model = load_small(name, self._target)
                self._loaded[name] = model, SmallModel(model.engine)
            return self._loaded[name]

    def close(self) -> None:
        with self._lock:
            for model, _ in self._loaded.values():
                model.close()
            self._loaded.clear()


def load_small(name: str | os.PathLike[str], target: LoadedModel) -> LoadedModel:
    """The model `name` for drafts of `target`. Raises OptionError where it has another vocabulary, and what `load_model` raises."""
    try:
        options = LoadOptions(context=target.context, threads=target.info.threads, backend=target.info.backend)
        model = load_model(name, options)
    except OptionError as error:
        raise OptionError(
            f"cannot be loaded beside this model ({str(error).rstrip('.')})",
            option="draft",
            value=os.fspath(name),
            advice="take another model, or none",
        ) from error
    try:
        if model.info.pooling:
            raise OptionError("is an embedding model and writes no text", option="draft", value=os.fspath(name), advice=OTHER_DRAFT)
        _check_vocabulary(model, target, os.fspath(name))
    except BaseException:
        model.close()
        raise
    return model


def _check_vocabulary(model: LoadedModel, target: LoadedModel, name: str) -> None:
    same = abs(model.n_vocab - target.n_vocab) <= PADDING
    if same and model.info.has_tokenizer and target.info.has_tokenizer:
        ours, theirs = target.tokenizer.vocabulary.texts, model.tokenizer.vocabulary.texts
        n = min(len(ours), len(theirs))
        same = list(ours[:n]) == list(theirs[:n])
    if not same:
        raise OptionError(f"has another vocabulary than {target.path.name}", option="draft", value=name, advice=OTHER_DRAFT)
