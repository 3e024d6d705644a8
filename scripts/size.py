"""Prints files, lines and Python tokens by folder, and how they differ from a commit.

    python scripts/size.py [--summary] [--without PATH ...] [COMMIT]

Tokens are counted without comments, docstrings and line breaks, so that formatting does not change them. COMMIT is HEAD^ unless
given. --without leaves folders and files out on both sides, so that old rooms can be compared without new features.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("edgellm", "formats", "tests", "scripts", "examples")
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Size(NamedTuple):
    """Files, lines and tokens of a folder and those below it."""

    files: int = 0
    lines: int = 0
    tokens: int = 0

    def plus(self, other: Size) -> Size:
        return Size(*(mine + its for mine, its in zip(self, other, strict=True)))


def size_of(text: str) -> Size:
    """Size of one file. A string that begins a statement is a docstring, and no token."""
    count, starts = 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in LAYOUT:
            starts = True
        elif token.type != tokenize.COMMENT and not (token.type == tokenize.STRING and starts):
            count, starts = count + 1, False
    return Size(1, len(text.splitlines()), count)


def present() -> Iterator[tuple[str, str]]:
    """Paths and texts of the working tree. The symlink edgellm/formats is left out."""
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("edgellm/formats/"):
                yield name, path.read_text(encoding="utf-8")


def committed(commit: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of a commit. Nothing where git does not know it, as in a clone without history."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        return
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py") and member.name.split("/")[0] in TOPS:
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, content.read().decode()


def by_folder(files: Iterator[tuple[str, str]], without: Sequence[str]) -> dict[str, Size]:
    """Sizes of all folders with the ones below them, but for the paths `without`."""
    sizes: dict[str, Size] = {}
    for name, text in files:
        if any(Path(name).is_relative_to(path) for path in without):
            continue
        size = size_of(text)
        for folder in Path(name).parents:
            sizes[folder.as_posix()] = sizes.get(folder.as_posix(), Size()).plus(size)
    return sizes


def difference(now: int, before: int | None) -> str:
    return "" if before is None or now == before else f"{now - before:+,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD^")
    parser.add_argument("--summary", action="store_true", help="the last line only")
    parser.add_argument("--without", nargs="+", default=[], metavar="PATH", help="folders and files that do not count")
    options = parser.parse_args()
    now, before = by_folder(present(), options.without), by_folder(committed(options.commit), options.without)
    if not options.summary:
        print(f"{'folder':32} {'files':>7} {'':>6} {'lines':>9} {'':>7} {'tokens':>9} {'':>8}")
        for folder in sorted(set(now) | set(before)):
            new, old = now.get(folder, Size()), before.get(folder, Size()) if before else None
            changes = [difference(count, old and old[place]) for place, count in enumerate(new)]
            columns = zip((7, 9, 9), (6, 7, 8), new, changes, strict=True)
            print(f"{folder:32}", *(f"{count:{wide},} {change:>{narrow}}" for wide, narrow, count, change in columns))
    total, old = (Size().plus(sizes.get("edgellm", Size())).plus(sizes.get("formats", Size())) for sizes in (now, before))
    change = f" ({100 * (total.tokens / old.tokens - 1):+.2f} % of the tokens of {options.commit})" if old.tokens else ""
    tests = now["tests"]
    print(
        f"size: edgellm and formats {total.files:,} files, {total.lines:,} lines, {total.tokens:,} tokens{change}; "
        f"tests {tests.files:,} files, {tests.lines:,} lines"
    )


if __name__ == "__main__":
    main()
