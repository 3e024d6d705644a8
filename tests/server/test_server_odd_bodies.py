"""Bodies in which one field after the other has an odd value: refused in a sentence or answered, never a fault of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from serving import Running, running, user

ODD: tuple[Any, ...] = (None, -1, "x", {"a": [None]}, [3])
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
BLOCKS = [{"type": "text", "text": "Hi"}, {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]}]
CALLING = {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "guide",
        "messages": [*user(), {"role": "assistant", "content": [{"type": "text", "text": "x"}]}, {"role": "tool", "content": "y"}],
        "stream": False, "n": 1, "max_tokens": 2, "temperature": 0, "seed": 1, "stop": ["a"], "logit_bias": {"3": 1},
        "logprobs": True, "top_logprobs": 2, "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto",
        "stream_options": {}, "reasoning_effort": "low", "chat_template_kwargs": {}, "truncation": "auto", "service_tier": "flex",
        "functions": [TOOL["function"]], "function_call": {"name": "f"}, "guided_json": {"type": "object"}, "grammar": None,
    },
    "/v1/completions": {"prompt": "x", "suffix": "", "echo": True, "logprobs": 1, "n": 1, "max_tokens": 2, "best_of": 1},
    "/v1/embeddings": {"model": "guide", "input": "x", "dimensions": 2, "encoding_format": "float"},
    "/v1/rerank": {"query": "x", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": True},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "function_call", "name": "f"}],
        "instructions": "x", "max_output_tokens": 2, "tools": [], "tool_choice": "auto", "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}}, "truncation": "auto", "metadata": {}, "previous_response_id": None,
    },
    "/v1/messages": {
        "max_tokens": 2,
        "messages": [{"role": "user", "content": BLOCKS}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}],
        "system": [{"type": "text", "text": "x"}], "tools": [], "tool_choice": {"type": "none"}, "thinking": {"type": "disabled"},
        "stop_sequences": ["a"], "temperature": 0, "output_format": None,
    },
    "/v1/messages/count_tokens": {"messages": user(), "system": "x", "tools": []},
    "/api/chat": {
        "messages": [{"role": "user", "content": "x", "images": []}, CALLING],
        "stream": False, "options": {"num_predict": 2, "stop": ["a"], "seed": 1}, "format": "", "think": False, "keep_alive": "5m",
        "tools": [], "shift": True, "truncate": True,
    },
    "/api/generate": {
        "prompt": "x", "stream": False, "options": {"num_predict": 2}, "raw": False, "system": "x", "suffix": "", "images": [],
    },
    "/api/show": {"model": "guide"},
    "/api/embed": {"model": "guide", "input": ["x"]},
    "/api/copy": {"source": "guide", "destination": "x"},
    "/tokenize": {"content": "x", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1]},
    "/apply-template": {"messages": user()},
    "/completion": {"prompt": "x", "n_predict": 2, "stop": ["a"], "json_schema": None, "structured_outputs": {"choice": ["a"]}},
    "/infill": {"input_prefix": "x", "input_suffix": "y", "n_predict": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def short() -> Iterator[Running]:
    with running(max_tokens=2) as server:
        yield server


def variants(value: Any) -> Iterator[Any]:
    """A value with one odd part, at every place."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from ({**value, key: each} for each in (*ODD, *variants(child)))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from ([*value[:index], each, *value[index + 1 :]] for each in variants(child))


@pytest.mark.parametrize("path", BODIES)
def test_odd_values(short: Running, path: str) -> None:
    for body in variants(BODIES[path]):
        if path == "/v1/chat/completions" and (body["max_tokens"] is None or body["max_tokens"] == -1):
            continue
        status, answer = short.ask(path, body)
        assert status < 500 or status == 501, (body, answer)
