"""Measures what quantised keys and values change: mean KL divergence of the predictions from those with f32, in windows of a text.

    scripts/check_kv_types.py MODEL.gguf [--peer PYTHON]

PYTHON is an interpreter with llama-cpp-python, whose figures are printed beside ours. Without --text the text is the one of
tests/helpers/story_text.py. Ends with 1 where ours exceed --most, or 0.6 of llama.cpp's with "q4_0" and its own with "q8_0".
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from children import ROOT, json_of

import edgellm
from edgellm.memory.kv_types import QUANTISED
from edgellm.tools.perplexity import cut, measure

SHARE = {"q8_0": 1.0, "q4_0": 0.6}  # of llama.cpp's divergence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", help="a Python that has llama-cpp-python")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--most", type=float, nargs=2, default=(5.6e-4, 0.08), metavar=("Q8_0", "Q4_0"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or Path(folder) / "stories.txt"
        if options.text is None:
            sys.path.insert(0, str(ROOT / "tests" / "helpers"))
            from story_text import story_text

            text.write_text(story_text(420), encoding="utf-8")
        ours = divergences(options.model, text.read_text(encoding="utf-8"), options.context)
        theirs = peer(options.peer, options.model, text, options.context) if options.peer else {}
    good = True
    for kv_type, most in zip(QUANTISED, options.most, strict=True):
        beside = f"   llama.cpp {theirs[kv_type]:.6f}" if theirs else ""
        print(f"{kv_type}   KL divergence {ours[kv_type]:.6f}, at most {most:.6f}{beside}")
        good = good and ours[kv_type] <= min(most, SHARE[kv_type] * theirs.get(kv_type, float("inf")))
    raise SystemExit(0 if good else 1)


def divergences(path: Path, text: str, context: int) -> dict[str, float]:
    """Mean KL divergence in nats by type."""
    found = {}
    with edgellm.load(path, context=context, kv_type="f32", backend="cpu") as base:
        ids = base.tokenizer.encode(text)
        for kv_type in QUANTISED:
            with edgellm.load(path, context=context, kv_type=kv_type, backend="cpu") as model:
                divergence = measure(model, ids, cut(len(ids), context), base=base).divergence
            assert divergence is not None
            found[kv_type] = divergence.mean
    return found


def peer(python: str, model: Path, text: Path, context: int) -> dict[str, float]:
    command = [python, str(ROOT / "scripts" / "peers" / "llama_cpp_kv_types.py"), str(model), str(text), str(context)]
    return json_of(command)


if __name__ == "__main__":
    main()
