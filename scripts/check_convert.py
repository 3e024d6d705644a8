"""Converts the folders of make_hf_models.py to F32 files and compares logits and token ids with those of `transformers`.

scripts/check_convert.py FOLDER/*          Ends with 1 where a logit differs by more than 1e-4, or an id at all.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import edgellm
from edgellm.tools.convert import convert

LIMIT = 1e-4


def main() -> None:
    failed = 0
    for folder in map(Path, sys.argv[1:]):
        expected = np.load(folder / "expected.npz")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        context = config.get("original_max_position_embeddings", 128)  # longrope: the context chooses the factors
        with tempfile.TemporaryDirectory() as place:
            done = convert(folder, Path(place) / "model.gguf", type_name="F32")
            with edgellm.load(done.path, context=context, kv_type="f32", backend="cpu") as model:
                error = float(np.abs(model.logits(expected["ids"]) - expected["logits"]).max())
                ids = model.tokenizer.encode(str(expected["text"]))
                pre = model._loaded.metadata.get("tokenizer.ggml.pre")
        good = error <= LIMIT and list(ids) == expected["text_ids"].tolist()
        failed += not good
        text = "the same ids" if list(ids) == expected["text_ids"].tolist() else "OTHER IDS"
        print(
            f"{folder.name:<12} {done.architecture:<8} largest difference {error:.1e} of logits up to "
            f"{np.abs(expected['logits']).max():.1f}, {text} ({pre})",
            *done.notes,
            sep="\n    ",
            flush=True,
        )
    if failed:
        raise SystemExit(f"{failed} models differ")


if __name__ == "__main__":
    main()
