"""What a caller may ask of one generation, taken apart and checked."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from edgellm.engine.context_policy import ContextPolicy, check_policy
from edgellm.engine.integers import as_int
from edgellm.engine.stop_text import StopText
from edgellm.errors import OptionError, shown
from edgellm.sampling import Processor, SamplingKeywords

MaxTokens = int | None | Literal["context"]
PromptProgress = Callable[[int, int], None]      # (tokens of the prompt that were read, all of them)
NOT_SAMPLING = frozenset({"max_tokens", "stop", "processors", "progress", "context_policy"})


class GenerationKeywords(SamplingKeywords, total=False):
    """The options of `generate`, `stream` and `chat`; the sampling options are described in `SamplingOptions`."""

    max_tokens: MaxTokens                        # "context" (default): as many as the context holds; None: no limit
    stop: str | Iterable[str] | None             # texts that end the answer and are not part of it
    processors: Sequence[Processor]              # functions (ids (n,), logits (n_vocab,)) -> logits, called before all else
    progress: PromptProgress | None              # called before each step of a prompt, in the thread that asks for the first piece
    context_policy: ContextPolicy | None         # what happens when the context is full; None: as the session or model was opened


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """The options of one generation."""

    max_tokens: int | None                       # None: no limit
    stops: StopText
    processors: Sequence[Processor]
    sampling: SamplingKeywords
    progress: PromptProgress | None
    context_policy: ContextPolicy | None = None


def parse(options: GenerationKeywords, *, context: int, more_stops: Sequence[str] = ()) -> GenerationOptions:
    """Sort out `options`; `more_stops` join the user's. Raises OptionError, but leaves sampling options to the sampler."""
    stops = StopText(options.get("stop", ()), more_stops)
    sampling = {name: value for name, value in options.items() if name not in NOT_SAMPLING}
    policy = options.get("context_policy")
    return GenerationOptions(_limit(options.get("max_tokens", "context"), context), stops, options.get("processors", ()),
                             cast(SamplingKeywords, sampling), _progress(options.get("progress")),
                             None if policy is None else check_policy(policy))


def _limit(max_tokens: object, context: int) -> int | None:
    if isinstance(max_tokens, str) and max_tokens == "context":
        return context
    if max_tokens is None:
        return None
    number = as_int(max_tokens)
    if number is None or number < 0:
        raise OptionError(f"max_tokens={shown(max_tokens)} is not possible; give a whole number, 0 or greater, or None for "
                          "no limit.")
    return number


def _progress(progress: object) -> PromptProgress | None:
    if progress is not None and not callable(progress):
        raise OptionError(f"progress={shown(progress)} cannot be called; give a function of (done, total) tokens, or None.")
    return progress
