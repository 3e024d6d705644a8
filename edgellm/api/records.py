"""Records of a generation: events, the finished answer and its statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar  # Any: what a caller's schema stands for

from edgellm.chat.templates import Message
from edgellm.chat.tools import CallDelta, ToolCall

Parsed = TypeVar("Parsed")
Parsed_co = TypeVar("Parsed_co", covariant=True)
StopReason = Literal["eog", "stop", "length", "context", "loop", "cancelled"]


class TokenLogprobs(NamedTuple):
    """Natural logarithms of probabilities, as the model gave them before any sampling option."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (token id, log probability) of the likeliest, best first


class PromptRead(NamedTuple):
    """How many tokens of a prompt are read or were cached, and all of them."""

    done: int
    total: int


class Eviction(NamedTuple):
    """Tokens that the model no longer sees, and the numbers of the messages that went with them or were left out.

    `images`, `clips`: pictures and audio clips of the prompt that are no longer seen; each is evicted as a whole.
    """

    tokens: int
    messages: tuple[int, ...] = ()
    images: int = 0
    clips: int = 0


class Event(NamedTuple):
    """A change of an answer, by its kind.

    "prompt": another part of the prompt was read, `prompt` says how far. "thinking" and "text": `text` is to be shown; `logprobs`
    are of the tokens that brought it, where they were asked for. "call_delta": a piece of a call was written. "tool_call":
    `tool_call` is complete, and its deltas together are the JSON of its arguments. "evicted": the context is
    full, and `evicted` is no longer seen; once per answer, when it begins. "done": the last one, with the whole `result`.
    """

    kind: Literal["prompt", "thinking", "text", "call_delta", "tool_call", "evicted", "done"]
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()
    tool_call: ToolCall | None = None
    prompt: PromptRead | None = None
    evicted: Eviction | None = None
    result: Generation | None = None
    call_delta: CallDelta | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts in tokens, times in seconds."""

    prompt_tokens: int
    cached_tokens: int  # of the prompt: kept from the conversation before
    evicted_tokens: int  # of prompt and answer: no longer seen by the model at the end
    generated_tokens: int
    time_to_first_token: float  # from the first request for a piece, waiting for other calls included
    prompt_seconds: float  # computing the part of the prompt that was not cached
    generation_seconds: float  # computing the tokens after the first; a slow reader does not count
    forgotten_messages: tuple[int, ...] = ()  # numbers in the list that `chat` was given: left out, or no longer seen at all
    drafted_tokens: int = 0  # that were guessed and checked
    accepted_tokens: int = 0  # of them: they were right
    thinking_tokens: int = 0  # of those that were generated
    skipped_tokens: int = 0  # of the prompt: far beyond the context, so that nothing depends on them; not computed
    left_out_tokens: int = 0  # of what `infill` was given: files, prefix and suffix that did not fit, and are not in the prompt
    forgotten_images: int = 0  # of the prompt: no longer seen by the model, evicted as a whole
    forgotten_clips: int = 0  # the same of audio

    @property
    def computed_prompt_tokens(self) -> int:
        """Of the prompt: all but those that were cached or skipped."""
        return self.prompt_tokens - self.cached_tokens - self.skipped_tokens

    @property
    def computed_tokens(self) -> int:
        """Of prompt and answer."""
        return self.computed_prompt_tokens + self.generated_tokens

    @property
    def tokens_per_second(self) -> float:
        """Speed of generation. A single token comes with the prompt: its speed is that of the whole answer; 0 without any."""
        if self.generated_tokens == 1:
            return 1 / self.time_to_first_token if self.time_to_first_token > 0 else 0.0
        return (self.generated_tokens - 1) / self.generation_seconds if self.generated_tokens else 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Speed of reading the prompt."""
        return self.computed_prompt_tokens / self.prompt_seconds if self.prompt_seconds > 0 else 0.0


class ToolError(NamedTuple):
    """A call whose function raised an exception, which the model got as its result."""

    call: ToolCall
    error: Exception


class CallProblem(NamedTuple):
    """A call whose arguments break their tool's schema, and what is wrong with them."""

    call: ToolCall
    problem: str


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished answer.

    `token_ids`: all that were generated, those of a stop text included, an end-of-generation token not. `stop_reason`:
    "eog" (the model ended it, or its form is complete), "stop" (a stop text), "length" (max_tokens), "context" (learned positions
    are used up), "loop" (it repeated itself), "cancelled" (closed early). `seed`: with it the same call gives the same answer.
    `thinking`: what a model has thought between <think> and </think> before it answered a conversation; it is not in `text`.
    `logprobs`: of each token, where they were asked for. `tool_calls`: what the model wants to be called; no part of `text`.
    `stop_text`: the text of `stop` that ended it. `not_enforced`: keywords of schemas that no grammar enforces.
    `prompt_logprobs`: of each token of the prompt but the first, with `echo=True`.
    `tool_errors`: exceptions of functions that were called. `call_problems`: calls whose arguments break what no grammar enforces.
    `messages`: what came before this answer, where calls were carried out: answers with calls, and results.
    """

    text: str
    token_ids: tuple[int, ...]
    stop_reason: StopReason
    stats: Stats
    seed: int
    thinking: str = ""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    messages: tuple[Message, ...] = ()
    parse: Callable[[str], Any] | None = field(default=None, repr=False, compare=False)
    stop_text: str | None = None
    not_enforced: tuple[str, ...] = ()
    check: Callable[[str], str | None] | None = field(default=None, repr=False, compare=False)
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    tool_errors: tuple[ToolError, ...] = ()
    call_problems: tuple[CallProblem, ...] = ()

    @property
    def problem(self) -> str | None:
        """The fault of an answer under a schema with `strict=False`, or of its first call that has one; None without one."""
        if self.tool_calls or self.check is None or self.stop_reason != "eog":
            return self.call_problems[0].problem if self.call_problems else None
        return self.check(self.text)

    @property
    def parsed(self) -> Any:
        """The value of an answer with a schema: an instance of the Pydantic model or dataclass, what the type says, or for a
        mapping what JSON gives. None without a schema, for an answer that was cut (`stop_reason` is not "eog"), and for calls of
        tools in its place.

        Raises what the model's own validators raise.
        """
        return self.parse(self.text) if self.parse is not None and self.stop_reason == "eog" and not self.tool_calls else None


class Validates(Protocol[Parsed_co]):
    """A TypeAdapter of Pydantic."""

    def validate_json(self, data: str, /) -> Parsed_co: ...


@dataclass(frozen=True, slots=True)
class ParsedGeneration(Generation, Generic[Parsed]):
    """A finished answer of a schema, whose value has the type that `schema` was given as."""

    if TYPE_CHECKING:

        @property
        def parsed(self) -> Parsed | None: ...


class LoadStats(NamedTuple):
    """Requests of a model: those that are computed, those that wait for a place, and the number of places."""

    running: int
    waiting: int
    parallel: int
