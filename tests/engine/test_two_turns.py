"""The second turn of a chat computes its own tokens and the template's pieces around them, whatever memory the model has."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import tiny_model

import edgellm

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
FIRST = {"role": "user", "content": "tell me of the sea and of the ships " * 3}
SECOND = {"role": "user", "content": "and of the wind"}


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen35", "mamba"])
def test_the_second_turn_computes_what_is_new(tmp_path: Path, arch: str) -> None:
    path = tiny_model(tmp_path / "m.gguf", arch, tokenizer="bpe", template=TEMPLATE)
    with edgellm.load(path, context=512) as model, model.session() as session:
        first = session.chat([FIRST], choices=["hello world"], temperature=0)
        answer = {"role": "assistant", "content": first.text}
        second = session.chat([FIRST, answer, SECOND], max_tokens=3, temperature=0)
        new = model.tokenizer.encode(f"\n[user] {SECOND['content']}\n[assistant] ")
    computed = second.stats.prompt_tokens - second.stats.cached_tokens
    assert first.text == "hello world" and second.stats.prompt_tokens > first.stats.prompt_tokens + len(new)
    assert computed <= len(new) + len(first.token_ids) + 2  # the template's text may have other tokens than the answer
