"""Responses of Anthropic's API: contents, reasons, usage, events and errors."""

from __future__ import annotations

from typing import Any  # Any: JSON

from edgellm import Generation
from edgellm.server.problems import CONTEXT_LENGTH, Problem
from edgellm.server.streaming import compact

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
SIGNATURE = "edgellm"  # of thinking; clients send none back that has no signature
REASONS = {
    "eog": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "loop": "max_tokens",
    "cancelled": "max_tokens",
}


def problem_body(problem: Problem) -> dict[str, Any]:
    """An error; the message for a prompt that does not fit is Anthropic's, which clients look for."""
    message = problem.message
    if problem.code == CONTEXT_LENGTH and problem.numbers is not None:
        message = "prompt is too long: {} tokens > {} maximum".format(*problem.numbers)
    kind = KINDS.get(problem.status, "api_error" if problem.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def event(kind: str, **fields: Any) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {compact({'type': kind, **fields})}\n\n".encode("utf-8", "replace")


def failed(problem: Problem) -> bytes:
    """The end of a stream that failed."""
    return event("error", error=problem_body(problem)["error"])


def usage(prompt: int, cached: int, generated: int, *, marked: bool) -> dict[str, int]:
    """Tokens. All but the newest are cached for the next prompt, which is told where a part of the prompt was `marked` for that."""
    computed = prompt - cached
    return {
        "input_tokens": 1 if marked else computed,
        "cache_creation_input_tokens": computed - 1 if marked else 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
    }


def ending(answer: Generation) -> dict[str, Any]:
    """Why an answer ended, and the stop sequence where it was one."""
    if answer.tool_calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.stop_reason == "stop" and answer.stop_text is None:  # a text of the template's
        return {"stop_reason": "end_turn", "stop_sequence": None}
    return {"stop_reason": REASONS[answer.stop_reason], "stop_sequence": answer.stop_text}


def contents(answer: Generation) -> list[dict[str, Any]]:
    """The blocks of an answer."""
    blocks: list[dict[str, Any]] = []
    if answer.thinking:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": SIGNATURE})
    if answer.text.strip() or not answer.tool_calls:
        blocks.append({"type": "text", "text": answer.text})
    return blocks + [
        {"type": "tool_use", "id": call_id(call.id), "name": call.name, "input": dict(call.arguments)} for call in answer.tool_calls
    ]


def call_id(given: str) -> str:
    return given if given.startswith("toolu_") else f"toolu_{given.removeprefix('call_')}"
