"""Runs tests for bench_peers.py with llama-cpp-python's low-level calls: MODEL THREADS CONTEXT; one test a line in, seconds out."""
from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

import llama_cpp

Pointer = Any                    # ctypes handles of llama.cpp
AT_ONCE = 2048                   # tokens that llama_decode takes in one call


def main() -> None:
    path, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)      # kept: the library calls it to the end
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    model_options = llama_cpp.llama_model_default_params()
    if os.environ.get("PEER_PLAIN"):
        model_options.use_extra_bufts = False    # no repacked and no AMX weights
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_options)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = context, AT_ONCE, 512
    options.n_threads = options.n_threads_batch = threads
    state = llama_cpp.llama_init_from_model(model, options)
    memory, n_vocab = llama_cpp.llama_get_memory(state), llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rng = random.Random(0)
    for line in sys.stdin:
        kind, length, depth = line[:2], *(int(part) for part in (line[2:].strip() + "@0").split("@")[:2])
        llama_cpp.llama_memory_clear(memory, True)
        tokens = [rng.randrange(n_vocab) for _ in range(length + depth)]
        if depth:
            decode(state, tokens[:depth])
        start = time.perf_counter()
        if kind == "pp":
            decode(state, tokens)
        else:
            for token in tokens[depth:]:
                decode(state, [token])
        print(time.perf_counter() - start, flush=True)


def decode(state: Pointer, tokens: list[int]) -> None:
    for some in (tokens[i : i + AT_ONCE] for i in range(0, len(tokens), AT_ONCE)):
        array = (llama_cpp.llama_token * len(some))(*some)
        if llama_cpp.llama_decode(state, llama_cpp.llama_batch_get_one(array, len(some))):
            raise SystemExit("llama_decode failed")
    llama_cpp.llama_synchronize(state)


if __name__ == "__main__":
    main()
