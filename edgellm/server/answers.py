"""What the server remembers of an answer: its line in the log."""

from __future__ import annotations

from starlette.requests import Request

from edgellm import Generation
from edgellm.server.models import Loaded


def note(request: Request, loaded: Loaded, *answers: Generation) -> None:
    """Counts for the log line of a request; nothing of its content."""
    stats = [answer.stats for answer in answers]
    request.scope["notes"].update(
        model=loaded.name,
        prompt=stats[0].prompt_tokens,
        cached=stats[0].cached_tokens,
        generated=sum(each.generated_tokens for each in stats),
        ttft=f"{stats[0].time_to_first_token:.3f}s",
        stop=answers[-1].stop_reason,
    )
