"""Mean KL divergence by type of keys and values with llama-cpp-python, for check_kv_types.py: MODEL TEXT CONTEXT; prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any  # llama-cpp-python's model, untyped

import llama_cpp
import numpy as np

TYPES = {"q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}


def main() -> None:
    path, text, context = sys.argv[1], Path(sys.argv[2]).read_bytes(), int(sys.argv[3])
    models = {name: opened(path, context, kind) for name, kind in {"f32": llama_cpp.GGML_TYPE_F32, **TYPES}.items()}
    ids, first = models["f32"].tokenize(text, add_bos=True), context // 2
    totals, count = dict.fromkeys(TYPES, 0.0), 0
    for at in range(0, len(ids) - context + 1, context):
        window = ids[at : at + context]
        window[0] = models["f32"].token_bos()
        rows = {name: log_probabilities(model, window, first) for name, model in models.items()}
        for name in TYPES:
            totals[name] += float((np.exp(rows["f32"]) * (rows["f32"] - rows[name])).sum())
        count += context - 1 - first
    print(json.dumps({name: total / count for name, total in totals.items()}))


def opened(path: str, context: int, kind: int) -> Any:
    return llama_cpp.Llama(
        path,
        n_ctx=context,
        n_batch=context,
        n_ubatch=context,
        logits_all=True,
        verbose=False,
        n_threads=1,
        n_threads_batch=1,
        flash_attn=True,
        type_k=kind,
        type_v=kind,
    )


def log_probabilities(model: Any, window: list[int], first: int) -> Any:
    model.reset()
    model.eval(window)
    logits = np.array(model.scores[first : len(window) - 1], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


if __name__ == "__main__":
    main()
