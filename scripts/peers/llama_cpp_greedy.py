"""Greedy texts and logits for check_greedy.py with llama-cpp-python: MODEL JOB.json OUT.npz; prints the texts as JSON.

JOB has `context`, `prompts` and `windows` (lists of token ids) and `tokens`: how many to write after each prompt. OUT gets the
logits of the first configuration: `steps` (prompts, tokens, n_vocab) and `windows` (ids, n_vocab).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp_model import open_model

# Name: plain weights, threads, the prompt one token at a time, and llama.cpp's default memory (f16, flash attention).
CONFIGURATIONS = {
    "usual": (False, 1, False, False),
    "plain weights": (True, 1, False, False),
    "2 threads": (False, 2, False, False),
    "token by token": (False, 1, True, False),
    "f16 memory": (False, 1, False, True),
}
Pointer = Any  # ctypes handles of llama.cpp


class Context:
    """A model in one configuration, with one conversation."""

    def __init__(self, path: str, context: int, plain: bool, threads: int, singly: bool, usual_memory: bool) -> None:
        os.environ["PEER_PLAIN"] = "1" if plain else ""
        self._model, self._singly = open_model(path), singly
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = context
        options.n_threads = options.n_threads_batch = threads
        if not usual_memory:
            options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._state = llama_cpp.llama_init_from_model(self._model, options)
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch, self._at = llama_cpp.llama_batch_init(context, 0, 1), 0

    def begin(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._state), True)
        self._at = 0

    def read(self, ids: Sequence[int]) -> Any:
        """Logits (ids, n_vocab) of what follows the text so far."""
        if self._singly:
            return np.concatenate([self._decode([token]) for token in ids])
        return self._decode(ids)

    def _decode(self, ids: Sequence[int]) -> Any:
        self._batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self._batch.token[i], self._batch.pos[i], self._batch.n_seq_id[i] = token, self._at + i, 1
            self._batch.seq_id[i][0], self._batch.logits[i] = 0, True
        if llama_cpp.llama_decode(self._state, self._batch):
            raise SystemExit("llama_decode failed")
        self._at += len(ids)
        rows = llama_cpp.llama_get_logits(self._state)
        return np.ctypeslib.as_array(rows, (len(ids), self._n_vocab)).copy()

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._state)
        llama_cpp.llama_model_free(self._model)


def main() -> None:
    path, out = sys.argv[1], sys.argv[3]
    with open(sys.argv[2], encoding="utf-8") as file:
        job = json.load(file)
    texts, kept = {}, {}
    for name, configuration in CONFIGURATIONS.items():
        model = Context(path, job["context"], *configuration)
        written = [greedy(model, prompt, job["tokens"]) for prompt in job["prompts"]]
        texts[name] = [ids for ids, _ in written]
        if not kept:
            kept = {"steps": np.stack([rows for _, rows in written]), "windows": read_windows(model, job["windows"])}
        model.close()
    np.savez(out, **kept)
    print(json.dumps(texts))


def greedy(model: Context, prompt: Sequence[int], n: int) -> tuple[list[int], Any]:
    """So many tokens after a prompt, and the logits (n, n_vocab) that each was the largest of."""
    model.begin()
    rows = [model.read(prompt)[-1]]
    found = [int(rows[0].argmax())]
    while len(found) < n:
        rows.append(model.read(found[-1:])[0])
        found.append(int(rows[-1].argmax()))
    return found, np.stack(rows)


def read_windows(model: Context, windows: Sequence[Sequence[int]]) -> Any:
    found = []
    for window in windows:
        model.begin()
        found.append(model.read(window))
    return np.concatenate(found)


if __name__ == "__main__":
    main()
