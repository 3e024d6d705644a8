"""One answer as it is computed: tokens are sampled, shown as pieces of text, and end at a stop text or a limit."""

from __future__ import annotations

import functools
import time
from array import array
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any  # what an answer with a schema stands for

import numpy as np
import numpy.typing as npt

from edgellm.api.context_policy import Visible
from edgellm.api.generation_options import PromptProgress
from edgellm.api.indenting import Indenter
from edgellm.api.records import CallProblem, Eviction, Generation, ParsedGeneration, PromptRead, Stats, StopReason, TokenLogprobs
from edgellm.api.stop_text import StopText
from edgellm.chat.channels import Channel, Reader
from edgellm.chat.tools import CallDelta, ToolCall
from edgellm.engine.conversation import Logits, SessionCache
from edgellm.engine.prompts import PromptVectors, TokenIds
from edgellm.engine.request import Request
from edgellm.engine.speculate.drafter import MOST, Drafter
from edgellm.errors import NumericError
from edgellm.memory.pictures import Pictures
from edgellm.options.sampling import TokenChoice
from edgellm.sampling import Sampler
from edgellm.sampling.bans import Bans
from edgellm.sampling.logprobs import log_probabilities
from edgellm.sampling.loops import EVERY, repeats
from edgellm.tokenizer import StreamDecoder

AHEAD = 2  # tokens that are computed before a reader asks for them, in steps that others want


class Piece(str):
    """A piece of an answer as it is written: the text, and the token that brought it.

    `token_id` is None for text that was held back and comes at the end. The text may be "": the bytes of one character, or
    the beginning of a stop text, can be spread over several tokens. `thinking` is text that a model which thinks before it
    answers has thought; it is not part of the answer, nor of the piece's own text. `logprobs` are the token's, where they were
    asked for; `tool_calls` are the calls that are complete with it, `call_deltas` pieces of those that are being written.
    """

    __slots__ = ("call_deltas", "logprobs", "thinking", "token_id", "tool_calls")
    token_id: int | None
    thinking: str
    logprobs: TokenLogprobs | None
    tool_calls: tuple[ToolCall, ...]
    call_deltas: tuple[CallDelta, ...]

    def __new__(
        cls,
        text: str,
        token_id: int | None,
        thinking: str = "",
        logprobs: TokenLogprobs | None = None,
        tool_calls: tuple[ToolCall, ...] = (),
        call_deltas: tuple[CallDelta, ...] = (),
    ) -> Piece:
        piece = super().__new__(cls, text)
        piece.token_id, piece.thinking, piece.logprobs, piece.tool_calls = token_id, thinking, logprobs, tool_calls
        piece.call_deltas = call_deltas
        return piece

    def __getnewargs__(self) -> tuple[Any, ...]:
        """For copy and pickle."""
        return str(self), self.token_id, self.thinking, self.logprobs, self.tool_calls, self.call_deltas


@dataclass(frozen=True, slots=True)
class AnswerSpec:
    """Settings of one generation. `decoder` is None for models without a tokenizer: their pieces have no text."""

    prompt: TokenIds
    max_tokens: int | None  # None: no limit
    end_tokens: Collection[int]
    sampler: Sampler
    decoder: StreamDecoder | None
    stops: StopText | Indenter | None = None
    progress: PromptProgress | None = None
    reader: Reader | None = None  # separates channels
    turn_ends: StopText | None = None  # texts that end the answer in any channel, where no token does
    calls_back: bool = False  # whether the sampler calls processors
    messages: Visible | None = None  # of a conversation, for telling which of them are forgotten
    kept: int | None = None  # of the first tokens are never evicted; None: the sinks
    limit: int | None = None  # of tokens, after which the answer ends; None: there is no end to the context
    logprobs: int | None = None  # log probabilities of each token, and of so many of the likeliest
    stop_loops: bool = False  # end an answer that repeats itself
    parse: Callable[[str], Any] | None = None  # for the result
    drafter: Drafter | None = None
    vectors: PromptVectors | None = None  # in the place of some tokens of the prompt
    bans: Bans | None = None
    echo: bool = False  # log probabilities of the prompt are wanted
    not_enforced: tuple[str, ...] = ()  # keywords of schemas
    check: Callable[[str], str | None] | None = None  # for the result
    check_call: Callable[[ToolCall], str | None] | None = None  # what is wrong with a call's arguments


class Answer(Request):
    """Tokens become pieces when a reader is there for them, so that what nobody has read can be left out at the end."""

    def __init__(
        self, spec: AnswerSpec, *, context: int, sinks: int, positions: int | None, session: SessionCache | None, background: bool
    ) -> None:
        super().__init__(array("i", spec.prompt.tobytes()), session=session, background=background)
        limits = [limit for limit in (positions, spec.limit) if limit is not None]
        self.kept, self.vectors = spec.kept, spec.vectors
        self._spec, self._context, self._sinks = spec, context, sinks if spec.kept is None else spec.kept
        self.drafts = spec.drafter is not None
        self.on_step = self._report if spec.progress is not None else None
        self.prepare = spec.sampler.prepare if spec.max_tokens != 0 else None
        self._positions = min(limits) if limits else None
        self.calls_back = spec.calls_back
        self.draining = False  # all of it is wanted, in one piece
        self.reports = False  # the reader wants to know how far the prompt is
        self._news = self._told = 0  # tokens of the prompt that are computed, and that the reader knows of
        self.result: Generation | None = None
        self.n_prompt = self._shown = len(self.ids)  # `_shown`: of prompt and answer
        self._text, self._thinking = bytearray(), bytearray()  # UTF-8: 50,000 pieces as str objects would be 3 MB
        self._piece: Piece | None = None  # for the reader
        self._stuck = False  # nothing but banned texts can follow
        self._end: StopReason | None = None  # why no token comes after the newest
        self._thought = self._silent = 0  # tokens of thinking; those since the last that showed anything
        self._calls: list[ToolCall] = []
        self._logprobs: list[TokenLogprobs] = []
        self._drawn: list[TokenLogprobs] = []  # of the tokens that `sample` found
        self._echoed: list[TokenLogprobs] = []  # of the prompt but its first token
        self.every_row = spec.echo  # until the prompt is computed
        self._guessed = 0  # tokens of the draft that the step checks
        self._checked: tuple[int, ...] = ()  # those that were right, before the token that `sample` found
        self.cached_tokens = self._skipped = 0  # of the prompt
        self.left_out_tokens = 0  # before it became the prompt
        self._asked = 0.0  # time.perf_counter() of the first request for a piece
        self._since = 0.0  # since when the next token is computed
        self._first = self._prompt_seconds = self._token_seconds = 0.0

    # --- for readers -------------------------------------------------------------------------------------------------------
    def asked(self) -> None:
        self._since = time.perf_counter()
        self._asked = self._asked or self._since
        if self.draining:
            self._deliver_all()

    @property
    def ready(self) -> bool:
        if self.result is not None or self.cancelled:
            return True
        if self.draining:
            return False
        return self._shown < self._settled or self._end is not None or self._news > self._told

    @property
    def _settled(self) -> int:
        """How many tokens of prompt and answer a reader may see: those that are final."""
        bans = self._spec.bans
        return len(self.ids) - (bans.pending if bans is not None and self._end is None else 0)

    def deliver(self) -> None:
        if self._piece is not None or self.result is not None:
            return
        if self.cancelled:
            self._last("cancelled")
        elif self._shown < self._settled:
            self._show()
        elif self._end is not None:
            self._last(self._end)
        if self.draining:
            self._piece = None

    def _deliver_all(self) -> None:
        """The text of all tokens so far; nobody reads the pieces."""
        while self.result is None and (self._shown < self._settled or self._end is not None):
            self.deliver()

    def take(self) -> Piece | None:
        """The piece that was delivered, None at the end."""
        piece, self._piece = self._piece, None
        return piece

    def take_read(self) -> PromptRead | None:
        """How far the prompt is, where that is news to the reader."""
        if self._news <= self._told:
            return None
        self._told = self._news
        return PromptRead(self._told, self.n_prompt)

    def eviction(self) -> Eviction | None:
        """The tokens and messages that the model no longer sees, as far as the answer was shown."""
        tokens = max(0, self._shown - self._context) if self._positions is None else 0
        messages, gone, first = self._spec.messages, (0, 0), tokens + self._sinks if tokens else 0
        if tokens and self.vectors is not None:
            first, kept = self._pictures.after(first, self._sinks, self._shown - 1)
            tokens, gone = first - kept, self._pictures.gone(first, kept)
        forgotten = messages.forgotten(first) if messages is not None else ()
        return Eviction(tokens, forgotten, *gone) if tokens or forgotten else None

    @functools.cached_property
    def _pictures(self) -> Pictures:
        return Pictures(self._spec.prompt)

    @property
    def finished(self) -> bool:
        return self._end is not None or self.result is not None

    @property
    def runs_ahead(self) -> bool:
        if self._end is not None or self.result is not None:
            return False
        if len(self.ids) == self.n_prompt:  # its reader has seen the prompt's progress, and keeps waiting
            return self.awaited and self.conversation is not None
        return len(self.ids) < self._shown + self.awaited + AHEAD  # a reader that waits takes one at once

    def end(self) -> None:
        if self.result is None:
            self.cancelled, unread = True, self._piece
            self._last("cancelled")
            self._piece = unread

    def abort(self) -> None:
        if self.result is None:
            self.cancelled = True
            self._finish("cancelled")

    # --- for the core ------------------------------------------------------------------------------------------------------
    def started(self, cached: int) -> None:
        self._since = time.perf_counter()
        if len(self.ids) == self.n_prompt:
            self.cached_tokens, self._skipped = cached, 0
            self._echoed, self.every_row = [], self._spec.echo

    def skipped(self, tokens: int) -> None:
        if len(self.ids) == self.n_prompt:
            self._skipped += tokens

    def _report(self, done: int) -> None:
        if self._spec.progress is not None and len(self.ids) == self.n_prompt:
            self._spec.progress(done, self.n_prompt)

    def advanced(self) -> None:
        if self.reports and (read := self.num_computed_tokens) > max(self._news, self.cached_tokens):
            now = time.perf_counter()
            self._prompt_seconds += now - self._since
            self._news, self._since = read, now

    def choice(self) -> TokenChoice | None:
        spec, length = self._spec, len(self.ids) + 1
        last = spec.max_tokens is not None and length >= self.n_prompt + spec.max_tokens
        last = last or (self._positions is not None and length > self._positions)
        return None if last or self.every_row or self.drafts or spec.bans is not None else spec.sampler.choice()

    def sample(self, logits: Logits) -> int | None:
        if self.every_row:
            first = len(self._echoed) + 1
            for row, token in zip(logits, self.ids[first : first + len(logits)], strict=False):
                self._echoed.append(TokenLogprobs(token, *log_probabilities(row, token, self._spec.logprobs or 0)))
            if first + len(logits) <= self.n_prompt:
                return None
            self.every_row, logits = False, logits[-1:]
        if len(self.ids) == self.n_prompt:
            self._prompt_seconds += time.perf_counter() - self._since
            if self.reports:
                self._news = self.n_prompt
            if self._spec.max_tokens == 0:
                return None
        self._guessed, self._checked, self._drawn = len(logits) - 1, (), []
        if self._guessed:
            return self._check(logits)
        try:
            self._stuck = self._spec.bans is not None and self._spec.bans.stuck
            return None if self._stuck else self._draw(logits[0], self._history())
        except NumericError:
            self._stuck = self._spec.bans is not None and bool(self._spec.bans.barred) and bool(np.isfinite(logits[0].max()))
            if not self._stuck:
                raise
            return None

    def _history(self) -> array[int]:
        """The tokens so far, without those that are vectors."""
        return self.ids if self.vectors is None else array("i", (token for token in self.ids if token >= 0))

    def _draw(self, logits: npt.NDArray[np.float32], ids: array[int], guess: int | None = None) -> int:
        """`guess`: the token that was guessed, where it was drawn; then the answer's is drawn so that they are often the same."""
        sampler, drafter, bans = self._spec.sampler, self._spec.drafter, self._spec.bans
        if bans is not None and bans.barred:
            logits = logits.copy()
            logits[[*bans.barred]] = -np.inf
        if guess is None or drafter is None:
            token = sampler.sample(logits, ids)
        else:
            token = sampler.sample_after(logits, ids, guess, drafter.chances[len(ids) - len(self.ids)])
        if self._spec.logprobs is not None:
            self._drawn.append(TokenLogprobs(token, *log_probabilities(logits, token, self._spec.logprobs)))
        return token

    def _check(self, logits: Logits) -> int:
        """Tokens of rows that check a draft, each drawn as usual, up to the first that differs; the rest is discarded."""
        conversation, sampler, ids, tokens = self.conversation, self._spec.sampler, self.ids[:], list[int]()
        assert conversation is not None
        guesses = conversation.sequence.ids[len(ids) :]
        drawn = self._spec.drafter is not None and bool(self._spec.drafter.chances)
        for row, guess in zip(logits, (*guesses, None), strict=True):
            tokens.append(self._draw(row, ids, guess if drawn else None))
            if tokens[-1] in self._spec.end_tokens:
                break
            sampler.accept(tokens[-1])
            ids.append(tokens[-1])
            if tokens[-1] != guess or sampler.complete or len(ids) - self.n_prompt == self._spec.max_tokens:
                break
        conversation.truncate(conversation.sequence.common_prefix(np.array(ids, np.int32)))
        self._checked = tuple(tokens[:-1])
        return tokens[-1]

    def draft(self) -> list[int]:
        drafter, limit = self._spec.drafter, self._spec.max_tokens
        if drafter is None or len(self.ids) == self.n_prompt:
            return []
        looked = self.n_prompt + (len(self.ids) - self.n_prompt) // EVERY * EVERY  # the length at the last look for loops
        ends = (
            self._positions,
            None if limit is None else self.n_prompt + limit,
            looked + EVERY if self._spec.stop_loops else None,
        )
        most = [end - len(self.ids) - 1 for end in ends if end is not None]
        return drafter.propose(self.ids, max(0, min(most, default=MOST)))

    def accept(self, token: int | None, started: float) -> None:
        if self.every_row:  # a part of the prompt was computed
            self.advanced()
            return
        now, before, self.on_step = time.perf_counter(), len(self.ids), None
        bans = self._spec.bans
        if token is None:
            self._end = "stop" if self._stuck else "length"
            if self._stuck and bans is not None:
                self._take_back(bans.retreat())
        elif before == self.n_prompt:
            self._first = now - self._asked
        else:
            self._token_seconds += now - (min(self._since, started) if self.awaited else started)
            if self._spec.drafter is not None:
                self._spec.drafter.note(self._guessed, 1 + len(self._checked), now - started)
        self._since = now
        self.ids.extend(self._checked)
        if token in self._spec.end_tokens:
            self._end = "eog"
        elif token is not None:
            self.ids.append(token)
            if not self._guessed:  # a draft was accepted while its tokens were drawn
                self._spec.sampler.accept(token)
            self._end = self._reason()
        self._logprobs += self._drawn[: len(self.ids) - before]
        if bans is not None and len(self.ids) > before:
            self._take_back(bans.push(self.ids[-1]))
        if self.draining:
            self._deliver_all()

    def _take_back(self, n: int) -> None:
        """The newest tokens are no part of the answer; it is continued from there."""
        if n:
            self._spec.sampler.rollback(n)
            del self.ids[-n:], self._logprobs[max(0, len(self._logprobs) - n) :]
            self._end = None

    def _reason(self) -> StopReason | None:
        """Why the answer ends with the newest token, if it does."""
        n = len(self.ids) - self.n_prompt
        if self._spec.sampler.complete:
            return "eog"
        if n == self._spec.max_tokens:
            return "length"
        if self._positions is not None and len(self.ids) > self._positions:
            return "context"
        if self._spec.stop_loops and n % EVERY == 0 and repeats(self.ids, self.n_prompt):
            return "loop"
        return None

    # --- text --------------------------------------------------------------------------------------------------------------
    def _show(self) -> None:
        """The piece of the first token that was not shown; with all that was held back if the answer ends here."""
        token = self.ids[self._shown]
        self._shown += 1
        decoder = self._spec.decoder
        text, ended = self._up_to_end(decoder.push(token) if decoder else "")
        reason: StopReason | None = "stop" if ended else None
        if not ended and self._shown == len(self.ids) and self._end in ("length", "context", "loop"):
            reason = self._end
            text += self._rest()
        self._piece, stopped = self._made(text, token, last=reason is not None)
        reason = "stop" if stopped else reason
        if reason is None and self.cancelled:
            reason = "cancelled"
        if reason is not None:
            self._finish(reason)

    def _up_to_end(self, text: str) -> tuple[str, bool]:
        """The text before one that ends the turn, and whether it is there."""
        ends = self._spec.turn_ends
        return ends.push(text) if ends is not None else (text, False)

    def _made(self, text: str, token: int | None, *, last: bool) -> tuple[Piece, bool]:
        """The next text as a piece, its channels apart, noted for the result; and whether a stop text ends it."""
        reader, stops, stopped = self._spec.reader, self._spec.stops, False
        parts: list[tuple[Channel, str | ToolCall | CallDelta]] = [(Channel.TEXT, text)]
        if reader is not None:
            parts = reader.push(text).parts
            if last:
                parts += reader.flush().parts
        thinking, shown, calls, deltas = "", "", list[ToolCall](), list[CallDelta]()
        for channel, part in parts:
            if isinstance(part, CallDelta):
                deltas.append(part)
            elif isinstance(part, ToolCall):
                shown += stops.flush() if stops is not None else ""  # no stop text reaches beyond a call
                calls.append(part)
            elif channel is Channel.THINKING:
                thinking += part
            elif stops is None:
                shown += part
            else:
                more, stopped = stops.push(part)
                shown += more
                if stopped:
                    break
        if last and not stopped and stops is not None:
            shown += stops.flush()
        self._calls += calls
        self._text += shown.encode()
        self._thinking += thinking.encode()
        self._silent += token is not None
        if thinking or shown or calls or deltas:
            self._thought, self._silent = self._thought + (self._silent if thinking else 0), 0
        logprobs = self._logprobs[self._shown - self.n_prompt - 1] if token is not None and self._logprobs else None
        return Piece(shown, token, thinking, logprobs, tuple(calls), tuple(deltas)), stopped

    def _rest(self) -> str:
        """Text that was held back: what could have ended the turn, the bytes of an unfinished character."""
        decoder, ends = self._spec.decoder, self._spec.turn_ends
        text, ended = self._up_to_end(decoder.flush() if decoder else "")
        return text if ended or ends is None else text + ends.flush()

    def _last(self, reason: StopReason) -> None:
        """End here; a last piece brings the text that was held back, if any."""
        piece, stopped = self._made(self._rest(), None, last=True)
        self._piece = piece if piece or piece.thinking or piece.tool_calls or piece.call_deltas else None
        self._finish("stop" if stopped else reason)

    def _finish(self, reason: StopReason) -> None:
        answer = self.ids[self.n_prompt : self._shown]
        evicted, forgotten, *gone = self.eviction() or Eviction(0)
        stats = Stats(
            self.n_prompt,
            self.cached_tokens,
            evicted,
            len(answer),
            self._first,
            self._prompt_seconds,
            self._token_seconds,
            forgotten,
            *((drafter.drafted, drafter.accepted) if (drafter := self._spec.drafter) else (0, 0)),
            self._thought,
            self._skipped,
            self.left_out_tokens,
            *gone,
        )
        logprobs = tuple(self._logprobs[: len(answer)]) if self._spec.logprobs is not None else None
        check, made = self._spec.check_call, Generation if self._spec.parse is None else ParsedGeneration
        problems = [(call, check(call)) for call in self._calls] if check is not None else []
        self.result = made(
            self._text.decode(),
            tuple(answer),
            reason,
            stats,
            self._spec.sampler.seed,
            self._thinking.decode(),
            logprobs,
            tuple(self._calls),
            parse=self._spec.parse,
            stop_text=self._spec.stops.found if self._spec.stops is not None else None,
            not_enforced=self._spec.not_enforced,
            check=self._spec.check,
            prompt_logprobs=tuple(self._echoed) if self._spec.echo else None,
            call_problems=tuple(CallProblem(call, problem) for call, problem in problems if problem is not None),
        )
