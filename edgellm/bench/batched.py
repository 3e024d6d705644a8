"""Speed of several conversations in shared steps, as llama-batched-bench means it: prompts of each, then tokens of all at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgellm.api.model import Model
from edgellm.backends.base import Executable, StepBatch, StepTimes
from edgellm.bench.measure import median_step, profile_of
from edgellm.engine.conversation import FIRST_ROW, Conversation
from edgellm.engine.prompts import TokenIds
from edgellm.errors import OptionError


@dataclass(frozen=True, slots=True)
class Batched:
    """`n` conversations with prompts of `prompt` tokens each, then `generated` tokens each; seconds of both parts."""

    n: int
    prompt: int
    generated: int
    prompt_seconds: float
    seconds: float

    @property
    def prompt_speed(self) -> float:
        """Prompt tokens per second, of all conversations together; 0 without prompts."""
        return self.n * self.prompt / self.prompt_seconds if self.prompt else 0.0

    @property
    def speed(self) -> float:
        """Generated tokens per second, of all together; 0 where none were."""
        return self.n * self.generated / self.seconds if self.generated else 0.0

    @property
    def total(self) -> float:
        """All tokens per second."""
        return self.n * (self.prompt + self.generated) / (self.prompt_seconds + self.seconds)

    def report(self, model: Model) -> dict[str, object]:
        """The fields of llama-batched-bench's JSON lines, and what ran."""
        return {
            "model_filename": str(model.info.path),
            "backend": model.info.backend,
            "n_threads": model.info.threads,
            "n_kv_max": self.n * model.context,
            "n_batch": model.engine.layout.chunk,
            "pp": self.prompt,
            "tg": self.generated,
            "pl": self.n,
            "n_kv": self.n * (self.prompt + self.generated),
            "t_pp": self.prompt_seconds,
            "speed_pp": self.prompt_speed,
            "t_tg": self.seconds,
            "speed_tg": self.speed,
            "t": self.prompt_seconds + self.seconds,
            "speed": self.total,
        }


def measure(model: Model, n: int, prompt: int, generated: int) -> Batched:
    """Compute random tokens. Nothing is sampled; other calls wait meanwhile. Raises ModelClosed."""
    with model.engine.alone() as executable:
        conversations = [Conversation.empty(executable) for _ in range(n)]
        started = time.perf_counter()
        _read(executable, conversations, model, prompt)
        between = time.perf_counter()
        for _ in range(generated):
            _together(executable, conversations, _random(model, n))
        return Batched(n, prompt, generated, between - started, time.perf_counter() - between)


def profiled(model: Model, n: int, prompt: int) -> StepTimes:
    """Where the time goes of a step with a token of each of `n` conversations that hold `prompt` tokens. It is computed several
    times; the one of median length is returned. Raises as `check_profiled`.
    """
    with model.engine.alone() as executable:
        conversations, profile = [Conversation.empty(executable) for _ in range(n)], _profile(executable, n)
        _read(executable, conversations, model, prompt)
        return median_step(lambda: profile(_joined(conversations, _random(model, n))))


def check_profiled(model: Model, n: int) -> None:
    """Raises OptionError where the back end has no profile, ModelClosed."""
    _profile(model.engine.check(), n)


def _profile(executable: Executable, n: int) -> Callable[[StepBatch], StepTimes]:
    if n > _most(executable):
        raise OptionError(f"a step takes {_most(executable)} conversations at most; leave out --profile for {n}.")
    return profile_of(executable)


def _read(executable: Executable, conversations: list[Conversation], model: Model, prompt: int) -> None:
    """Compute a prompt of each, one after the other."""
    for conversation in conversations:
        tokens = _random(model, prompt)
        for at in range(0, prompt, executable.max_tokens):
            conversation.compute(executable, tokens[at : at + executable.max_tokens])


def _together(executable: Executable, conversations: list[Conversation], tokens: TokenIds) -> None:
    """A token of each conversation, as many at a time as a step carries."""
    most = _most(executable)
    for first in range(0, len(conversations), most):
        some, own = conversations[first : first + most], tokens[first : first + most]
        executable.submit(_joined(some, own)).wait()
        for conversation, token in zip(some, np.split(own, len(own)), strict=True):
            conversation.sequence.extend(token)


def _most(executable: Executable) -> int:
    """Conversations in a step."""
    return min(executable.max_segments, executable.max_tokens, executable.max_outputs)


def _joined(conversations: list[Conversation], tokens: TokenIds) -> StepBatch:
    """A step with a token of each conversation."""
    return StepBatch.joined([conversation.step(tokens[k : k + 1], FIRST_ROW) for k, conversation in enumerate(conversations)])


def _random(model: Model, n: int) -> TokenIds:
    return np.array([random.randrange(model.n_vocab) for _ in range(n)], np.int32)
