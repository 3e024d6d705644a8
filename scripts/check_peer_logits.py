"""Compares llama.cpp's logits with the reference interpreter's, on files of the variants of tests/models/variants.py.

    .venv/bin/python scripts/check_peer_logits.py --python PYTHON [VARIANT ...]

PYTHON has llama-cpp-python (made with 0.3.36). Differences of 1e-6 to 5e-6 are float32 noise; of 2e-4 to 9e-4 those of gelu, which
llama.cpp looks up in a table of f16. Larger ones: llama.cpp ignores the window of mistral-window and phi3-window and the YaRN
factor of llama-yarn-set, and bitnet's `hidden_act` in that version; it slides in exaone4, and has the head norms of command-r-plus,
only with 64 layers; it takes DeepSeek-V2's groups of experts by two experts instead of one, and softmax for glm4.7-flash, which it
knows by its layers and vocabulary; of gemma3n it has numbers of its own (256 columns per layer, 10 sparse layers, 20 with
keys, every fifth of which sees everything, a cap of 30). Two gelus a layer and norms after them make those of gemma4 3e-3. It
multiplies the logits of minicpm-2b by a factor that its makers divide by (files of today name the factor, as minicpm's does), and
differs in qwen2vl by 6e-4, from the first token on, where transformers does not. The last quarter of hunyuan_vl's pairs has
position 0 there. It
has RMS norms in phimoe, and weights of experts that sum to 1, where its makers have layer norms and SparseMixer; no rope in
Baichuan but with 32 layers. It adds the bias of Falcon-H1's convolutions even where there is none, so falcon-h1-no-bias fails. Its
RWKV-7 is right for heads of 64 alone, as in rwkv7-wide and arwkv7-bare. It does not hold the decays of QRWKV6 where its makers do:
1e-2 in rwkv6qwen2, nothing in rwkv6qwen2-slow. It gives GroveMoE's small experts what the others made, and weighs them by other
experts than their own. Of Chameleon it wants more than 8196 tokens, of which it bars 4 to 8195, and the feed-forwards of
chameleon-30b do not see what was before attention.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models"))
from tiny_models import Shape
from variant import Variant
from variants import CONTEXT, VARIANTS, tokens

from edgellm.arch import load_graph
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.weights import WeightStore

PEER = Path(__file__).resolve().parent / "peers" / "llama_cpp_logits.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.variants:
            print(f"{name}: {difference(name, Path(folder), options.python)}", flush=True)


def difference(name: str, folder: Path, python: str) -> str:
    """Largest difference as a share of the largest logit, or why there is none."""
    variant = VARIANTS[name]
    path = readable(variant).write(folder / f"{name}.gguf")
    with open_gguf(path) as gguf:
        found, graph = load_graph(gguf, min(CONTEXT, variant.sizes.get("context", 128)))
        ids = tokens(found.n_vocab)
        weights = WeightStore(gguf)
        ours = Reference(graph, weights).logits(ids)
        weights.close()
    theirs = peer_logits(path, ids, python)
    return "llama.cpp cannot load it" if theirs is None else f"{np.abs(theirs - ours).max() / np.abs(ours).max():.1e}"


def readable(variant: Variant) -> Variant:
    """With the keys that llama.cpp wants of a file without a vocabulary."""
    keys = {"{arch}.vocab_size": Shape(**variant.sizes).n_vocab, "tokenizer.ggml.model": "none"}
    return replace(variant, metadata={**variant.metadata, **keys})


def peer_logits(path: Path, ids: npt.NDArray[np.int64], python: str, repack: str = "1") -> npt.NDArray[np.float32] | None:
    """llama.cpp's logits (ids, n_vocab), without repacking where that is "0"; None where it cannot load the file."""
    given, out = path.with_suffix(".ids.npy"), path.with_suffix(".out.npy")
    np.save(given, ids)
    done = subprocess.run([python, str(PEER), str(path), str(given), str(out), repack], capture_output=True, text=True, check=False)
    return None if done.returncode else np.asarray(np.load(out), np.float32)


if __name__ == "__main__":
    main()
