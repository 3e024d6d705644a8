"""Requests that are refused: the HTTP status, the message, and the words that clients look for."""

from __future__ import annotations

import edgellm
from edgellm import EdgeError


class Problem(Exception):
    """`code`: one of the names that OpenAI's clients know, such as "model_not_found"; each protocol writes it in its own shape."""

    def __init__(self, status: int, message: str, *, code: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, headers or {}
        self.numbers: tuple[int, int] | None = None  # tokens of a prompt that does not fit, and of the context


CONTEXT_LENGTH = "context_length_exceeded"
_STATUS: tuple[tuple[type[EdgeError], int, str | None], ...] = (  # the first that fits
    (edgellm.ContextFull, 400, CONTEXT_LENGTH),
    (edgellm.ModelNotFound, 404, "model_not_found"),
    (edgellm.OptionError, 400, None),
    (edgellm.TemplateError, 400, None),
    (edgellm.ImageError, 400, None),
    (edgellm.AudioError, 400, None),
    (edgellm.NoTokenizer, 400, None),
    (edgellm.SessionError, 400, None),
    (edgellm.QueueFull, 429, "rate_limit_exceeded"),
    (edgellm.NotEnoughMemory, 503, "not_enough_memory"),
    (edgellm.ModelClosed, 503, "model_closed"),
    (edgellm.DownloadError, 502, None),
)
RETRY_AFTER = "2"  # seconds
OUR_FAULT = "the server failed to answer; its log says why"


def _too_long(tokens: int, limit: int) -> Problem:
    """A prompt that does not fit."""
    problem = Problem(
        400,
        f"the prompt of {tokens} tokens is longer than the model's context length, {limit}; "  # LiteLLM looks for these words
        "shorten it, ask for truncation, or start the server with a larger --context, where the model was trained for one.",
        code=CONTEXT_LENGTH,
    )
    problem.numbers = (tokens, limit)
    return problem


def problem_of(error: BaseException) -> Problem:
    """The status and text of an error for a client."""
    if isinstance(error, Problem):
        return error
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            if isinstance(error, edgellm.ContextFull) and error.numbers is not None:
                return _too_long(*error.numbers)
            return Problem(status, str(error), code=code, headers={"retry-after": RETRY_AFTER} if status == 429 else None)
    return Problem(500, str(error) if isinstance(error, EdgeError) else OUR_FAULT, code="server_error")
