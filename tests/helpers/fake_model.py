"""A model that answers with given texts, so that the command line can be tested without computing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from edgellm.api.records import Event, Generation, Stats
from edgellm.chat.thinking import THINK, Marks, Thinking, ThinkingSplitter, switch
from edgellm.errors import OptionError
from edgellm.loading.loaded import ModelInfo
from edgellm.sampling import ResolvedOptions, resolve_options


def split_thinking(text: str, *, inside: bool = False, marks: Marks = THINK) -> tuple[str, str]:
    """A complete text as (thinking, answer)."""
    splitter = ThinkingSplitter(inside=inside, marks=marks)
    (thinking, answer), (more_thinking, more_answer) = splitter.push(text), splitter.flush()
    return thinking + more_thinking, answer + more_answer


class FakeStream:
    """Streams the characters of a text; closed early, `result` holds the part that was read."""

    def __init__(self, text: str, stop_reason: str = "eog", evicted: int = 0) -> None:
        self._text, self._reason, self._evicted = text, stop_reason, evicted
        self._read, self._closed = 0, False
        self.prompt_tokens = 7

    def __iter__(self) -> Iterator[str]:
        while self._read < len(self._text) and not self._closed:
            self._read += 1
            yield self._text[self._read - 1]

    def close(self) -> None:
        """End the stream."""
        self._closed = self._closed or self._read < len(self._text)

    def events(self) -> Iterator[Event]:
        """As Stream.events: the part of the text up to </think> is thinking."""
        splitter = ThinkingSplitter(inside=False)
        for piece in self:
            thinking, text = splitter.push(piece)
            yield from ([Event("thinking", thinking)] if thinking else [])
            yield from ([Event("text", text)] if text else [])
        yield from (Event("text", text) for text in splitter.flush()[1:] if text)

    def drain(self) -> Generation:
        """Read to the end."""
        for _ in self:
            pass
        return self.result

    @property
    def result(self) -> Generation:
        """The tokens that were read."""
        stats = Stats(self.prompt_tokens, 0, self._evicted, self._read, 0.5, 0.25, 0.5)
        reason: Any = "cancelled" if self._closed else self._reason
        thinking, text = split_thinking(self._text[: self._read])
        return Generation(text, (1,) * self._read, reason, stats, 0, thinking)


class FakeSession:
    """Asks its model, and holds nothing."""

    def __init__(self, model: FakeModel) -> None:
        self.chat, self.n_tokens = model.chat, 0

    def save(self, path: Any, *, sync: bool = True) -> None:
        """As Session.save."""

    def close(self) -> None:
        """As Session.close."""


class FakeModel:
    """Gives the next of `answers` each time; `calls` holds (method, prompt or messages, options)."""

    def __init__(self, *answers: str | FakeStream, template: bool = True) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []
        self.closed = False
        self.thinking: Thinking = "no"
        self.tokenizer: Any = None
        self.progress: Any = None  # what the last call gave
        self.info = ModelInfo(
            path=Path("fake.gguf"),
            name="fake",
            architecture="llama",
            parameters=1000,
            file_bytes=4000,
            token_bytes=3000,
            bytes_by_type={"F32": 4000},
            n_vocab=32,
            n_layers=1,
            context=64,
            context_train=64,
            sinks=4,
            kv_type="f16",
            kv_bytes=100,
            backend="cpu",
            threads=2,
            has_tokenizer=True,
            has_template=template,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """As Model.close."""
        self.closed = True

    def load_draft(self, name: str) -> None:
        """As Model.load_draft: "stranger" has another vocabulary."""
        if "stranger" in name:
            raise OptionError(
                "has another vocabulary than fake.gguf",
                option="draft",
                value=name,
                advice="take a smaller model of the same family",
            )

    def session(self) -> FakeSession:
        """As Model.session."""
        return FakeSession(self)

    def sampling_options(self, **sampling: Any) -> ResolvedOptions:
        """As Model.sampling_options, for a file that recommends nothing."""
        return resolve_options(sampling, {})

    def _next(self) -> FakeStream:
        answer = self.answers.pop(0)
        return FakeStream(answer) if isinstance(answer, str) else answer

    def stream(self, prompt: Any, **options: Any) -> FakeStream:
        """As Model.stream."""
        self.progress = options.pop("progress", None)
        self.calls.append(("stream", prompt, options))
        return self._next()

    def chat(self, messages: Any, *, stream: bool, **options: Any) -> FakeStream:
        """As Model.chat with stream=True."""
        assert stream
        switch(self.thinking, options.get("think"))
        self.progress = options.pop("progress", None)
        self.calls.append(("chat", list(messages), options))
        return self._next()

    def generate(self, prompt: Any, **options: Any) -> Generation:
        """As Model.generate."""
        self.calls.append(("generate", prompt, options))
        return FakeStream("").result
