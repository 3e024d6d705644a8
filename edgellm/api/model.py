"""The loaded model as programs use it: logits, generation, streams, chat; closed when it is no longer needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, cast  # Any: metadata holds values of many types

import numpy as np
import numpy.typing as npt

from edgellm.api import embed as embedding
from edgellm.api import rerank as reranking
from edgellm.api import scoring
from edgellm.api.answer import AnswerSpec
from edgellm.api.async_ import Prompt
from edgellm.api.context_policy import ContextPolicy, Visible, larger_context
from edgellm.api.drafts import Drafts
from edgellm.api.embed import AsyncEmbedding, EmbedProgress, Texts, Vectors
from edgellm.api.generating import Generating, Source
from edgellm.api.generation_options import GenerationOptions, Priority
from edgellm.api.grammar_vocabulary import Free, GrammarVocabulary
from edgellm.api.records import Generation, LoadStats, ModelInfo, Piece, StopReason, TokenLogprobs
from edgellm.api.session import Session
from edgellm.api.stream import Stream
from edgellm.api.tools import Toolbox
from edgellm.api.vision import Seeing, mixed_runs, woven
from edgellm.arguments import check_flag, check_progress
from edgellm.chat import ChatTemplate, Thinking, ThinkingSplitter, find_template, template_variants, thinking_of
from edgellm.chat.channels import Reader
from edgellm.chat.images import Image
from edgellm.engine import saved_session
from edgellm.engine.conversation import SessionCache
from edgellm.engine.monitor import Engine
from edgellm.engine.prompts import PromptVectors, TokenIds, checked_ids
from edgellm.engine.request import Scoring
from edgellm.errors import ContextFull, ModelClosed, OptionError, OptionValue
from edgellm.loading.adapters import AdapterSets, Asked, asked_for
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.loading.tokenizing import BackgroundTokenizer, TokenTexts, answer_decoder
from edgellm.sampling import ResolvedOptions, Sampler, SamplingKeywords, resolve_options
from edgellm.tokenizer import Tokenizer

LISTS = (".tokens", ".merges", ".scores", ".token_type")  # of a tokenizer: as long as its vocabulary

__all__ = ["Generation", "Model", "ModelInfo", "Piece", "StopReason", "Stream"]


class Model(Generating, AsyncEmbedding, Seeing):
    """A model ready to run, made by `edgellm.load`; a context manager.

    Safe to use from several threads: calls are computed together, as many at a time as `load(parallel=...)` says; others queue.
    The keys of so many conversations are kept, so that a prompt that begins like one of them is read from where they part
    (`stats.cached_tokens`). Nothing is printed.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: BackgroundTokenizer,
        info: ModelInfo,
        defaults: Mapping[str, int | float],
        metadata: Mapping[str, Any],
        context_policy: ContextPolicy = "ring",
        adapters: AdapterSets | None = None,
        encoder: ImageEncoder | None = None,
        *,
        turns_by_axes: bool = False,
    ) -> None:
        """`turns_by_axes`: rotary positions are those of rows and columns in images."""
        self.turns_by_axes = turns_by_axes
        self.encoder = encoder
        self.info = info
        self.engine = engine  # the computing behind it, for benchmarks
        self.context_policy: ContextPolicy = context_policy
        self._adapters = adapters
        self._tokenizer, self._defaults, self._metadata = tokenizer, defaults, metadata
        self._drafts = Drafts()

    def logits(self, token_ids: Prompt) -> npt.NDArray[np.float32]:
        """Logits (n_tokens, n_vocab) float32 of every token, in a fresh context; the conversation stays as it is.
        `token_ids`: ids, a text, or a list of texts, ids and images, which have a row of logits for each row in the prompt.

        Raises OptionError for ids outside the vocabulary, ContextFull where learned positions end, ModelClosed.
        """
        self._require_writing()
        ids, vectors = self.prompt_of(token_ids, name="token_ids")
        self.engine.check_room(len(ids))
        scoring = Scoring(ids, self.n_vocab, vectors)
        self.engine.run(scoring)
        if scoring.cancelled:
            raise ModelClosed(f"{self.path}: the model was closed; load it again.")
        return scoring.rows

    def logprobs(self, token_ids: Sequence[int], top: int = 0) -> list[TokenLogprobs]:
        """Log probabilities of each token but the first, after those before it, with `top` alternatives. Errors as in `logits`."""
        return scoring.logprobs(self, token_ids, top)

    def load_stats(self) -> LoadStats:
        """How busy the model is; from any thread, without waiting."""
        return LoadStats(len(self.engine.core.running), len(self.engine.core.waiting), self.engine.core.parallel)

    def embed(self, texts: Texts, *, normalize: bool = True, progress: EmbedProgress | None = None) -> Vectors:
        """Vectors (n, d) float32 of texts: a list of them, one, or the token ids of one.

        The file says how the rows of a text become its vector (mean, cls, last, or the scores of a reranker's labels, which are
        never normalised). `normalize`: every vector has the length 1, so that a dot product is the cosine. Many texts share a step;
        on the CPU a text's vector is the same, bit for bit, whatever texts are beside it. `progress(done, of)` is called between
        steps.

        Raises OptionError for a model that writes text, ContextFull for a text that is longer than the context, NoTokenizer,
        NumericError, ModelClosed.
        """
        self._require_open()
        normalize, progress = check_flag("normalize", normalize), check_progress(progress, "(done, of) texts")
        if not self.info.pooling:
            raise OptionError(
                f"{self.path.name} writes text, and its file names no pooling; take an embedding model, such as "
                "nomic-embed-text-v1.5, for embed."
            )
        ids = embedding.documents(self, texts)
        embedding.check_lengths(ids, self)
        vectors = embedding.compute(self, ids, progress)
        return embedding.normalized(vectors) if normalize and self.info.pooling != "rank" else vectors

    def rerank(self, query: str, documents: Sequence[str]) -> Vectors:
        """How well each document answers a query: (n,) float32 from 0 to 1, by a reranker. Errors as in `embed`."""
        self._require_open()
        return reranking.rerank(self, query, documents, self._metadata)

    def session(
        self, *, priority: Priority = "foreground", context_policy: ContextPolicy | None = None, adapters: Asked | None = None
    ) -> Session:
        """A conversation that is kept until it is closed. `priority`: "background" gives way to all that is in the foreground.
        `context_policy`: as in `load`, None for the model's. `adapters`: those of `load` that it uses, as (path, scale); None: as
        `load` had them.

        Raises OptionError, ModelClosed.
        """
        self._require_open()
        self._require_writing()
        return Session(self, priority=priority, context_policy=context_policy, adapters=self._set(adapters))

    def _set(self, adapters: Asked | None) -> int:
        """The number of a set of adapters. Raises OptionError for such as were not loaded."""
        if self._adapters is not None:
            return self._adapters.chosen(adapters)
        if adapters is not None and asked_for(adapters):
            raise OptionError("adapters: this model was loaded without any; give load(..., adapters=[(path, 1.0)]).")
        return 0

    def resume(self, path: str | os.PathLike[str], *, priority: Priority = "foreground", adapters: Asked | None = None) -> Session:
        """A session that holds what `Session.save` wrote: nothing of it is computed again.

        Raises SessionError for a file that is damaged, or was saved with another model or other options; ModelClosed.
        """
        self._require_open()
        number = self._set(adapters)
        with self.engine.alone() as executable:
            conversation = saved_session.load(path, executable, self.facts(number), self.n_vocab)
        conversation.adapters = number
        return Session(self, priority=priority, cache=SessionCache(conversation, number))

    def facts(self, adapters: int = 0) -> dict[str, Any]:
        """What must be the same where a session with a set of adapters is resumed."""
        used = self._adapters.describe(adapters) if self._adapters is not None else []
        return {**self._facts, "adapters": [list(each) for each in used]}

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """What must be the same where a session is resumed: weights, hyperparameters with the rope's, tokenizer, memory."""
        info = self.info
        wanted = [
            key
            for key in self._metadata
            if key.startswith((f"{info.architecture}.", "tokenizer.ggml.")) and not key.endswith(LISTS)
        ]
        keys = {key: value for key in wanted if isinstance(value := self._metadata[key], str | int | float)}
        header = hashlib.sha256(repr(sorted(keys.items())).encode(errors="replace")).hexdigest()
        return {
            "model": self.engine.fingerprint(),
            "header": header,
            "backend": info.backend,
            "context": info.context,
            "sinks": info.sinks if info.pinned <= info.sinks else [info.sinks, info.pinned],
            "kv_type": info.kv_type,
            "n_vocab": info.n_vocab,
        }

    @cached_property
    def template(self) -> ChatTemplate:
        """What makes a prompt of messages."""
        return find_template(self._metadata, self.tokenizer, file=str(self.path))

    @property
    def tool_template(self) -> ChatTemplate:
        """What makes one where tools are given: Hermes 2 Pro and Command R bring a template of its own for that."""
        return self._tool_use or self.template

    @cached_property
    def _tool_use(self) -> ChatTemplate | None:
        if "tool_use" not in template_variants(self._metadata, file=str(self.path)):
            return None
        return find_template(self._metadata, self.tokenizer, file=str(self.path), variant="tool_use")

    def _source(self) -> Source:
        self._require_open()
        return Source(self, None, False, self.context_policy)

    def prompt_of(self, prompt: Prompt, name: str = "prompt") -> tuple[TokenIds, PromptVectors | None]:
        """A prompt's token ids, and the vectors of its images. Raises OptionError, NoTokenizer, ImageError."""
        if isinstance(prompt, list | tuple) and any(isinstance(part, str | Image) for part in prompt):
            return woven(self, mixed_runs(self, prompt, name))
        if not isinstance(prompt, str):
            return checked_ids(cast("Sequence[int]", prompt), self.n_vocab, name=name), None
        return self._text_ids(prompt), None

    def _text_ids(self, prompt: str) -> TokenIds:
        ids = self.tokenizer.encode(prompt, add_special=True)
        if not ids:
            raise OptionError("the prompt is empty, and this model has no token that begins a text; give some text or token ids.")
        return np.array(ids, np.int32)

    def begin(
        self,
        ids: TokenIds,
        asked: GenerationOptions,
        source: Source,
        thinking: ThinkingSplitter | None = None,
        messages: Visible | None = None,
        free: Free | None = None,
        tools: Toolbox | None = None,
        vectors: PromptVectors | None = None,
    ) -> Stream:
        """The answer to token ids, for which nothing is computed yet; `messages`: what they were made of. Raises ContextFull."""
        self._require_writing()
        self.engine.check_room(len(ids))
        limit = self.context if (asked.context_policy or source.policy) != "ring" else None
        if limit is not None and len(ids) > limit:
            raise ContextFull.of_prompt(
                f"the prompt has {len(ids)} tokens, and the context holds {limit}; shorten it, choose ",
                OptionValue("context_policy", "ring"),
                ", or load the model with a larger context, such as ",
                larger_context(len(ids)),
                ".",
                tokens=len(ids),
                limit=limit,
            )
        options = self.sampling_options(**asked.sampling).options
        needed = asked.stops or asked.turn_ends or asked.form or free or tools  # they need a tokenizer, or raise
        tokenizer = self.tokenizer if self.info.has_tokenizer or needed else None
        end_tokens = tokenizer.eog_ids if tokenizer else frozenset()
        suppressed = tokenizer.suppressed_ids if tokenizer else frozenset()
        sampler = Sampler(
            options,
            n_vocab=self.n_vocab,
            context=self.context,
            end_tokens=end_tokens,
            suppressed=suppressed,
            vocabulary=self._token_texts if tokenizer else None,
            processors=asked.processors,
            constraint=self._grammar_vocabulary.constraint(asked.form, free, tools) if asked.form or free or tools else None,
        )
        shown = tools.shown(tokenizer) if tools and tokenizer else frozenset[int]()
        if thinking and tokenizer:
            shown |= {token for text in thinking.marks.shown if (token := tokenizer.token_id(text)) is not None}
        decoder = answer_decoder(tokenizer, int(max(ids[-1], 0)), whole=asked.form is not None, shown=shown) if tokenizer else None
        spec = AnswerSpec(
            ids,
            asked.max_tokens,
            end_tokens,
            sampler,
            decoder,
            asked.stops,
            asked.progress,
            Reader(thinking, tools.splitter() if tools else None) if thinking or tools else None,
            asked.turn_ends,
            calls_back=bool(asked.processors),
            messages=messages,
            limit=limit,
            kept=self._kept(messages),
            logprobs=asked.logprobs,
            stop_loops=asked.stop_loops,
            parse=asked.form.parse if asked.form else None,
            not_enforced=tools.not_enforced if tools else (),
            drafter=self._drafts.drafter(
                self,
                asked.draft,
                options if sampler.redrawable else None,
                {*suppressed, *(end_tokens if options.ignore_eos else ())},
            )
            if vectors is None
            else None,
            vectors=vectors,
        )
        background = source.background if asked.priority is None else asked.priority == "background"
        stream = Stream(self.engine, spec, session=source.session, background=background)
        if vectors is None and not (source.session and source.session.adapters):
            stream.request.recalled = self.engine.recall(ids, spec.kept)
        return stream

    def _kept(self, messages: Visible | None) -> int | None:
        """How many of the first tokens stay; None for the sinks alone."""
        return max(self.info.sinks, messages.kept_tokens) if messages is not None and messages.kept_tokens is not None else None

    def load_draft(self, name: str) -> None:
        """Load a small model for `draft` before an answer asks for it. Raises OptionError where it has another vocabulary, and
        what `load` raises."""
        self._require_open()
        self._drafts.load(name, self)

    @cached_property
    def _grammar_vocabulary(self) -> GrammarVocabulary:
        return GrammarVocabulary(self.tokenizer, self.n_vocab)

    @cached_property
    def _token_texts(self) -> TokenTexts:
        return TokenTexts(self.tokenizer)

    def sampling_options(self, **sampling: Unpack[SamplingKeywords]) -> ResolvedOptions:
        """The sampling options that these keywords lead to, and whether each comes from the user, the model or our defaults."""
        return resolve_options(sampling, self._defaults)

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back. Raises NoTokenizer, ModelClosed."""
        self._require_open()
        return self._tokenizer.get()

    @property
    def path(self) -> Path:
        """The model file, of a split model its first part."""
        return self.info.path

    @property
    def architecture(self) -> str:
        return self.info.architecture

    @property
    def backend(self) -> str:
        return self.info.backend

    @property
    def threads(self) -> int:
        return self.info.threads

    @property
    def n_vocab(self) -> int:
        return self.info.n_vocab

    @property
    def context(self) -> int:
        """Tokens that the model sees at once."""
        return self.info.context

    @property
    def has_template(self) -> bool:
        """Whether the file carries a chat template."""
        return self.info.has_template

    @property
    def thinking(self) -> Thinking:
        """Whether its chat template lets it think in <think> before it answers: "no", "always", "optional" (`chat(think=...)`)."""
        return thinking_of(self.template.source)

    @property
    def closed(self) -> bool:
        return self.engine.closed

    def _require_open(self) -> None:
        if self.engine.closed:
            raise ModelClosed(f"{self.path}: the model was closed; load it again.")

    def _require_writing(self) -> None:
        if self.info.pooling:
            raise OptionError(
                f"{self.path.name} is an embedding model and writes no text; use model.embed(texts) or edgellm embed."
            )

    def cancel(self) -> None:
        """End the answers that are being written or wait for their turn, from any thread, without waiting for that; nothing happens
        where there are none.
        """
        self.engine.cancel()

    def close(self) -> None:
        """Free threads, conversations and weights; running answers are cancelled first, and calls that wait raise ModelClosed.

        Closing twice does nothing, nor does closing in a forked process: the model is the parent's.
        """
        if self.engine.forked or self.closed:
            return
        self.engine.cancel(running=True)
        self._tokenizer.wait()
        self.engine.close()
        self._drafts.close()
        if self.encoder is not None:
            self.encoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.engine.closed else f"context {self.context}, {self.backend}, {self.threads} threads"
        return f"<edgellm.Model {self.path.name}: {self.architecture}, {state}>"
