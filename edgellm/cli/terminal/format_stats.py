"""How counts and speeds are written in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm.api.records import Generation

STOPPED = {  # the reasons of Generation.stop_reason, in words
    "eog": "at end of turn",
    "stop": "at a stop text",
    "length": "at the limit of tokens",
    "context": "at the end of the context",
    "cancelled": "by you",
    "loop": "in a loop",
}


def summary(result: Generation) -> str:
    """The figures of one answer: tokens read, cached, forgotten and written, and how fast."""
    stats = result.stats
    parts = [f"{stats.prompt_tokens} prompt tokens ({stats.cached_tokens} cached)"]
    parts.append(f"{stats.generated_tokens} generated at {stats.tokens_per_second:.1f} tokens/s")
    parts.append(f"first after {stats.time_to_first_token:.2f} s")
    if stats.drafted_tokens:
        parts.append(f"{stats.accepted_tokens} of {stats.drafted_tokens} drafted tokens right")
    if stats.evicted_tokens:
        parts.append(f"{stats.evicted_tokens} forgotten")
    if stats.forgotten_images:
        parts.append(f"{stats.forgotten_images} pictures forgotten")
    if stats.forgotten_clips:
        parts.append(f"{stats.forgotten_clips} clips forgotten")
    if stats.forgotten_messages:
        parts.append(f"{len(stats.forgotten_messages)} messages dropped")
    return ", ".join(parts) + f"; stopped {STOPPED.get(result.stop_reason, result.stop_reason)}"


def size(n_bytes: int) -> str:
    """Bytes as people read them, in decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return f"{n_bytes} bytes"


def count(n: int) -> str:
    """A number of parameters: 596 M, 7.24 B."""
    for unit, scale in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= scale:
            return f"{n / scale:.3g} {unit}"
    return str(n)
