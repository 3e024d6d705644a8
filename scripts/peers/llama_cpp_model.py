"""A model opened by llama-cpp-python's low-level calls, for the programs of this folder."""

from __future__ import annotations

import os
from typing import Any

import llama_cpp

SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: the library calls it to the end


def open_model(path: str) -> Any:  # a ctypes handle
    """With PEER_PLAIN set without repacked and AMX weights."""
    llama_cpp.llama_log_set(SILENT, None)
    llama_cpp.llama_backend_init()
    options = llama_cpp.llama_model_default_params()
    if os.environ.get("PEER_PLAIN"):
        options.use_extra_bufts = False
    return llama_cpp.llama_model_load_from_file(path.encode(), options)
