"""Logits of llama-cpp-python in f32, for check_types.py and check_peer_logits.py: MODEL IDS.npy OUT.npy, and 0 for no repacking."""

import sys

import llama_cpp.llama_cpp as functions
import numpy as np
from llama_cpp import Llama

path, ids, out = sys.argv[1:4]
load = functions.llama_model_load_from_file


def plain(*arguments):
    arguments[1].use_extra_bufts = False
    return load(*arguments)


if sys.argv[4:] == ["0"]:
    functions.llama_model_load_from_file = plain
tokens = np.load(ids)
model = Llama(path, n_ctx=128, n_threads=1, logits_all=True, verbose=False, flash_attn=False, type_k=0, type_v=0)
model.eval(tokens.tolist())
np.save(out, np.asarray(model.scores[: len(tokens)]))
