"""Records of answers for the server's log and metrics: counts and times, nothing of the content."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any  # Any: options of the library

from starlette.requests import Request

from edgellm import Generation, Model
from edgellm.server.models import Loaded

PROMPTING = ("tools", "think", "template_options")  # options of `chat` that change the prompt


@dataclass(slots=True)
class Notes:
    """Of one request; `model` is "" where none answered. Times are in seconds."""

    model: str = ""
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    evicted: int = 0
    first: float = 0.0  # until the first token
    decoding: float = 0.0  # of the tokens after the first
    stop: str = ""

    def __str__(self) -> str:
        if not self.model:
            return ""
        counts = f"prompt={self.prompt} cached={self.cached} generated={self.generated}"
        dropped = f" evicted={self.evicted}" if self.evicted else ""
        return f" model={self.model} {counts}{dropped} ttft={self.first:.3f}s stop={self.stop}"


def defaults(request: Request, loaded: Loaded) -> dict[str, Any]:
    """Options of an answer where the request's body does not say otherwise: what the model's makers recommend, the priority, and
    the scales of adapters.
    """
    found: dict[str, Any] = dict(loaded.offered.sampling)
    if request.headers.get("x-priority", "").strip().lower() == "background":
        found["priority"] = "background"
    if loaded.adapters is not None:
        found["adapters"] = loaded.adapters
    return found


def note(request: Request, loaded: Loaded, *answers: Generation) -> None:
    """Counts of a request's answers, which share a prompt."""
    notes: Notes = request.scope["notes"]
    stats = [answer.stats for answer in answers]
    notes.model = loaded.name
    notes.prompt, notes.cached, notes.first = stats[0].prompt_tokens, stats[0].cached_tokens, stats[0].time_to_first_token
    notes.generated = sum(each.generated_tokens for each in stats)
    notes.evicted = sum(each.evicted_tokens for each in stats)
    notes.decoding = sum(each.generation_seconds for each in stats)
    notes.stop = answers[-1].stop_reason


async def prompt_tokens(model: Model, messages: Sequence[Any], options: Mapping[str, Any]) -> int:
    """Tokens of the prompt that `chat` makes of these messages with its `options`. Errors as there."""
    prompting = {name: options[name] for name in PROMPTING if name in options}
    return len(await asyncio.to_thread(model.chat_prompt, messages, **prompting))
