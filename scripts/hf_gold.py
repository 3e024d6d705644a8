"""Writes tests/data/hf_layouts.json and hf_gold.json: what transformers makes of the checkpoints of tests/hf_checkpoints.py.

    python scripts/hf_gold.py [KIND ...]              (needs: pip install torch transformers)

The configurations in hf_layouts.json are written by hand; names and shapes of tensors are those that transformers saves for them,
and the gold is what it computes when it loads seeded weights under these names.
"""
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from hf_checkpoints import DATA, IDS, LAYOUTS, rows_of, write_checkpoint


def main() -> None:
    gold: dict[str, Any] = json.loads((DATA / "hf_gold.json").read_text(encoding="utf-8"))
    gold["transformers"] = transformers.__version__
    for kind in sys.argv[1:] or LAYOUTS:
        layout = LAYOUTS[kind]
        with tempfile.TemporaryDirectory() as temporary:
            layout["tensors"] = rows_of(saved_names(layout["config"], Path(temporary)))
            folder = write_checkpoint(Path(temporary) / "model", kind)
            model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        if any(info.values()):
            raise SystemExit(f"{kind}: the names are not transformers': {info}")
        with torch.no_grad():
            logits = model.eval()(torch.tensor(IDS)[None]).logits[0]
        gold[kind] = [[round(float(value), 6) for value in logits[row]] for row in (5, len(IDS) - 1)]
    write("hf_gold.json", {name: json.dumps(gold[name]) for name in gold if name in ("transformers", *LAYOUTS)})
    write("hf_layouts.json", {kind: f'{{"config": {json.dumps(layout["config"])},\n "tensors": {json.dumps(layout["tensors"])}}}'
                              for kind, layout in LAYOUTS.items()})


def saved_names(config: dict[str, Any], folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by the names that transformers saves a model of this configuration under."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    model.save_pretrained(folder / "saved")
    with safe_open(folder / "saved" / "model.safetensors", framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}       # noqa: SIM118 (no mapping)


def write(name: str, entries: dict[str, str]) -> None:
    """An entry a line."""
    lines = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in entries.items())
    (DATA / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
