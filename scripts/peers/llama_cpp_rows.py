"""Rows that llama.cpp's mtmd makes of pictures: PROJECTOR MODEL PICTURES.npz ROWS.npz; one array of rows for each picture."""

from __future__ import annotations

import sys

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp
from llama_cpp_model import encoded_chunks, open_model, open_projector


def main() -> None:
    projector, path, pictures, out = sys.argv[1:]
    model = open_model(path)
    context = open_projector(projector, model, 1)
    width, found = llama_cpp.llama_model_n_embd_inp(model), {}
    for name, pixels in np.load(pictures).items():
        rows = []
        for chunk in encoded_chunks(context, np.ascontiguousarray(pixels)):
            n = mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk)
            rows.append(np.ctypeslib.as_array(mtmd_cpp.mtmd_get_output_embd(context), (n, width)).copy())
        found[name] = np.concatenate(rows)
    np.savez(out, **found)
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
