"""Texts that stand in a call without quotes, as terminals of a grammar (Lark) that end with a mark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any  # Any: JSON

from edgellm.chat.families._format import literal
from edgellm.chat.schemas import ANNOTATIONS, HELD

ANY = "(.|\\n)*"
SILENT = ANNOTATIONS | {"type", "$defs", "definitions"}
ENFORCED = frozenset({"pattern", "minLength", "maxLength", "format"})
_GROUP, _LABEL = "[0-9a-fA-F]{1,4}", "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# Formats of texts as regular expressions.
FORMATS = {
    **HELD,
    "uuid": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "email": rf"^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@{_LABEL}(\.{_LABEL})+$",
    "hostname": rf"^{_LABEL}(\.{_LABEL})*$",
    "ipv4": rf"^{_OCTET}(\.{_OCTET}){{3}}$",
    "ipv6": f"^(({_GROUP}:){{7}}{_GROUP}|({_GROUP}(:{_GROUP}){{0,2}})?::({_GROUP}(:{_GROUP}){{0,2}})?)$",
    "uri": "^[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#@!$&()*+,;=%-]+$",
    "unknown": "",
}
# Numbers that a float has, and integers that Python reads.
NUMBERS = {"integer": "/-?(0|[1-9][0-9]{0,179})/", "number": r"/-?(0|[1-9][0-9]{0,179})(\.[0-9]{1,180})?([eE][+-]?[0-9]{1,2})?/"}


def number_terminal(schema: Mapping[str, Any]) -> str | None:
    """A number of a schema that says no more than that it is one."""
    return None if set(schema) - SILENT else NUMBERS.get(str(schema.get("type")))


def text_terminal(schema: Mapping[str, Any], *, without: str, end: str = "", lined: bool = True) -> str | None:
    """A text of a string's schema that does not hold `without`, and `end` behind it; None for a schema with other keywords.

    `lined`: it may begin and end with a new line at once.
    """
    if set(schema) - SILENT - ENFORCED or schema.get("format", "unknown") not in FORMATS:
        return None
    parts = [f"/{ANY}/", f"~/{ANY}{escaped(without)}{ANY}/", *([] if lined else [f"~/\\n{ANY}\\n/"])]
    for expression in filter(None, (schema.get("pattern"), FORMATS[schema["format"]] if "format" in schema else None)):
        pattern = _anchored(expression)
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
    if "^" in outside or "$" in outside:
        return None
    while (flat := re.sub(r"\([^()]*\)", "", outside)) != outside:
        outside = flat
    if (first or last) and "|" in outside:
        return None
    found = regex_to_lark(inner, "dws")
    return ("" if first else ANY) + f"({found})" + ("" if last else ANY)


def escaped(text: str) -> str:
    return re.sub(r'([^\w\s<>=";:,!@#%&\x80-\U0010ffff-])', r"\\\1", text)
