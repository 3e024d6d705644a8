"""Makes tests/data/gold/*.npz of the variants that transformers does not know: llama.cpp's logits (run by hand).

    PYTHONPATH=tests/helpers:tests/models:scripts:. python tests/data/make_peer_gold.py PYTHON [VARIANT ...]

PYTHON is an interpreter with llama-cpp-python.

Made with llama-cpp-python 0.3.36, with keys and values in f32.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
from check_peer_logits import peer_logits, readable
from tiny_models import Shape
from variant import PEER
from variants import GOLD, ROWS, VARIANTS, fingerprint, tokens

if __name__ == "__main__":
    wanted = sys.argv[2:] or [name for name, variant in VARIANTS.items() if variant.family == PEER]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in wanted:
            variant = VARIANTS[name]
            arrays = {tensor.name: tensor.data for tensor in gguf.GGUFReader(variant.write(folder / "ours.gguf")).tensors}
            path, ids = readable(variant).write(folder / "theirs.gguf"), tokens(Shape(**variant.sizes).n_vocab)
            logits = peer_logits(path, ids, sys.argv[1])
            if logits is None:
                sys.exit(f"{name}: llama.cpp cannot load it")
            np.savez_compressed(GOLD / f"{name}.npz", logits=logits[list(ROWS)], fingerprint=fingerprint(arrays))
            print(name)
