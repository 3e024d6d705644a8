"""A server whose model writes given texts, with a real tokenizer, template and parser: for what clients do with answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fake_backend import Loader, Toy
from serving import Running, running
from tiny_models import tiny_model

from edgellm.api.load import load_tokenizer
from edgellm.backends import BACKENDS
from edgellm.tokenizer import Tokenizer

CONTROLS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = """{%- if tools %}{{- '<|im_start|>tools\\n' + tools | tojson }}
{{- '\\nWrite <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"""
BEGIN, END, THOUGHT = "<|im_start|>assistant\n", "<|im_end|>", "</think>\n\n"
SURE = np.float32(60)

Script = Callable[[str], str | Sequence[str]]  # from the rendered conversation to the answer, or to several, best first


class Scripted(Toy):
    """Writes the first of the script's answers that the grammar, if any, allows."""

    script: Script
    tokenizer: Tokenizer

    def turned(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        logits = np.zeros(len(self._base), np.float32)
        text = self.tokenizer.decode(tokens.tolist(), skip_special=False)
        prompt, _, written = text.rpartition(BEGIN)
        answers = self.script(prompt)
        for rank, answer in enumerate([answers] if isinstance(answers, str) else answers):
            begun = written if answer.startswith("<think>") else written.removeprefix("<think>\n\n" + THOUGHT)
            if answer.startswith(begun):
                ids = self.tokenizer.encode(answer[len(begun) :] or END, False, True)
                logits[ids[0]] = max(logits[ids[0]], SURE / (rank + 1))
        if not logits.any():
            logits[self.tokenizer.encode(END, False, True)[-1]] = 1
        return logits


@contextlib.contextmanager
def scripted(path: Path, script: Script, *, context: int = 8192, **settings: Any) -> Iterator[Running]:
    """A server with a model that answers by the script; the file is written at `path`."""

    def make(graph: Any, weights: Any, layout: Any, threads: Any) -> Scripted:
        toy = Scripted(graph.nodes[graph.outputs["logits"]].n, layout, threads)
        toy.script, toy.tokenizer = script, tokenizer
        return toy

    loader = Loader(make, chunk=512)
    metadata = {"tokenizer.ggml.eos_token_id": None}
    tiny_model(
        path, "llama", "F16", tokenizer="bpe", n_layers=1, context=context, controls=CONTROLS, template=TEMPLATE, metadata=metadata
    )
    tokenizer = load_tokenizer(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "cpu", loader)
        with running(models=(str(path),), load={"backend": "cpu", "parallel": 4}, **settings) as server:
            yield server
