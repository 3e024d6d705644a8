"""Texts that stand in a call without quotes, as terminals of a grammar (Lark) that end with a mark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any  # Any: JSON

from edgellm.chat.families._format import literal

ANY = "(.|\\n)*"
SILENT = frozenset(
    {"type", "title", "description", "default", "examples", "example", "deprecated", "$comment", "$defs", "definitions"}
)
ENFORCED = frozenset({"pattern", "minLength", "maxLength"})


def text_terminal(schema: Mapping[str, Any], *, without: str, end: str = "", lined: bool = True) -> str | None:
    """A text of a string's schema that does not hold `without`, and `end` behind it; None for a schema with other keywords.

    `lined`: it may begin and end with a new line at once.
    """
    if set(schema) - SILENT - ENFORCED:
        return None
    parts = [f"/{ANY}/", f"~/{ANY}{_escaped(without)}{ANY}/", *([] if lined else [f"~/\\n{ANY}\\n/"])]
    if "pattern" in schema:
        pattern = _anchored(schema["pattern"])
        if pattern is None:
            return None
        parts.append(f"/{pattern}/")
    if {"minLength", "maxLength"} & set(schema):
        parts.append(f"/(.|\\n){{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}/")
    return f"({' & '.join(parts)})" + (f" {literal(end)}" if end else "")


def _anchored(pattern: str) -> str | None:
    """A regular expression that a whole text matches where the pattern is found in it; None where its anchors are within."""
    from llguidance import regex_to_lark

    first, last = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[first : len(pattern) - last]
    outside = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "", inner)
    if "^" in outside or "$" in outside or ((first or last) and "|" in outside):
        return None
    found = regex_to_lark(inner, "dws")
    return ("" if first else ANY) + f"({found})" + ("" if last else ANY)


def _escaped(text: str) -> str:
    return re.sub(r'([^\w\s<>=";:,!@#%&\x80-\U0010ffff-])', r"\\\1", text)
