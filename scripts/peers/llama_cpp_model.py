"""A model or projector opened by llama-cpp-python's low-level calls, for the programs of this folder."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import llama_cpp

with suppress(ImportError):  # a build without mtmd has models all the same
    from llama_cpp import mtmd_cpp

SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: the library calls it to the end


def open_model(path: str) -> Any:  # a ctypes handle
    """With PEER_PLAIN set without repacked and AMX weights."""
    llama_cpp.llama_log_set(SILENT, None)
    llama_cpp.llama_backend_init()
    options = llama_cpp.llama_model_default_params()
    if os.environ.get("PEER_PLAIN"):
        options.use_extra_bufts = False
    return llama_cpp.llama_model_load_from_file(path.encode(), options)


def open_projector(path: str, model: Any, threads: int) -> Any:  # a ctypes handle
    options = mtmd_cpp.mtmd_context_params_default()
    options.use_gpu, options.n_threads, options.print_timings, options.warmup = False, threads, False, False
    context = mtmd_cpp.mtmd_init_from_file(path.encode(), model, options)
    if not context:
        raise SystemExit("mtmd_init_from_file failed")
    return context


def encoded_chunks(context: Any, pixels: Any) -> Iterator[Any]:
    """The chunks of a picture, (height, width, 3) u8 in one piece of memory, each once it is encoded."""
    marker = mtmd_cpp.mtmd_default_marker()
    text = mtmd_cpp.mtmd_input_text(marker, len(marker), False, True)
    bitmap = mtmd_cpp.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
    chunks = mtmd_cpp.mtmd_input_chunks_init()
    bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
    if mtmd_cpp.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1):
        raise SystemExit("mtmd_tokenize failed")
    for i in range(mtmd_cpp.mtmd_input_chunks_size(chunks)):
        chunk = mtmd_cpp.mtmd_input_chunks_get(chunks, i)
        if mtmd_cpp.mtmd_input_chunk_get_type(chunk) == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_IMAGE:
            if mtmd_cpp.mtmd_encode_chunk(context, chunk):
                raise SystemExit("mtmd_encode_chunk failed")
            yield chunk
    mtmd_cpp.mtmd_input_chunks_free(chunks)
    mtmd_cpp.mtmd_bitmap_free(bitmap)
