"""Grammars in llama.cpp's syntax (GBNF), written again in Lark's."""

from __future__ import annotations

import json
import re

from edgellm.errors import SchemaError

_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
_TOKEN = re.compile(r'#[^\r\n]*|"(?P<text>(?:\\.|[^"\\])*)"|\[(?P<set>(?:\\.|[^\]\\])*)\]|(?P<any>\.)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


def is_gbnf(grammar: str) -> bool:
    """True for rules with `::=`, which Lark's syntax doesn't have."""
    return _RULE.search(grammar) is not None


def lark_of(grammar: str) -> str:
    """The same grammar in Lark's syntax, where `start` is the rule called `root`. Raises SchemaError."""
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(_TOKEN.sub(_plain, grammar))
    except RecursionError as error:
        raise SchemaError("grammar cannot be enforced: its groups are nested too deep; use rules in their place.") from error
    except Exception as error:  # what the converter raises has no class of its own
        reason = str(error).replace("\n", " ")[:200].rstrip(".")
        raise SchemaError(f"grammar cannot be enforced: as GBNF it has a fault: {reason}; correct it.") from error


def _plain(found: re.Match[str]) -> str:
    """A piece of GBNF that means the same in Lark: comments go, escapes of llama.cpp's become characters."""
    if (text := found["text"]) is not None:
        return '"' + "".join(_in_text(_ESCAPE.sub(_character, text))) + '"'
    if (members := found["set"]) is not None:
        return "[" + _ESCAPE.sub(lambda escape: _in_set(_character(escape)), members) + "]"
    return r'(.|"\n")' if found["any"] else ""


def _character(escape: re.Match[str]) -> str:
    """Raises ValueError for a number that no character has."""
    digits = escape[1] or escape[2] or escape[3]
    return chr(int(digits, 16)) if digits else _NAMED.get(escape[4], escape[4])


def _in_text(text: str) -> list[str]:
    return [json.dumps(c)[1:-1] if c in '"\\\n\r\t' else f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c for c in text]


def _in_set(c: str) -> str:
    """A character that was escaped, as a member of a set: none of those that mean something there, or of controls."""
    return f"\\x{ord(c):02x}" if c < "\x80" and not c.isalnum() else c
