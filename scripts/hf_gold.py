"""Writes tests/data/hf_layouts.json and hf_gold.json: what transformers makes of the checkpoints of tests/models/hf_checkpoints.py.

    python scripts/hf_gold.py [KIND ...]              (needs: pip install torch transformers)

The configurations in hf_layouts.json are written by hand; names and shapes of tensors are those that transformers saves for them,
and the gold is what it computes when it loads seeded weights under these names. Of models whose code lies beside their checkpoints
names and shapes are written by hand, too, and tests/data/custom_code.py defines what they compute.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models", "data"))
import custom_code
from hf_checkpoints import DATA, IDS, LAYOUTS, config_of, rows_of, tensors_of, write_checkpoint

SEEING = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3VLMoe", "MuseGlimmer")


def main() -> None:
    gold: dict[str, Any] = json.loads((DATA / "hf_gold.json").read_text(encoding="utf-8"))
    gold["transformers"] = transformers.__version__
    for kind in sys.argv[1:] or LAYOUTS:
        layout = LAYOUTS[kind]
        if kind in custom_code.LOGITS:
            wide = {name: array.astype(np.float64) for name, array in tensors_of(kind).items()}
            gold[kind] = rounded(custom_code.LOGITS[kind](config_of(kind), wide, IDS)[[5, -1]])
            continue
        with tempfile.TemporaryDirectory() as temporary:
            layout["tensors"] = rows_of(saved_names(layout, Path(temporary)))
            folder = write_checkpoint(Path(temporary) / "model", kind)
            model, info = class_of(layout).from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        if any(info.values()):
            raise SystemExit(f"{kind}: the names are not transformers': {info}")
        with torch.no_grad():
            found = model.eval()(torch.tensor(IDS)[None])
        gold[kind] = rounded(rows_of_gold(found, layout.get("pooling")))
    write("hf_gold.json", {name: json.dumps(gold[name]) for name in gold if name in ("transformers", *LAYOUTS)})
    write(
        "hf_layouts.json",
        {
            kind: "{" + ",\n ".join(f'"{key}": {json.dumps(value)}' for key, value in layout.items()) + "}"
            for kind, layout in LAYOUTS.items()
        },
    )


def rounded(rows: Iterable[Any]) -> list[list[float]]:
    return [[round(float(value), 6) for value in row] for row in rows]


def class_of(layout: dict[str, Any]) -> Any:
    """Of models that write text, embed them, or score them."""
    named = layout["config"].get("architectures", [""])[0]
    if named in ("T5EncoderModel", "Mistral4ForCausalLM"):  # which no Auto class knows
        return getattr(transformers, named)
    if named.removesuffix("ForConditionalGeneration") in SEEING:
        return transformers.AutoModelForImageTextToText
    if "pooling" not in layout:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForSequenceClassification if layout["pooling"] == "rank" else transformers.AutoModel


def rows_of_gold(found: Any, pooling: str | None) -> list[torch.Tensor]:
    """Logits of two rows, scores, or the vector of the text."""
    if pooling in (None, "rank"):
        return [found.logits[0][5], found.logits[0][-1]] if pooling is None else [found.logits[0]]
    rows = found.last_hidden_state[0]
    return [{"cls_token": rows[0], "mean_tokens": rows.mean(dim=0), "lasttoken": rows[-1]}[pooling]]


def saved_names(layout: dict[str, Any], folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by the names that transformers saves a model of this configuration under."""
    (folder / "config.json").write_text(json.dumps(layout["config"]), encoding="utf-8")
    config, kind = transformers.AutoConfig.from_pretrained(folder), class_of(layout)
    model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    model.save_pretrained(folder / "saved")
    with safe_open(folder / "saved" / "model.safetensors", framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def write(name: str, entries: dict[str, str]) -> None:
    """An entry a line."""
    lines = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in entries.items())
    (DATA / name).write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
