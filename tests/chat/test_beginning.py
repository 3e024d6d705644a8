"""Answers that continue the assistant's last message, in templates that think always, by option, and not at all."""

from __future__ import annotations

from typing import Any

import pytest

from edgellm.chat import ChatTemplate
from edgellm.chat.beginning import beginning, with_beginning

PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
ALWAYS = PLAIN.replace("<|assistant|>", "<|assistant|><think>\n") + "{# </think> #}"
HARMONY = PLAIN + "{# <|channel|>final<|message|> #}"
TALK: list[Any] = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is"}]


@pytest.mark.parametrize(
    ("source", "end"),
    [(PLAIN, "<|assistant|>It is"), (ALWAYS, "<|assistant|><think>\n\n</think>\n\nIt is")],
    ids=["plain", "always"],
)
def test_the_prompt_ends_with_the_beginning(source: str, end: str) -> None:
    text = beginning(TALK, source)
    rendered = with_beginning(ChatTemplate(source).render(TALK[:-1]), text, source)
    assert text == "It is" and rendered.text.endswith(end) and rendered.given[-1] == "It is"
    assert not any(end > len(rendered.text) - len(text) for _, end in rendered.trusted)  # it may hold no control tokens


def test_what_is_no_beginning() -> None:
    for last in ({"role": "user"}, {"content": ""}, {"content": None}, {"tool_calls": [{}]}, {"content": [{"type": "image"}]}):
        assert beginning([TALK[0], {**TALK[1], **last}], PLAIN) == ""
    assert beginning(TALK[1:], PLAIN) == beginning(TALK, HARMONY) == ""
    parts = {"role": "assistant", "content": [{"type": "text", "text": "It "}, {"type": "text", "text": "is"}]}
    assert beginning([TALK[0], parts], PLAIN) == "It is"
