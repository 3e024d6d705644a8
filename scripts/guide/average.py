"""The mean of the weights of two runs, one of which began with the other's: often better than either.

python scripts/guide/average.py /tmp/guide/second /tmp/guide/third /tmp/guide/run
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path, help="its tokenizer, progress and reader are kept")
    parser.add_argument("folder", type=Path, help="where tokenizer and checkpoint go")
    options = parser.parse_args()
    one, other = (
        torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True) for folder in (options.first, options.second)
    )
    if (options.first / "tokenizer.model").read_bytes() != (options.second / "tokenizer.model").read_bytes():
        parser.error("the two runs have different tokenizers; a run that begins with --start has the other's")
    other["model"] = {name: (weight + one["model"][name]) / 2 for name, weight in other["model"].items()}
    options.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(options.second / "tokenizer.model", options.folder / "tokenizer.model")
    part = options.folder / "checkpoint.part"
    torch.save(other, part)
    part.replace(options.folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
