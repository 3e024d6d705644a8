"""Quantises a file with llama.cpp in the interpreter that runs this: SOURCE OUT FILE_TYPE THREADS; prints the seconds it took."""

from __future__ import annotations

import ctypes
import sys
import time

import llama_cpp


@llama_cpp.llama_log_callback
def quiet(level: int, text: bytes, data: object) -> None:
    """llama.cpp reports every tensor otherwise."""


def main() -> None:
    source, out, file_type, threads = sys.argv[1:]
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = int(file_type), int(threads)
    began = time.perf_counter()
    if llama_cpp.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(parameters)):
        raise SystemExit(f"llama.cpp could not quantise {source}")
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
