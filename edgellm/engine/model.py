"""The loaded model as programs use it: logits, generation, streams, chat; closed when it is no longer needed."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload  # Any: metadata and messages hold values of many types

import numpy as np
import numpy.typing as npt

from edgellm.chat import (
    ChatTemplate,
    Message,
    Thinking,
    ThinkingSplitter,
    encode_chat,
    find_template,
    opens_thinking,
    switch,
    thinking_of,
)
from edgellm.engine.async_ import AsyncTwins
from edgellm.engine.generation_options import GenerationKeywords, GenerationOptions, parse
from edgellm.engine.prompts import TokenIds, checked_ids
from edgellm.engine.records import Generation, ModelInfo, Piece, StopReason
from edgellm.engine.session import Session
from edgellm.engine.stream import Request, Stream
from edgellm.engine.tokenizing import BackgroundTokenizer, TokenTexts, answer_decoder
from edgellm.errors import ModelClosed, OptionError
from edgellm.sampling import ResolvedOptions, Sampler, SamplingKeywords, resolve_options
from edgellm.tokenizer import Tokenizer

__all__ = ["Generation", "Model", "ModelInfo", "Piece", "StopReason", "Stream"]

Prompt = str | Sequence[int] | npt.NDArray[np.integer]


class Model(AsyncTwins):
    """A model ready to run, made by `edgellm.load`; a context manager.

    Safe to use from several threads: calls queue. The last conversation's keys are kept, so that a prompt that begins like
    it is read from where they part (`stats.cached_tokens`). Nothing is printed.
    """

    def __init__(self, session: Session, tokenizer: BackgroundTokenizer, info: ModelInfo, defaults: Mapping[str, int | float],
                 metadata: Mapping[str, Any]) -> None:
        self.info = info
        self._session, self._tokenizer, self._defaults, self._metadata = session, tokenizer, defaults, metadata

    def logits(self, token_ids: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Logits (n_tokens, n_vocab) float32 of every token, in a fresh context; the conversation stays as it is.

        Raises OptionError for ids outside the vocabulary, ContextFull where learned positions end, ModelClosed.
        """
        ids = checked_ids(token_ids, self.n_vocab, name="token_ids")
        self._session.check_room(len(ids))
        call = _Call()
        try:
            self._session.turns.take(call, patience=0.0)     # the conversation of a paused stream stays as it is
            return self._session.all_logits(ids)
        finally:
            self._session.turns.leave(call)

    def generate(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Generation:
        """Continue a prompt, and return the whole answer.

        `prompt`: text (names of control tokens in it are plain text) or token ids. Options: `max_tokens` ("context" by default:
        as many as the context holds; None for no limit), `stop` (a text or several that end the answer and are not part of it),
        `processors` (functions (ids (n,), logits (n_vocab,)) -> logits, called before all else),
        `progress` (a function (done, total), called before each step of a prompt), and the fields of SamplingOptions
        (`temperature=0` is greedy), whose defaults the model file may replace.

        Raises OptionError, NoTokenizer (text for a model without one), ContextFull, NumericError, ModelClosed, and FormatError
        where the file was changed on disk meanwhile.
        """
        return self.stream(prompt, **options).drain()

    def stream(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Stream:
        """As `generate`, piece by piece: computing starts with the first piece that is asked for."""
        self._require_open()
        return self._stream(self._prompt_ids(prompt), parse(options, context=self.context))

    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[False] = False, tools: Sequence[Mapping[str, Any]] | None = None,
             template_options: Mapping[str, Any] | None = None, think: bool | None = None,
             **options: Unpack[GenerationKeywords]) -> Generation: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[True], tools: Sequence[Mapping[str, Any]] | None = None,
             template_options: Mapping[str, Any] | None = None, think: bool | None = None,
             **options: Unpack[GenerationKeywords]) -> Stream: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: bool, tools: Sequence[Mapping[str, Any]] | None = None,
             template_options: Mapping[str, Any] | None = None, think: bool | None = None,
             **options: Unpack[GenerationKeywords]) -> Generation | Stream: ...

    def chat(self, messages: Sequence[Message], *, stream: bool = False, tools: Sequence[Mapping[str, Any]] | None = None,
             template_options: Mapping[str, Any] | None = None, think: bool | None = None,
             **options: Unpack[GenerationKeywords]) -> Generation | Stream:
        """The answer to a conversation: a Generation, or with `stream=True` a Stream of pieces.

        `messages`: mappings with role and content, oldest first. They go through the model's chat template, or a built-in one
        that fits its vocabulary; names of control tokens in them stay plain text. `tools`: function descriptions for templates
        that know them. `template_options`: what else the template asks for. `think`: whether a model whose template has a switch
        for it thinks before it answers, None for the template's own default; see the property `thinking`. What is thought between
        <think> and </think> is not part of the answer: it is `result.thinking`, `piece.thinking`, and in `Stream.events()`. Other
        options and errors as in `generate`, and TemplateError where the template does not take the conversation.
        """
        self._require_open()
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            raise OptionError('messages is no list of messages; give e.g. [{"role": "user", "content": "Hello"}].')
        template = self._template
        thinking = thinking_of(template.source)
        rendered = template.render(messages, tools=tools, **{**switch(thinking, think), **(template_options or {})})
        ids = np.array(encode_chat(self.tokenizer, rendered), np.int32)
        if not len(ids):
            raise OptionError("messages became an empty prompt; give at least one message with some content.")
        splitter = ThinkingSplitter(inside=opens_thinking(rendered.text)) if thinking != "no" else None
        answer = self._stream(ids, parse(options, context=self.context, more_stops=template.stops), splitter)
        return answer if stream else answer.drain()

    @cached_property
    def _template(self) -> ChatTemplate:
        return find_template(self._metadata, self.tokenizer, file=str(self.path))

    def _prompt_ids(self, prompt: Prompt) -> TokenIds:
        if not isinstance(prompt, str):
            return checked_ids(prompt, self.n_vocab, name="prompt")
        ids = self.tokenizer.encode(prompt, add_special=True)
        if not ids:
            raise OptionError("the prompt is empty, and this model has no token that begins a text; give some text or token ids.")
        return np.array(ids, np.int32)

    def _stream(self, ids: TokenIds, asked: GenerationOptions, thinking: ThinkingSplitter | None = None) -> Stream:
        self._session.check_room(len(ids))
        options = self.sampling_options(**asked.sampling).options
        tokenizer = self.tokenizer if self.info.has_tokenizer or asked.stops else None    # stop texts need one, or raise
        end_tokens = tokenizer.eog_ids if tokenizer else frozenset()
        sampler = Sampler(options, n_vocab=self.n_vocab, context=self.context, end_tokens=end_tokens,
                          vocabulary=self._token_texts if tokenizer else None, processors=asked.processors)
        decoder = answer_decoder(tokenizer, int(ids[-1])) if tokenizer else None
        return Stream(self._session, Request(ids, asked.max_tokens, end_tokens, sampler, decoder, asked.stops, asked.progress,
                                             thinking))

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
    def session(self) -> Session:
        """The computing behind it, for benchmarks."""
        return self._session

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
        return thinking_of(self._template.source)

    @property
    def closed(self) -> bool:
        return self._session.closed

    def _require_open(self) -> None:
        if self._session.closed:
            raise ModelClosed(f"{self.path}: the model was closed; load it again.")

    def cancel(self) -> None:
        """End the answer that is being written, from any thread, without waiting; nothing happens where there is none."""
        running = self._session.turns.holder
        if isinstance(running, Stream):
            running.cancel()

    def close(self) -> None:
        """Free threads, conversation and weights; a running answer is cancelled first, and calls that wait raise ModelClosed.

        Closing twice does nothing, nor does closing in a forked process: the model is the parent's.
        """
        if self._session.turns.forked:
            return
        call = _Call()
        try:
            self._session.turns.take(call, patience=0.0, hurry=self.cancel)
            self._tokenizer.wait()
            self._session.close()
        finally:
            self._session.turns.leave(call)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._session.closed else f"context {self.context}, {self.backend}, {self.threads} threads"
        return f"<edgellm.Model {self.path.name}: {self.architecture}, {state}>"


class _Call:
    """A call that needs the model for itself for a while."""

