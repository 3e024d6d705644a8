"""Writes edgellm/checkpoints/defaults.json: the values that transformers takes for settings that config.json lacks.

    PYTHONPATH=. python scripts/hf_defaults.py             (needs: pip install transformers)

Of each model type with a family, the settings that edgellm/checkpoints reads by name. Biases and token ids are left out: tensors
and tokenizer files give them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import transformers

from edgellm.checkpoints.families import FAMILIES

CHECKPOINTS = Path(__file__).resolve().parent.parent / "edgellm" / "checkpoints"
LEFT_OUT = re.compile(r".*bias|.*token_id|architectures|model_type|\w*dtype|tie_\w+|hidden_act\w*|.*jitter\w*|activation\w*")
BASE = 10000.0  # of angles, where no class says another
WIDTH = 122


def main() -> None:
    sources = [*(CHECKPOINTS / "families").glob("*.py"), CHECKPOINTS / "config.py"]
    asked = {name for path in sources for name in re.findall(r'"(\w+)"', path.read_text(encoding="utf-8"))}
    rows = [row(kind, found) for kind in sorted(FAMILIES) if (found := usual(kind, asked))]
    text = f'{{"transformers": "{transformers.__version__}", "defaults": {{\n' + ",\n".join(rows) + "\n}}\n"
    (CHECKPOINTS / "defaults.json").write_text(text, encoding="utf-8")


def usual(kind: str, asked: set[str]) -> dict[str, Any]:
    """Of one model type, or of its text part."""
    if kind not in transformers.CONFIG_MAPPING:
        return {}
    config = transformers.CONFIG_MAPPING[kind]
    config = config.sub_configs.get("text_config", config)
    if not dataclasses.is_dataclass(config):
        return {}
    found = {
        field.name: field.default
        for field in dataclasses.fields(config)
        if field.name in asked and isinstance(field.default, (int, float, str)) and not LEFT_OUT.fullmatch(field.name)
    }
    base = getattr(config, "default_theta", BASE)
    if isinstance(base, dict):
        return found | {"rope_theta": base["global"], "rope_local_base_freq": base["local"]}
    return found | ({} if base == BASE else {"rope_theta": base})


def row(kind: str, found: dict[str, Any]) -> str:
    texts = (f'"{key}":\0{json.dumps(value)}' for key, value in sorted(found.items()))
    lines = "\n".join(f"    {line}" for line in textwrap.wrap(", ".join(texts), WIDTH))
    return f'  "{kind}": {{\n' + lines.replace("\0", " ") + "}"


if __name__ == "__main__":
    main()
