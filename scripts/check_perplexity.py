"""Compares `edgellm perplexity` with llama.cpp's numbers: the same files, text and windows, by the same definition.

    scripts/check_perplexity.py MODEL.gguf... --peer PYTHON

PYTHON is an interpreter with llama-cpp-python. Without --text the text is the one of tests/helpers/story_text.py. Ends with 1 where
a file of F32, F16 or Q8_0 differs by more than 0.5 %, or another one by more than 1 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from children import ROOT, json_of

RUN = "from edgellm.cli import main; main()"
EXACT, LIMIT, LIMIT_QUANTISED = ("F32", "F16", "BF16", "Q8_0"), 0.005, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peer", required=True, help="a Python that has llama-cpp-python")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--context", type=int, default=256)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or Path(folder) / "stories.txt"
        if options.text is None:
            sys.path.insert(0, str(ROOT / "tests" / "helpers"))
            from story_text import story_text

            text.write_text(story_text(420), encoding="utf-8")
        failed = [model for model in options.models if not compare(model, text, options.context, options.peer)]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(options.models)} differ by more than allowed")


def compare(model: Path, text: Path, context: int, peer: str) -> bool:
    """Print one line; whether the two numbers agree."""
    arguments = [str(model), str(text)]
    ours = json_of([sys.executable, "-c", RUN, "perplexity", *arguments, "--context", str(context), "--json"])
    theirs = json_of([peer, str(ROOT / "scripts" / "peers" / "llama_cpp_perplexity.py"), *arguments, str(context)])
    difference = ours["perplexity"] / theirs["perplexity"] - 1
    exact = any(f"-{name}." in model.name or f"-{name.lower()}." in model.name for name in EXACT)
    values = f"llama.cpp {theirs['perplexity']:9.4f}  edgellm {ours['perplexity']:9.4f}"
    print(f"{model.name:<36} {values}  {difference:+.3%}", flush=True)
    return ours["tokens"] == theirs["tokens"] and abs(difference) <= (LIMIT if exact else LIMIT_QUANTISED)


if __name__ == "__main__":
    main()
