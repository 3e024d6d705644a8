"""Encodes pictures with llama.cpp's mtmd: PROJECTOR MODEL THREADS HEIGHT WIDTH; the seed of a picture a line in, seconds out."""

from __future__ import annotations

import sys
import time

import llama_cpp
import numpy as np
from llama_cpp_model import encoded_chunks, open_model, open_projector


def main() -> None:
    projector, path, threads, height, width = sys.argv[1], sys.argv[2], *(int(argument) for argument in sys.argv[3:6])
    model = open_model(path)
    context = open_projector(projector, model, threads)
    for line in sys.stdin:
        y, x = np.mgrid[:height, :width]
        waves = np.stack([np.sin(y / 37 + int(line)), np.cos(x / 23), np.sin((x + y) / 59)], axis=-1)
        pixels = np.ascontiguousarray(127 + 100 * waves).astype(np.uint8)
        start = time.perf_counter()
        for _ in encoded_chunks(context, pixels):
            pass
        print(time.perf_counter() - start, flush=True)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
