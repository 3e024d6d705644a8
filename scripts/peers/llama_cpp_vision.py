"""Encodes pictures with llama.cpp's mtmd: PROJECTOR MODEL THREADS HEIGHT WIDTH; the seed of a picture a line in, seconds out."""

from __future__ import annotations

import ctypes
import sys
import time

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp
from llama_cpp_model import open_model


def main() -> None:
    projector, path, threads, height, width = sys.argv[1], sys.argv[2], *(int(argument) for argument in sys.argv[3:6])
    model = open_model(path)
    options = mtmd_cpp.mtmd_context_params_default()
    options.use_gpu, options.n_threads, options.print_timings, options.warmup = False, threads, False, False
    context = mtmd_cpp.mtmd_init_from_file(projector.encode(), model, options)
    if not context:
        raise SystemExit("mtmd_init_from_file failed")
    text = mtmd_cpp.mtmd_input_text()
    text.text, text.add_special, text.parse_special = mtmd_cpp.mtmd_default_marker(), True, True
    for line in sys.stdin:
        y, x = np.mgrid[:height, :width]
        waves = np.stack([np.sin(y / 37 + int(line)), np.cos(x / 23), np.sin((x + y) / 59)], axis=-1)
        pixels = np.ascontiguousarray(127 + 100 * waves).astype(np.uint8)
        start = time.perf_counter()
        bitmap = mtmd_cpp.mtmd_bitmap_init(width, height, pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
        if mtmd_cpp.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1):
            raise SystemExit("mtmd_tokenize failed")
        for i in range(mtmd_cpp.mtmd_input_chunks_size(chunks)):
            chunk = mtmd_cpp.mtmd_input_chunks_get(chunks, i)
            pictured = mtmd_cpp.mtmd_input_chunk_get_type(chunk) == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_IMAGE
            if pictured and mtmd_cpp.mtmd_encode_chunk(context, chunk):
                raise SystemExit("mtmd_encode_chunk failed")
        print(time.perf_counter() - start, flush=True)
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        mtmd_cpp.mtmd_bitmap_free(bitmap)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
