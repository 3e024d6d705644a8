"""A model file made ready to compute, with all that calls of the API need of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack  # Any: metadata holds values of many types

from edgellm.chat import ChatTemplate, find_template, template_variants
from edgellm.engine.conversation import Conversation
from edgellm.engine.engine import Engine
from edgellm.engine.prompts import TokenIds
from edgellm.errors import ModelClosed, OptionError
from edgellm.loading.adapters import AdapterSets, Asked, asked_for
from edgellm.loading.tokenizing import BackgroundTokenizer, TokenTexts
from edgellm.sampling import ResolvedOptions, SamplingKeywords, resolve_options
from edgellm.tokenizer import Tokenizer
from edgellm.weights import WeightStore

if TYPE_CHECKING:
    from edgellm.loading.audio_encoder import AudioEncoder
    from edgellm.loading.encoder import MediaEncoder
    from edgellm.loading.image_encoder import ImageEncoder

RECALLED = 64  # tokens: fewer are computed as fast as they are read from a file
LISTS = (".tokens", ".merges", ".scores", ".token_type")  # of a tokenizer: as long as its vocabulary


class Projector(NamedTuple):
    """The projector of a model that takes images or audio."""

    path: Path
    projector_type: str
    file_bytes: int
    width: int  # of a row of `embed_image`, `embed_audio`


class Encoders(NamedTuple):
    """Those of a model that takes images, audio, or both."""

    image: ImageEncoder | None = None
    audio: AudioEncoder | None = None

    @property
    def all(self) -> list[MediaEncoder]:
        return [encoder for encoder in self if encoder is not None]

    @property
    def width(self) -> int:
        """Of the rows that go to the model, those for inner layers included."""
        return max(encoder.n_out for encoder in self.all)

    @property
    def file_bytes(self) -> int:
        return sum({encoder.path: encoder.file_bytes for encoder in self.all}.values())


NO_ENCODERS = Encoders()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model's size, limits and place."""

    path: Path
    name: str  # `general.name`, else the file's
    architecture: str
    parameters: int
    file_bytes: int  # of all tensors
    token_bytes: int  # of weights, that computing one token reads
    bytes_by_type: Mapping[str, int]  # "Q4_0" -> bytes of the tensors of this type
    n_vocab: int
    n_layers: int
    context: int  # tokens that a full layer sees, sinks included
    context_train: int  # what the model was trained for; more than this may read badly
    sinks: int
    kv_type: str
    kv_bytes: int  # keys and values of one conversation when its context is full
    backend: str
    threads: int
    has_tokenizer: bool
    has_template: bool
    slides: bool = True  # False: positions are learned, and a conversation ends where they do
    pooling: str = ""  # of an embedding model: "mean", "cls", "last" or "rank"; "" for one that writes
    embedding: int = 0  # values of a text's vector, or labels of a reranker
    pinned: int = 0  # tokens at the beginning of a chat that may stay; the sinks, or more of them
    vision: Projector | None = None  # of a model that takes images
    audio: Projector | None = None  # of a model that takes audio, often in the same file
    place: str = ""  # why "auto" took this back end, in one line; "" where it had no choice


@dataclass(eq=False)
class LoadedModel:
    """The parts of a model that `load_model` opened, which `edgellm.Model` puts its calls around."""

    engine: Engine
    weights: WeightStore
    info: ModelInfo
    metadata: Mapping[str, Any]
    background_tokenizer: BackgroundTokenizer
    adapters: AdapterSets | None = None
    encoders: Encoders = NO_ENCODERS
    causal: bool = True  # False: of encoders, whose tokens see the whole text
    turns_by_axes: bool = False  # rotary positions are those of rows and columns in images
    sampling_defaults: Mapping[str, int | float] | None = None

    @property
    def path(self) -> Path:
        return self.info.path

    @property
    def n_vocab(self) -> int:
        return self.info.n_vocab

    @property
    def context(self) -> int:
        return self.info.context

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back. Raises NoTokenizer, ModelClosed."""
        self.require_open()
        return self.background_tokenizer.get()

    @cached_property
    def token_texts(self) -> TokenTexts:
        return TokenTexts(self.tokenizer)

    @cached_property
    def template(self) -> ChatTemplate:
        """The chat template."""
        return find_template(self.metadata, self.tokenizer, file=str(self.path))

    @property
    def tool_template(self) -> ChatTemplate:
        """The template for conversations with tools: Hermes 2 Pro and Command R bring one of its own for that."""
        return self._tool_use or self.template

    @cached_property
    def _tool_use(self) -> ChatTemplate | None:
        if "tool_use" not in template_variants(self.metadata, file=str(self.path)):
            return None
        return find_template(self.metadata, self.tokenizer, file=str(self.path), variant="tool_use")

    def sampling_options(self, **sampling: Unpack[SamplingKeywords]) -> ResolvedOptions:
        """The sampling options that these keywords lead to, and whether each comes from the user, the model or our defaults."""
        return resolve_options(sampling, self.sampling_defaults or {})

    def adapter_set(self, adapters: Asked | None) -> int:
        """The number of a set of adapters. Raises OptionError for such as were not loaded."""
        if self.adapters is not None:
            return self.adapters.chosen(adapters)
        if adapters is not None and asked_for(adapters):
            raise OptionError("adapters: this model was loaded without any; give load(..., adapters=[(path, 1.0)]).")
        return 0

    def facts(self, adapters: int = 0) -> dict[str, Any]:
        """Facts that must be the same where a session with a set of adapters is resumed."""
        used = self.adapters.describe(adapters) if self.adapters is not None else []
        return {**self._facts, "adapters": [list(each) for each in used]}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Weights, hyperparameters with the rope's, tokenizer, memory."""
        info = self.info
        wanted = [
            key for key in self.metadata if key.startswith((f"{info.architecture}.", "tokenizer.ggml.")) and not key.endswith(LISTS)
        ]
        keys = {key: value for key in wanted if isinstance(value := self.metadata[key], str | int | float)}
        header = hashlib.sha256(repr(sorted(keys.items())).encode(errors="replace")).hexdigest()
        return {
            "model": self.weights.fingerprint(),
            "header": header,
            "backend": info.backend,
            "context": info.context,
            "sinks": info.sinks if info.pinned <= info.sinks else [info.sinks, info.pinned],
            "kv_type": info.kv_type,
            "n_vocab": info.n_vocab,
        }

    def require_open(self) -> None:
        """Raises ModelClosed."""
        if self.engine.closed:
            raise ModelClosed(f"{self.path}: the model was closed; load it again.")

    def require_writing(self) -> None:
        """Raises OptionError for embedding models."""
        if self.info.pooling:
            raise OptionError(
                f"{self.path.name} is an embedding model and writes no text; use model.embed(texts) or edgellm embed."
            )

    def recall(self, ids: TokenIds, kept: int | None) -> Conversation | None:
        """A saved conversation with clearly more of the first tokens than those in memory have."""
        cache, kept = self.engine.core.cache, self.engine.layout.classes[0].kept if kept is None else kept
        if (store := cache.store) is None or (length := store.length(ids, kept)) < RECALLED:
            return None
        with self.engine.alone():
            shared = cache.shared(ids, kept)
        return store.recall(ids, kept) if length >= shared + RECALLED else None

    def close(self) -> None:
        """Free threads, conversations and weights. Answers that are being written are cancelled; closing twice does nothing."""
        if self.engine.forked or self.engine.closed:  # the model of a forked process is the parent's
            return
        self.engine.cancel(running=True)
        self.background_tokenizer.wait()
        self.engine.close()
        for encoder in self.encoders.all:
            encoder.close()
