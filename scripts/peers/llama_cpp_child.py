"""Runs tests for bench_peers.py with llama-cpp-python's low-level calls: MODEL THREADS CONTEXT CONVERSATIONS; one test a line in,
seconds out. CONTEXT is that of each conversation.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import llama_cpp
from llama_cpp_model import open_model

Pointer = Any  # ctypes handles of llama.cpp
AT_ONCE = 2048  # tokens that llama_decode takes in one call


def main() -> None:
    path, threads, context, most = sys.argv[1], *(int(argument) for argument in sys.argv[2:5])
    model = open_model(path)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = context * most, AT_ONCE, 512, most
    options.n_threads = options.n_threads_batch = threads
    states = []
    for attention in (llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO, llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED):
        options.flash_attn_type = attention
        if state := llama_cpp.llama_init_from_model(model, options):
            states.append(State(state, llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))))
    for line in sys.stdin:
        kind, (length, depth, conversations) = line[:2], [int(part) for part in line[2:].split(",")]
        print(min(state.measured(kind, length, depth, conversations) for state in states), flush=True)


class State:
    """A context of llama.cpp; `held`: tokens in its memory that the next round of the same test needs again."""

    def __init__(self, state: Pointer, n_vocab: int) -> None:
        self._state, self._n_vocab, self._held, self._rng = state, n_vocab, 0, random.Random(0)

    def measured(self, kind: str, length: int, depth: int, conversations: int) -> float:
        """Seconds of a test."""
        memory, state, single = llama_cpp.llama_get_memory(self._state), self._state, kind == "tg" and conversations == 1
        same = single and 0 < depth == self._held and llama_cpp.llama_memory_seq_rm(memory, 0, depth, -1)
        self._held = depth if single else 0
        if not same:
            llama_cpp.llama_memory_clear(memory, True)
        if conversations > 1:
            return together(state, self._n_vocab, length, depth, conversations)
        tokens = [self._rng.randrange(self._n_vocab) for _ in range(length + depth)]
        if depth and not same:
            decode(state, tokens[:depth])
        start = time.perf_counter()
        if kind == "pp":
            decode(state, tokens)
        else:
            for token in tokens[depth:]:
                decode(state, [token])
        return time.perf_counter() - start


def together(state: Pointer, n_vocab: int, length: int, depth: int, conversations: int) -> float:
    """Seconds of `length` tokens of each of some conversations, one of each at a time, after prompts of `depth`."""
    batch = llama_cpp.llama_batch_init(max(depth, conversations), 0, 1)

    def step(tokens: list[tuple[int, int]]) -> None:
        """(conversation, position) of each token; logits of the last one of each conversation."""
        batch.n_tokens = len(tokens)
        for i, (conversation, position) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = random.randrange(n_vocab), position, 1
            batch.seq_id[i][0], batch.logits[i] = conversation, i + 1 == len(tokens) or tokens[i + 1][0] != conversation
        if llama_cpp.llama_decode(state, batch):
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(state)

    for conversation in range(conversations):
        if depth:
            step([(conversation, position) for position in range(depth)])
    start = time.perf_counter()
    for position in range(depth, depth + length):
        step([(conversation, position) for conversation in range(conversations)])
    seconds = time.perf_counter() - start
    llama_cpp.llama_batch_free(batch)
    return seconds


def decode(state: Pointer, tokens: list[int]) -> None:
    for some in (tokens[i : i + AT_ONCE] for i in range(0, len(tokens), AT_ONCE)):
        array = (llama_cpp.llama_token * len(some))(*some)
        if llama_cpp.llama_decode(state, llama_cpp.llama_batch_get_one(array, len(some))):
            raise SystemExit("llama_decode failed")
    llama_cpp.llama_synchronize(state)


if __name__ == "__main__":
    main()
