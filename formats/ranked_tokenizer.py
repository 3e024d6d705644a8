"""GGUF's tokenizer keys of folders that list tokens' bytes by rank instead of a tokenizer.json: tekken.json."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .mlx_tokenizer import optional, whole_metadata
from .tekken import tekken_keys


def ranked_metadata(folder: str, config: Mapping[str, Any], *, rows: int) -> dict[str, Any]:       # Any: parsed JSON
    """Tokenizer keys for a vocabulary of `rows` tokens, and the chat template; {} where the folder has no such list."""
    keys = tekken_keys(folder, rows)
    return whole_metadata(keys, folder, config, optional(folder, "tokenizer_config.json")) if keys else {}
