"""Writes formats/families/_usual.py: what transformers takes where a configuration says nothing.

    PYTHONPATH=. python scripts/hf_defaults.py             (needs: pip install transformers)

Of each model type that has a family, the settings that formats/ asks for by name. Biases and ids of tokens are in files or are not.
"""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import transformers

from edgellm.formats.families import FAMILIES

FORMATS = Path(__file__).resolve().parent.parent / "formats"
LEFT_OUT = re.compile(r".*bias|.*token_id|architectures|model_type|\w*dtype|tie_\w+|hidden_act\w*|.*jitter\w*|activation\w*")
BASE = 10000.0  # of angles, where no class says another
WIDTH = 122
HEAD = '''"""What transformers {} takes where a configuration says nothing; written by scripts/hf_defaults.py."""
from __future__ import annotations

USUAL: dict[str, dict[str, object]] = {{
'''


def main() -> None:
    sources = [*(path for path in (FORMATS / "families").glob("*.py") if path.name != "_usual.py"), FORMATS / "mlx_config.py"]
    asked = {name for path in sources for name in re.findall(r'"(\w+)"', path.read_text(encoding="utf-8"))}
    rows = [row(kind, found) for kind in sorted(FAMILIES) if (found := usual(kind, asked))]
    text = HEAD.format(transformers.__version__) + "".join(rows) + "}\n"
    (FORMATS / "families" / "_usual.py").write_text(text, encoding="utf-8")


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
    texts = (f'"{key}":\0{json.dumps(value) if isinstance(value, str) else value}' for key, value in sorted(found.items()))
    lines = textwrap.wrap(", ".join(texts), WIDTH)
    return f'    "{kind}": {{\n' + "".join(f"        {line}\n" for line in lines).replace("\0", " ").rstrip("\n") + "},\n"


if __name__ == "__main__":
    main()
