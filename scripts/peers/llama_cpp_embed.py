"""Embeds texts for bench_embed.py with llama-cpp-python's low-level calls: MODEL THREADS BATCH; a file a line in, seconds out."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp_model import open_model

Pointer = Any  # ctypes handles of llama.cpp
SEQUENCES = 64  # texts that one call takes at most


def main() -> None:
    path, threads, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model = open_model(path)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = size
    options.n_seq_max, options.kv_unified, options.embeddings = SEQUENCES, True, True
    options.n_threads = options.n_threads_batch = threads
    state = llama_cpp.llama_init_from_model(model, options)
    batch = llama_cpp.llama_batch_init(size, 0, 1)
    for line in sys.stdin:
        texts = json.loads(Path(line.strip()).read_text())
        clock = time.process_time if os.environ.get("PEER_CLOCK") == "cpu" else time.perf_counter
        start = clock()
        vectors = embed(model, state, batch, texts, size)
        seconds = clock() - start
        Path(line.strip() + f".{os.getpid()}.out").write_text(json.dumps(vectors[:20]))
        print(seconds, os.getpid(), flush=True)


def embed(model: Pointer, state: Pointer, batch: Pointer, texts: list[str], size: int) -> list[list[float]]:
    vocabulary, n_embd = llama_cpp.llama_model_get_vocab(model), llama_cpp.llama_model_n_embd(model)
    buffer, found, waiting, filled = (llama_cpp.llama_token * size)(), list[list[float]](), 0, 0
    for text in [*texts, None]:
        n = 0
        if text is not None:
            data = text.encode()
            n = llama_cpp.llama_tokenize(vocabulary, data, len(data), buffer, size, True, False)
        if waiting and (text is None or filled + n > size or waiting == SEQUENCES):
            batch.n_tokens = filled
            if llama_cpp.llama_decode(state, batch):
                raise SystemExit("llama_decode failed")
            for sequence in range(waiting):
                values = llama_cpp.llama_get_embeddings_seq(state, sequence)
                found.append(list(ctypes.cast(values, ctypes.POINTER(ctypes.c_float * n_embd)).contents))
            memory = llama_cpp.llama_get_memory(state)
            if memory:
                llama_cpp.llama_memory_clear(memory, False)
            waiting = filled = 0
        for position in range(n):
            at = filled + position
            batch.token[at], batch.pos[at], batch.logits[at] = buffer[position], position, 1
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, waiting
        waiting, filled = waiting + 1, filled + n
    return found


if __name__ == "__main__":
    main()
