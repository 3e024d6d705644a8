"""Measurements of a loaded model for benchmarks: bytes per token, time inside the plan, where a step's time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgellm.api.model import Model
from edgellm.backends import HOST
from edgellm.backends.base import Executable, Profiled, ReadProbe, StepBatch, StepTimes
from edgellm.engine.conversation import Conversation
from edgellm.engine.prompts import checked_ids
from edgellm.errors import OptionError
from edgellm.memory.sizes import kv_read_bytes

PROFILED_STEPS = 9  # of which the median is shown


def bytes_of_token(model: Model, keys: int) -> int:
    """Bytes that computing a token reads which sees `keys` keys: weights, keys and values."""
    return model.info.token_bytes + kv_read_bytes(model.engine.layout, model.info.kv_type, keys)


def busy_seconds(model: Model) -> float:
    """Seconds inside the back end's steps so far; 0 where it does not count them."""
    executable = model.engine.check()
    return executable.busy_seconds if isinstance(executable, Profiled) else 0.0


def where_time_goes(model: Model, prompt: Sequence[int], step: int) -> tuple[int, StepTimes]:
    """The last `step` tokens of a prompt computed at once, after the others; or as many as fit a step: the first result.

    A single token is computed several times: the step of median length is returned.
    Raises OptionError where it cannot be measured.
    """
    ids = checked_ids(prompt, model.n_vocab, name="prompt")
    with model.engine.alone() as executable:
        profile = profile_of(executable)
        conversation = Conversation.empty(executable)
        last = len(ids) - min(step, executable.max_tokens)
        for at in range(0, last, executable.max_tokens):
            conversation.compute(executable, ids[at : min(at + executable.max_tokens, last)])
        tokens = ids[last:]
        batch = conversation.step(tokens, np.array([len(tokens) - 1], np.int32))
        return len(tokens), median_step(lambda: profile(batch), PROFILED_STEPS if len(tokens) == 1 else 1)


def median_step(computed: Callable[[], StepTimes], n: int = PROFILED_STEPS) -> StepTimes:
    """The step of median length of `n`."""
    return sorted((computed() for _ in range(n)), key=lambda times: times.seconds)[n // 2]


def profile_of(executable: Executable) -> Callable[[StepBatch], StepTimes]:
    """A function that computes a step and returns where its time goes. Raises OptionError for back ends that cannot."""
    if not isinstance(executable, Profiled):
        raise OptionError(f"the {executable.backend} back end has no profile; leave out --profile.")
    return executable.profile


def machine(model: Model) -> dict[str, str | int]:
    """The processor, the cores that may be used, and the instruction set that the model's kernels use."""
    executable, host = model.engine.check(), HOST.machine()
    isa = executable.isa if isinstance(executable, Profiled) else ""
    return {"cpu": host.processor, "cores": host.cores, "isa": isa}


def read_probe(model: Model) -> ReadProbe | None:
    """A probe of a streaming read with the model's threads; None where that says nothing of its speed."""
    return HOST.read_probe(model.info.threads) if model.info.backend == HOST.name else None
