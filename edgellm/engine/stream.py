"""One answer as it is written: an iterator of pieces that can be stopped at any time."""
from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from edgellm.chat import ThinkingSplitter
from edgellm.engine.generation_options import PromptProgress
from edgellm.engine.prompts import TokenIds
from edgellm.engine.records import Event, Generation, Piece, Stats, StopReason
from edgellm.engine.session import Logits, Session
from edgellm.engine.stop_text import StopText
from edgellm.errors import NumericError, OptionError
from edgellm.sampling import Sampler
from edgellm.tokenizer import StreamDecoder


@dataclass(frozen=True, slots=True)
class Request:
    """What one generation needs; `decoder` is None for models without a tokenizer: their pieces have no text."""

    prompt: TokenIds
    max_tokens: int | None                       # None: no limit
    end_tokens: Collection[int]
    sampler: Sampler
    decoder: StreamDecoder | None
    stops: StopText
    progress: PromptProgress | None = None
    thinking: ThinkingSplitter | None = None     # for answers that may begin with thinking


class Stream:
    """Iterate over it for the pieces, one per token; after the end `result` is the whole Generation.

    `events()` is for models that think before they answer: it tells the two apart.

    `close()` ends it early, from any thread, as does leaving its `with` block. Then, and after an error, the model is ready
    for the next call. While its reader lets it wait between two pieces, other calls may come first (see Turns); it goes on
    where it was, with the same result.
    """

    def __init__(self, session: Session, request: Request) -> None:
        self._session: Session | None = session
        self._turns, self._request = session.turns, request
        self._context, self._positions = session.layout.context, session.positions
        self._ids = array("i", request.prompt.tobytes())     # prompt and answer
        self._n_prompt = len(self._ids)
        self._text, self._thinking = bytearray(), bytearray()    # UTF-8: 50,000 pieces as str objects would be 3 MB
        self._owner = object()
        self._cancelled = False
        self._lock = threading.Lock()            # held while a token is computed
        self._thread = 0                         # in which it is computed
        self._cached = 0
        self._started = self._first = 0.0        # time.perf_counter()
        self._prompt_seconds = self._token_seconds = 0.0
        self._begun = 0.0                        # when the back end began the next token's step, 0 where it did not
        self._result: Generation | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, as the model reads it."""
        return self._n_prompt

    @property
    def result(self) -> Generation:
        """The finished answer. Raises OptionError before the end."""
        if self._result is None:
            raise OptionError("result is there when the stream has ended; read it to its end or close it first.")
        return self._result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Piece:
        """The next piece. Raises StopIteration at the end, NumericError, ModelClosed, FormatError (file changed on disk)."""
        if self._result is not None:
            raise StopIteration
        self._started = self._started or time.perf_counter()
        try:
            self._turns.take(self)
            with self._lock:
                piece = self._guarded()
        finally:
            self._turns.pause(self)
        if piece is None:
            raise StopIteration
        return piece

    def _guarded(self) -> Piece | None:
        """Compute one token, unless somebody closed the stream; any error ends it."""
        if self._result is not None:
            self._turns.leave(self)
            return None
        self._thread = threading.get_ident()
        try:
            piece = self._advance()
            if self._cancelled:
                self._finish("cancelled")
            return piece
        except NumericError:
            if self._session is not None:
                self._session.forget()
            self._finish("cancelled")
            raise
        except BaseException:
            self._finish("cancelled")
            raise
        finally:
            self._thread = 0

    def _advance(self) -> Piece | None:
        """Compute one token; None where there is nothing more to show."""
        started, is_first = time.perf_counter(), len(self._ids) == self._n_prompt
        logits = None if self._cancelled else self._logits(started)
        if logits is None:
            return self._last("cancelled")
        if is_first and self._request.max_tokens == 0:
            return self._last("length")
        token = self._request.sampler.sample(logits, self._ids)
        now = time.perf_counter()
        if is_first:
            self._first = now - self._started
        else:
            self._token_seconds += now - (self._begun or started)
            self._begun = 0.0
        if token in self._request.end_tokens:
            return self._last("eog")
        self._ids.append(token)
        piece = self._shown(token)
        if self._result is None and not self._cancelled and self._session is not None and self._session.begin(token):
            self._begun = now                    # goes on while the reader has the piece
        return piece

    def _shown(self, token: int) -> Piece:
        """The piece of the newest token; with all that was held back if the answer ends here."""
        decoder, stops = self._request.decoder, self._request.stops
        text, stopped = stops.push(decoder.push(token) if decoder else "")
        reason = "stop" if stopped else self._full()
        if reason is not None and not stopped:
            text += self._rest()
        piece = self._piece(text, token, last=reason is not None)
        if reason is not None:
            self._finish(reason)
        return piece

    def _piece(self, text: str, token: int | None, *, last: bool) -> Piece:
        """The next text as a piece, its thinking apart; noted for the result."""
        thinking, splitter = "", self._request.thinking
        if splitter is not None:
            thinking, text = splitter.push(text)
            if last:
                held_thinking, held_text = splitter.flush()
                thinking, text = thinking + held_thinking, text + held_text
        self._text += text.encode()
        self._thinking += thinking.encode()
        return Piece(text, token, thinking)

    def _logits(self, started: float) -> Logits | None:
        """The last token's logits; the whole sequence is computed where the conversation is not ours (any more)."""
        session = self._session
        assert session is not None
        if session.owner is self._owner:
            return session.decode(self._ids[-1])
        self._begun = 0.0                        # another call came between
        cached, logits = session.prefill(self._owner, np.array(self._ids, np.int32), lambda: self._cancelled,
                                         self._request.progress)
        if len(self._ids) == self._n_prompt:
            self._cached, self._prompt_seconds = cached, time.perf_counter() - started
        return logits

    def _full(self) -> StopReason | None:
        """Why nothing can come after the newest token, if so."""
        if len(self._ids) - self._n_prompt == self._request.max_tokens:
            return "length"
        if self._positions is not None and len(self._ids) > self._positions:
            return "context"
        return None

    def _rest(self) -> str:
        """Text that was held back: a possible stop text, the bytes of an unfinished character."""
        decoder, stops = self._request.decoder, self._request.stops
        text, stopped = stops.push(decoder.flush() if decoder else "")
        return text if stopped else text + stops.flush()

    def _last(self, reason: StopReason) -> Piece | None:
        """End here; a last piece brings the text that was held back, if any."""
        piece = self._piece(self._rest(), None, last=True)
        self._finish(reason)
        return piece if piece or piece.thinking else None

    def cancel(self) -> None:
        """End the answer at the next token (or step of the prompt) without waiting for it; from any thread."""
        self._cancelled = True

    def close(self) -> None:
        """End the answer; `result` then holds what there is. Waits for the token that another thread computes."""
        self._cancelled = True
        if self._thread == threading.get_ident():
            return                               # called while we compute, by a processor or a signal handler: ends after it
        with self._lock:
            if self._result is None:
                self._last("cancelled")

    def _finish(self, reason: StopReason) -> None:
        if self._result is None:
            answer = self._ids[self._n_prompt :]
            evicted = max(0, len(self._ids) - self._context)
            stats = Stats(self._n_prompt, self._cached, evicted, len(answer), self._first, self._prompt_seconds,
                          self._token_seconds)
            self._result = Generation(self._text.decode(), tuple(answer), reason, stats, self._request.sampler.seed,
                                      self._thinking.decode())
            self._session = None                 # a kept stream must not keep a closed model's memory
        self._turns.leave(self)

    def events(self) -> Iterator[Event]:
        """What comes, by kind: pieces of thinking and of the answer, empty ones left out. An alternative to iterating."""
        for piece in self:
            if piece.thinking:
                yield Event("thinking", piece.thinking)
            if piece:
                yield Event("text", str(piece))

    def drain(self) -> Generation:
        """Read to the end and return the result."""
        for _ in self:
            pass
        return self.result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
