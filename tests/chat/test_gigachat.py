"""GigaChat 3: a call is a message of its own, behind control tokens that hold new lines or are text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from call_formats import accepts
from tiny_models import tiny_model

import edgellm
from edgellm.chat.families import find_format
from edgellm.chat.families.gigachat import HEAD, NEXT, ROLE
from edgellm.chat.tools import Tool

TEMPLATE = """{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role + '<|role_sep|>\n' }}{{ m.content }}\
{% for c in m.tool_calls %}{{ '<|message_sep|>\n\nfunction call<|role_sep|>\n' }}{{ c.function | tojson }}{% endfor %}\
{{ '<|message_sep|>\n\n' }}{% endfor %}{{ 'assistant<|role_sep|>\n' }}"""
PARAMETERS = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"], "additionalProperties": False}
CALL = '{"name": "weather", "arguments": {"warm": true}}'


def test_marks_as_text() -> None:
    given_tools = find_format(TEMPLATE), [Tool("weather", "", PARAMETERS)]
    for said in ("", "Hello.", f"Hello.{NEXT}", f"{NEXT}{HEAD}{ROLE}{CALL}", f"Hello.{NEXT}{HEAD}{ROLE}{CALL}"):
        assert accepts(*given_tools, said), said
    for said in (f"{NEXT}{HEAD}{ROLE}{CALL.replace('true', '1')}", f"{NEXT}{HEAD}{ROLE}Hello."):
        assert not accepts(*given_tools, said), said


def test_families_are_recognised_by_their_marks() -> None:
    assert find_format(TEMPLATE).name == "gigachat-3" and find_format(TEMPLATE + "<|function_call|>").name == "gigachat-3.1"
    assert find_format("{{ m.role }}<|role_sep|>{{ m.content }}<|message_sep|>").name == "hermes"


@pytest.mark.parametrize("controls", [(NEXT, ROLE), (NEXT.strip(), ROLE.strip()), ()], ids=["with new lines", "without", "text"])
def test_calls_are_found_behind_control_tokens(tmp_path: Path, controls: tuple[str, ...]) -> None:
    path = tiny_model(
        tmp_path / "m.gguf", "llama", "F16", tokenizer="bpe", n_layers=1, context=1024, controls=controls, template=TEMPLATE
    )
    with edgellm.load(path, context=1024) as model:
        tokens = model.tokenizer
        for text, wanted in ((f"Well.{NEXT}{HEAD}{ROLE}{CALL}", True), ("Well." + NEXT * bool(controls), False)):
            ids = [*tokens.encode_trusted(text, ((0, len(text)),), add_special=False), min(tokens.eog_ids)]
            assert any(map(tokens.is_control, ids[:-1])) == bool(controls)

            def say(seen: npt.NDArray[np.int32], logits: npt.NDArray[np.float32], ids: list[int] = ids) -> npt.NDArray[np.float32]:
                if ids:
                    logits[ids.pop(0)] += 1000
                return logits

            answer = model.chat(
                [{"role": "user", "content": "hello"}],
                tools=[{"name": "weather", "parameters": PARAMETERS}],
                processors=[say],
                temperature=0,
                max_tokens=200,
            )
            apart = "\n\n" * (NEXT.strip() in controls)  # text there
            assert answer.text == "Well." + apart and answer.stop_reason == "eog"
            assert [(call.name, call.arguments) for call in answer.tool_calls] == [("weather", {"warm": True})] * wanted
