"""Perplexity for check_perplexity.py with llama-cpp-python: MODEL TEXT CONTEXT; prints JSON. llama-perplexity's definition."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import llama_cpp
import numpy as np


def main() -> None:
    path, text, context = sys.argv[1], Path(sys.argv[2]).read_bytes(), int(sys.argv[3])
    model = llama_cpp.Llama(
        path, n_ctx=context, n_batch=context, n_ubatch=context, logits_all=True, verbose=False, n_threads=1, n_threads_batch=1
    )
    vocabulary = llama_cpp.llama_model_get_vocab(model.model)
    ids, begins = model.tokenize(text, add_bos=True), llama_cpp.llama_vocab_get_add_bos(vocabulary)
    first, total, count = context // 2, 0.0, 0
    for at in range(0, len(ids) - context + 1, context):
        window = ids[at : at + context]
        targets = window[first + 1 :]
        if begins:
            window[0] = model.token_bos()
        model.reset()
        model.eval(window)
        logits = np.array(model.scores[first : context - 1], np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        total += float((np.log(np.exp(logits).sum(axis=1)) - logits[range(len(targets)), targets]).sum())
        count += len(targets)
    print(json.dumps({"perplexity": math.exp(total / count), "tokens": count}))


if __name__ == "__main__":
    main()
