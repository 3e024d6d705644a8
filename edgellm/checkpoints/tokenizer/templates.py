"""Chat templates of a folder: of tokenizer_config.json or of files of their own, one or several by name."""

from __future__ import annotations

import os
import re
from typing import Any

from edgellm.checkpoints.tokenizer.tokens import Json, entries, optional, text_file

TEMPLATE, MORE = "tokenizer.chat_template", "additional_chat_templates"


def chat_templates(folder: str, settings: Json) -> dict[str, str]:
    """Templates by GGUF's keys; that of conversations, which lists call "default", has no name."""
    path = os.path.join(folder, "chat_template.jinja")
    found: Any = text_file(path) if os.path.isfile(path) else None
    if found is None:
        found = settings.get("chat_template") or optional(folder, "chat_template.json").get("chat_template")
    named = [(each.get("name"), each.get("template")) for each in entries(found)] or [("default", found)]
    more = os.path.join(folder, MORE)
    files = sorted(os.listdir(more)) if os.path.isdir(more) else []
    named += [(name.removesuffix(".jinja"), text_file(os.path.join(more, name))) for name in files if name.endswith(".jinja")]
    return {
        TEMPLATE if name == "default" else f"{TEMPLATE}.{re.sub('[^A-Za-z0-9]', '_', name)}": text
        for name, text in named
        if isinstance(name, str) and name and isinstance(text, str) and text
    }
