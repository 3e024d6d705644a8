"""Compares the error of each tensor type with llama.cpp's, on one model: the same file, both against float32 arithmetic.

    .venv/bin/python scripts/check_types.py F32.gguf --peer PYTHON [--types Q4_0 IQ2_XXS ...] [--threads 2]

All matrices of F32.gguf are encoded in the type, by scripts/retype.py. Gold is the reference interpreter on the values that the
file's blocks stand for. Errors are KL divergences of the predictions from gold's, the mean over all tokens and the median. PYTHON
has llama-cpp-python, which counts with and without repacking, the worse; types it lacks have no figure. Ends with 1 where ours
exceeds 1.25 times its, in the median; with a dense model also in the mean (one expert chosen otherwise outweighs all else there).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))  # PYTHONSAFEPATH leaves it out

from check_peer_logits import peer_logits
from retype import retype

import edgellm
from edgellm.arch import load_graph
from edgellm.backends.cpu.traits import TRAITS
from edgellm.formats.codecs import CODECS
from edgellm.formats.gguf import open_gguf
from edgellm.reference import Reference
from edgellm.weights import WeightStore

Floats = npt.NDArray[np.float32]
MOST, FLOOR = 1.25, 1e-6  # what the judge of such files allows
N_TOKENS = 97


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a small GGUF file in F32")
    parser.add_argument("--peer", required=True, help="a Python that has llama-cpp-python")
    parser.add_argument("--types", nargs="*", default=sorted(set(CODECS) & set(TRAITS) - {"F32", "F16", "BF16"}))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("| type | ours, mean | median | x llama.cpp, mean | median |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        good = [check(options, name, Path(folder) / f"{name}.gguf") for name in options.types]
    return 0 if all(good) else 1


def check(options: argparse.Namespace, name: str, path: Path) -> bool:
    """Prints a type's line, by way of a file at `path`; whether its error is small enough."""
    moe = retype(options.model, path, name)
    gold, ids, used = reference(path)
    if name not in used:
        print(f"| {name} | no row is whole blocks | | | |", flush=True)
        return True
    with edgellm.load(path, threads=options.threads, context=128, kv_type="f32") as model:
        ours = divergence(gold, model.logits(ids.tolist()))
    found = [peer_logits(path, ids, options.peer, repack) for repack in "10"]
    path.unlink()
    theirs = [divergence(gold, logits) for logits in found if logits is not None]
    most = [max(each) for each in zip(*theirs, strict=True)]
    ratios = [f"{mine / max(other, FLOOR):.2f}" for mine, other in zip(ours, most, strict=True)] if most else ["", ""]
    print(f"| {name} | {ours[0]:.2e} | {ours[1]:.2e} | {ratios[0]} | {ratios[1]} |", flush=True)
    judged = slice(1 if moe else 0, None)
    return not most or all(mine <= MOST * other + FLOOR for mine, other in zip(ours[judged], most[judged], strict=True))


def reference(path: Path) -> tuple[Floats, npt.NDArray[np.int64], set[str]]:
    """Logits (ids, n_vocab) of float32 arithmetic, random ids, and the types in the file."""
    with open_gguf(path) as gguf:
        found, graph = load_graph(gguf, 128)
        ids = np.random.default_rng(1).integers(0, found.n_vocab, N_TOKENS)
        weights = WeightStore(gguf)
        logits = Reference(graph, weights).logits(ids)
        weights.close()
        used = {info.type.name for info in gguf.tensors.values()}
    return logits, ids, used


def divergence(gold: Floats, logits: Floats) -> tuple[float, float]:
    """KL divergence of the predictions from gold's: mean and median of all tokens."""
    a, b = (log_softmax(np.asarray(each, np.float64)) for each in (gold, logits))
    kl = (np.exp(a) * (a - b)).sum(-1)
    return float(kl.mean()), float(np.median(kl))


def log_softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


if __name__ == "__main__":
    sys.exit(main())
