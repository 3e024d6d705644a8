"""Writes docs/options.md from the option table; --check only says whether the page is up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgellm.options.generation import GENERATION
from edgellm.options.loading import LOADING
from edgellm.options.option import MAX_NUMBER, Option
from edgellm.options.sampling import SAMPLING

PAGE = Path(__file__).parent.parent / "docs/options.md"
HEAD = """\
# Options

Every option of a model and of an answer: its flag in `edgellm run` and `edgellm chat`, its keyword in Python
([library.md](library.md)), its range and its default. In a chat, `/set` takes the options of an answer by their flags, without
dashes. The page is written by `scripts/option_table.py` from the table that the code itself uses (`edgellm/options/`).
"""
PARTS = (
    ("Sampling", "Defaults are llama.cpp's, unless the model file (by its GGUF key) or the catalogue recommends others.", SAMPLING),
    ("One answer", "", GENERATION),
    ("Loading a model", "", LOADING),
)


def page() -> str:
    """The page's text."""
    return HEAD + "".join(f"\n## {title}\n{f'{text}{chr(10)}' if text else ''}\n{_table(rows)}" for title, text, rows in PARTS)


def _table(rows: tuple[Option, ...]) -> str:
    keys = any(row.gguf for row in rows)
    head = ["flag", "Python", "range", "default", "meaning", *(["GGUF key"] if keys else [])]
    cells = [[*_cells(row), *([f"`{row.gguf}`" if row.gguf else ""] if keys else [])] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *cells])


def _cells(row: Option) -> list[str]:
    metavar = "" if row.kind is bool else f" {row.metavar}".replace("|", "\\|")
    flags = ", ".join(f"`{flag.replace('/', '`, `')}`" for flag in row.flags) + (f" `{metavar.strip()}`" if metavar else "")
    help_ = row.help.replace("|", "\\|").rstrip(".")
    default = "" if row.kind is bool and row.default is not None else row.default_words
    return [flags, f"`{row.name}`", _range(row), default, help_]


def _range(row: Option) -> str:
    if row.values:
        return ", ".join(f"`{value}`" for value in row.values)
    if row.kind not in (int, float):
        return ""
    low = row.low if row.least is None else row.least
    if low == 1 / MAX_NUMBER:
        return "more than 0"
    start, end = "" if low <= -MAX_NUMBER else f"{low:g}", "" if row.high >= MAX_NUMBER else f"{row.high:g}"
    words = f"{start} to {end}" if start and end else f"{start} or more" if start else f"up to {end}" if end else "any"
    return words + (f", or {row.unset[0]}" if row.unset else "")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print("docs/options.md is out of date; run scripts/option_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
