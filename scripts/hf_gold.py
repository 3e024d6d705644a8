"""Writes tests/data/hf_gold.json: the logits that transformers computes for the checkpoints of tests/hf_checkpoints.py.

    python scripts/hf_gold.py                         (needs: pip install torch transformers)
"""
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from hf_checkpoints import IDS, KINDS, write_checkpoint


def main() -> None:
    gold: dict[str, object] = {"transformers": transformers.__version__}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = write_checkpoint(Path(temporary), kind)
            model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        if any(info.values()):
            raise SystemExit(f"{kind}: the names are not transformers': {info}")
        with torch.no_grad():
            logits = model.eval()(torch.tensor(IDS)[None]).logits[0]
        gold[kind] = [[round(float(value), 6) for value in logits[row]] for row in (5, len(IDS) - 1)]
    text = ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in gold.items())
    place = Path(__file__).resolve().parent.parent / "tests" / "data" / "hf_gold.json"
    place.write_text("{\n" + text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
