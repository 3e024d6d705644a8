"""What a benchmark asks of a loaded model beside its speed: bytes per token, time inside the plan, where a step's time goes."""
from __future__ import annotations

from collections.abc import Sequence

from edgellm.backends.base import KindTime
from edgellm.backends.cpu import system
from edgellm.engine import context as contexts
from edgellm.engine.model import Model
from edgellm.engine.prompts import checked_ids


def bytes_of_token(model: Model, keys: int) -> int:
    """Bytes that computing a token reads which sees `keys` keys: weights, keys and values."""
    return model.info.token_bytes + contexts.kv_read_bytes(model.session.layout, model.info.kv_type, keys)


def busy_seconds(model: Model) -> float:
    """Seconds inside the back end's steps so far; 0 where it does not count them."""
    return model.session.busy_seconds


def where_time_goes(model: Model, prompt: Sequence[int], step: int) -> tuple[int, list[KindTime]]:
    """The last `step` tokens of a prompt computed at once, after the others; or as many as fit a step: the first result.

    Raises OptionError where it cannot be told.
    """
    return model.session.profile(checked_ids(prompt, model.n_vocab, name="prompt"), step)


def machine(model: Model) -> dict[str, str | int]:
    """The processor, the cores that may be used, and the instruction set that the model's kernels use."""
    return {"cpu": system.host_cpu(), "cores": system.usable_cores(), "isa": model.session.isa}
