"""The loaded model as programs use it, and its sessions: logits, generation, streams, chat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, Unpack, overload

import numpy as np
import numpy.typing as npt

from edgellm.api.context_policy import ContextPolicy, check_policy
from edgellm.api.generating import AnswerMaker, AnswerSource, Generating
from edgellm.api.generation_options import Priority, check_priority
from edgellm.api.prompting import Prompt, prompt_of
from edgellm.api.records import LoadStats, TokenLogprobs
from edgellm.api.scoring import prompt_logprobs, score
from edgellm.arguments import check_flag, check_progress
from edgellm.chat import ChatTemplate, Thinking, thinking_of
from edgellm.engine import saved_session
from edgellm.engine.conversation import Conversation, SessionCache
from edgellm.engine.engine import Engine
from edgellm.engine.prompts import PatchProgress, PromptVectors, TokenIds, Watch, checked_ids
from edgellm.engine.request import Scoring
from edgellm.errors import OptionError, SessionError
from edgellm.formats.closing import Closing
from edgellm.loading.adapters import Asked
from edgellm.loading.loaded import LoadedModel, ModelInfo
from edgellm.sampling import ResolvedOptions, SamplingKeywords
from edgellm.tokenizer import Tokenizer

if TYPE_CHECKING:
    from edgellm.api.chat_options import ChatKeywords
    from edgellm.api.embed import EmbedKeywords, Texts, Vectors
    from edgellm.api.records import Generation
    from edgellm.chat import audio
    from edgellm.chat.images import Image, Source


class Model(Generating, Closing):
    """A model ready to run, made by `edgellm.load`; a context manager.

    Safe to use from several threads: calls are computed together, as many at a time as `load(parallel=...)` says; others queue.
    The keys of so many conversations are kept, so that a prompt that begins like one of them is read from where they part
    (`stats.cached_tokens`). Nothing is printed.
    """

    def __init__(self, loaded: LoadedModel, context_policy: ContextPolicy = "ring") -> None:
        self._loaded, self._maker = loaded, AnswerMaker(loaded)
        self.context_policy: ContextPolicy = context_policy

    @property
    def info(self) -> ModelInfo:
        return self._loaded.info

    @property
    def engine(self) -> Engine:
        """The scheduler of its requests, for benchmarks."""
        return self._loaded.engine

    def logits(self, token_ids: Prompt) -> npt.NDArray[np.float32]:
        """Logits (n_tokens, n_vocab) float32 of every token, in a fresh context; the conversation stays as it is.
        `token_ids`: ids, a text, or a list of texts, ids and images, which have a row of logits for each row in the prompt.

        Raises OptionError for ids outside the vocabulary, ContextFull where learned positions end, ModelClosed.
        """
        self._loaded.require_writing()
        ids, vectors = self.prompt_of(token_ids, name="token_ids")
        rows = np.empty((len(ids), self.n_vocab), np.float32)

        def take(first: int, logits: npt.NDArray[np.float32]) -> None:
            rows[first : first + len(logits)] = logits

        score(self._loaded, Scoring(ids, take, vectors))
        return rows

    def logprobs(self, token_ids: Sequence[int], top: int = 0) -> list[TokenLogprobs]:
        """Log probabilities of each token but the first, after those before it, with `top` alternatives. Errors as in `logits`."""
        ids = checked_ids(token_ids, self.n_vocab, name="token_ids").tolist()
        self._loaded.require_writing()
        return prompt_logprobs(self._loaded, np.array(ids, np.int32), top)

    def load_stats(self) -> LoadStats:
        """How busy the model is; from any thread, without waiting."""
        return LoadStats(len(self.engine.core.running), len(self.engine.core.waiting), self.engine.core.parallel)

    def embed_image(
        self, image: Source | Image, *, image_tokens: int | None = None, progress: PatchProgress | None = None
    ) -> npt.NDArray[np.float32]:
        """The rows (n, d) float32 that stand for an image in a prompt, tile by tile where the model cuts it, its overview last.

        `image`: a path, bytes, a data URI, a Pillow image, an array (h, w, 3) of uint8, or an `edgellm.Image`. `image_tokens`: rows
        that it may take at most. With deepstack (Qwen3-VL) a row is followed by those that are added at the first layers.
        `progress(done, total)` is called with patches while they are computed.

        Raises ImageError, OptionError where the model takes no images, ModelClosed, NumericError.
        """
        from edgellm.api.media import encode_image

        watch = Watch(progress=check_progress(progress, "(done, total) patches"))
        return encode_image(self._loaded, image, image_tokens, watch).rows

    def embed_audio(self, clip: audio.Source | audio.Audio, *, progress: PatchProgress | None = None) -> npt.NDArray[np.float32]:
        """The rows (n, d) float32 that stand for a clip in a prompt.

        `clip`: a path, bytes, a data URI, samples (n,) or (n, channels) from -1 to 1 at 16 kHz, or an `edgellm.Audio`, which knows
        their rate. `progress(done, total)` is called with frames, of 10 ms usually, while they are computed.

        Raises AudioError, OptionError where the model takes no audio, ModelClosed, NumericError.
        """
        from edgellm.api.media import encode_audio

        return encode_audio(self._loaded, clip, Watch(progress=check_progress(progress, "(done, total) frames"))).rows

    def transcribe(
        self, clip: audio.Source | audio.Audio, *, prompt: str | None = None, **options: Unpack[ChatKeywords]
    ) -> Generation:
        """The words of a clip, asked for as the model was trained to be asked, or by `prompt`. `clip`: see `embed_audio`.
        `options`: those of a chat; the temperature is 0 unless they say another.

        Raises AudioError, OptionError where the model takes no audio, and what a chat raises.
        """
        from edgellm.api.transcribe import transcribe

        return transcribe(self, clip, prompt, dict(options))

    @overload
    def embed(self, texts: Texts, *, return_counts: Literal[False] = False, **options: Unpack[EmbedKeywords]) -> Vectors: ...
    @overload
    def embed(
        self, texts: Texts, *, return_counts: Literal[True], **options: Unpack[EmbedKeywords]
    ) -> tuple[Vectors, TokenIds]: ...

    def embed(
        self, texts: Texts, *, return_counts: bool = False, **options: Unpack[EmbedKeywords]
    ) -> Vectors | tuple[Vectors, TokenIds]:
        """Vectors (n, d) float32 of texts: a list of them, one, the token ids of one, or a list of token ids.

        The file, or `load(pooling=)`, says how the rows of a text become its vector (mean, cls, last, or the scores of a reranker's
        labels, which are never normalised or shortened). `normalize`: every vector has the length 1, so that a dot product is the
        cosine. `dimensions`: the first so many values alone, for models trained for that (Matryoshka). `truncate`: cut texts to the
        context. `return_counts`: the number of tokens of each text (n,) too. Many texts share a step; on the CPU a text's vector is
        the same, bit for bit, whatever texts are beside it. `progress(done, of)` is called between steps.

        Raises OptionError for a model that writes text, ContextFull for a text that is longer than the context, NoTokenizer,
        NumericError, ModelClosed.
        """
        from edgellm.api.embed import embed  # models that write text need none of it

        vectors, counts = embed(self._opened(), texts, options)
        return (vectors, counts) if check_flag("return_counts", return_counts) else vectors

    @overload
    async def aembed(self, texts: Texts, *, return_counts: Literal[False] = False, **options: Unpack[EmbedKeywords]) -> Vectors: ...
    @overload
    async def aembed(
        self, texts: Texts, *, return_counts: Literal[True], **options: Unpack[EmbedKeywords]
    ) -> tuple[Vectors, TokenIds]: ...

    async def aembed(
        self, texts: Texts, *, return_counts: bool = False, **options: Unpack[EmbedKeywords]
    ) -> Vectors | tuple[Vectors, TokenIds]:
        """`embed` without blocking the event loop; cancelling the task ends the computing within a step."""
        from edgellm.api.embed import cancellable, embed

        model = self._opened()
        vectors, counts = await cancellable(lambda stop: embed(model, texts, options, stop))
        return (vectors, counts) if check_flag("return_counts", return_counts) else vectors

    def rerank(self, query: str, documents: Sequence[str], *, truncate: bool = False) -> Vectors:
        """How well each document answers a query: (n,) float32 from 0 to 1, in the order of the documents.

        Pairs have the form that the model was trained with: a template in the file, or both texts with the separators of its
        tokenizer. `truncate`: cut documents to the context. Errors as in `embed`.
        """
        from edgellm.api.rerank import rerank

        return rerank(self._opened(), query, documents, truncate)

    async def arerank(self, query: str, documents: Sequence[str], *, truncate: bool = False) -> Vectors:
        """`rerank` without blocking the event loop; cancelling the task ends the computing within a step."""
        from edgellm.api.embed import cancellable
        from edgellm.api.rerank import rerank

        model = self._opened()
        return await cancellable(lambda stop: rerank(model, query, documents, truncate, stop))

    def session(
        self, *, priority: Priority = "foreground", context_policy: ContextPolicy | None = None, adapters: Asked | None = None
    ) -> Session:
        """A conversation that is kept until it is closed. `priority`: "background" gives way to all that is in the foreground.
        `context_policy`: as in `load`, None for the model's. `adapters`: those of `load` that it uses, as (path, scale); None: as
        `load` had them.

        Raises OptionError, ModelClosed.
        """
        model = self._opened()
        model.require_writing()
        return Session(self, priority=priority, context_policy=context_policy, adapters=model.adapter_set(adapters))

    def resume(self, path: str | os.PathLike[str], *, priority: Priority = "foreground", adapters: Asked | None = None) -> Session:
        """A session that holds what `Session.save` wrote: nothing of it is computed again.

        Raises SessionError for a file that is damaged, or was saved with another model or other options; ModelClosed.
        """
        model = self._opened()
        number = model.adapter_set(adapters)
        with self.engine.alone() as executable:
            conversation = saved_session.load(path, executable, model.facts(number), self.n_vocab)
        conversation.adapters = number
        return Session(self, priority=priority, cache=SessionCache(conversation, number))

    @property
    def template(self) -> ChatTemplate:
        """The chat template: the file's, or a built-in one that fits its vocabulary."""
        return self._loaded.template

    def _opened(self) -> LoadedModel:
        self._loaded.require_open()
        return self._loaded

    def _source(self) -> AnswerSource:
        self._opened()
        return AnswerSource(self._maker, None, False, self.context_policy)

    def prompt_of(self, prompt: Prompt, name: str = "prompt") -> tuple[TokenIds, PromptVectors | None]:
        """A prompt's token ids, and the vectors of its images. Raises OptionError, NoTokenizer, ImageError."""
        return prompt_of(self._loaded, prompt, name)

    def load_draft(self, name: str) -> None:
        """Load a small model for `draft` before an answer asks for it. Raises OptionError where it has another vocabulary, and
        what `load` raises."""
        self._opened()
        self._maker.drafts.load(name)

    def sampling_options(self, **sampling: Unpack[SamplingKeywords]) -> ResolvedOptions:
        """The sampling options that these keywords lead to, and whether each comes from the user, the model or our defaults."""
        return self._loaded.sampling_options(**sampling)

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to token ids and back. Raises NoTokenizer, ModelClosed."""
        return self._loaded.tokenizer

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
        """True if the file carries a chat template."""
        return self.info.has_template

    @property
    def thinking(self) -> Thinking:
        """How its chat template lets it think in <think> before it answers: "no", "always", "optional" (`chat(think=...)`)."""
        return thinking_of(self.template.source)

    @property
    def adapters(self) -> tuple[tuple[Path, float], ...]:
        """The LoRA adapters that it was loaded with, and their scales."""
        return self._loaded.adapters.listed if self._loaded.adapters is not None else ()

    @property
    def closed(self) -> bool:
        return self.engine.closed

    def cancel(self) -> None:
        """End the answers that are being written or wait for their turn, from any thread, without waiting for that; nothing happens
        where there are none. Images and audio that are being encoded are given up, with an ImageError or AudioError.
        """
        self.engine.cancel()
        for encoder in self._loaded.encoders.all:
            encoder.cancel()

    def close(self) -> None:
        """Free threads, conversations and weights; running answers are cancelled first, and calls that wait raise ModelClosed.

        Closing twice does nothing, nor does closing in a forked process: the model is the parent's.
        """
        self._loaded.close()
        self._maker.drafts.close()

    def __reduce__(self) -> NoReturn:
        """Models stay in their process. Raises OptionError."""
        raise OptionError("a model cannot be pickled, nor sent to another process; send its path, and load it there.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        from asyncio import to_thread  # 3 MB, which most programs never need

        await to_thread(self.close)

    def __repr__(self) -> str:
        state = "closed" if self.engine.closed else f"context {self.context}, {self.backend}, {self.threads} threads"
        return f"<edgellm.Model {self.path.name}: {self.architecture}, {state}>"


class Session(Generating, Closing):
    """Made by `Model.session`; a context manager. Each call takes the whole prompt; what the session
    holds of it is not computed again.

    Sessions of one model are computed together, as many at a time as `load(parallel=...)` says; those in the background give way
    to others. A session's memory is its own until it is closed or dropped.
    """

    def __init__(
        self,
        model: Model,
        *,
        priority: Priority = "foreground",
        context_policy: ContextPolicy | None = None,
        adapters: int = 0,
        cache: SessionCache | None = None,
    ) -> None:
        self.priority: Priority = check_priority(priority)
        self.context_policy: ContextPolicy = model.context_policy if context_policy is None else check_policy(context_policy)
        self._model, self._cache = model, cache or SessionCache(adapters=adapters)
        self._closed = False
        model.engine.add_session(self._cache)

    @property
    def model(self) -> Model:
        return self._model

    @property
    def n_tokens(self) -> int:
        """Tokens that it holds."""
        conversation = self._cache.conversation
        return len(conversation) if conversation is not None else 0

    @property
    def closed(self) -> bool:
        return self._closed or self._model.closed

    def _opened(self) -> LoadedModel:
        model = self._model._opened()
        if self._closed:
            raise SessionError("the session was closed; open another one with model.session().")
        return model

    def _source(self) -> AnswerSource:
        self._opened()
        return AnswerSource(self._model._maker, self._cache, self.priority == "background", self.context_policy)

    def fork(self) -> Session:
        """A second session that continues from here; tokens of both are in memory once. Raises SessionError, ModelClosed."""
        cache = self._opened().engine.fork(self._cache)
        return Session(self._model, priority=self.priority, context_policy=self.context_policy, cache=cache)

    def save(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        """Write its contents to a file, from which `Model.resume` continues, also in another process.

        The file is complete under its name or not there. `sync=False` does not wait for the disk: a power failure may damage the
        file, which `resume` then reports.

        Raises SessionError (closed), BackendError (a back end that cannot), Unwritable, ModelClosed.
        """
        model = self._opened()
        with model.engine.alone() as executable:
            conversation = self._cache.conversation or Conversation.empty(executable)
            saved_session.save(path, conversation, model.facts(self._cache.adapters), sync=sync)

    def truncate(self, ids: Sequence[int]) -> None:
        """Forget all tokens but those that it shares with the beginning of `ids`, such as `model.chat_prompt(messages)` after a
        message was taken back. Raises SessionError, ModelClosed.
        """
        with self._opened().engine.alone():
            if (kept := self._cache.conversation) is not None:
                kept.truncate(kept.sequence.useful(np.asarray(ids, np.int32), last=True))

    def close(self) -> None:
        """Free its memory; an answer that is being written for it is cancelled. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._model.engine.close_session(self._cache)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.n_tokens} tokens, {self.priority}"
        return f"<edgellm.Session of {self._model.path.name}: {state}>"
