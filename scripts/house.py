"""Prints how the code hangs together: Python calls and files of one token, import circles, and the largest folders.

`scripts/house.py` looks at the median token of a stream of the guide, read by one caller in one thread.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOKENS, FIRST = 24, 5  # tokens that are drawn; those before FIRST fill caches
TABLES = {"arch", "codecs", "families", "parsers", "stores", "vision", "drafters"}  # folders whose files are rows of a table


def calls_of_a_token() -> tuple[int, int, int]:
    """Python calls, files, and switches between files of the median token."""
    import edgellm

    package, counts = str(Path(edgellm.__file__).parent), []
    with edgellm.load("guide") as model:
        stream = iter(model.stream("How do I", max_tokens=TOKENS, temperature=0, ignore_eos=True))
        for _ in range(TOKENS - 4):
            files: list[str] = []

            def called(frame: FrameType, event: str, argument: Any, files: list[str] = files) -> None:  # Any: the interpreter's
                if event == "call" and frame.f_code.co_filename.startswith(package):
                    files.append(frame.f_code.co_filename)

            sys.setprofile(called)
            try:
                next(stream)
            finally:
                sys.setprofile(None)
            switches = sum(one != other for one, other in pairwise(files))
            counts.append((len(files), len(set(files)), switches))
    return sorted(counts[FIRST:])[len(counts[FIRST:]) // 2]


def imports(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Names of the package's modules that a file imports anywhere, for type checkers as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def circles() -> list[list[str]]:
    """Sets of modules of which each imports each other, directly or not."""
    modules = {
        ".".join((path if top == "edgellm" else Path("edgellm") / path).with_suffix("").parts).removesuffix(".__init__"): ROOT
        / path
        for top in ("edgellm", "formats")
        for path in (full.relative_to(ROOT) for full in (ROOT / top).rglob("*.py"))
        if path.parts[:2] != ("edgellm", "formats")
    }
    edges = {
        name: {other for other in imports(path, modules) if other in modules and other != name} for name, path in modules.items()
    }
    edges["edgellm"] = set()  # it imports by name, when a name is asked for
    reached = {name: _reachable(edges, name) for name in edges}
    found = {frozenset(other for other in reached[name] if name in reached[other]) for name in edges if name in reached[name]}
    return sorted(sorted(circle) for circle in found)


def _reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = edges[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def folders() -> list[tuple[int, str]]:
    """Numbers of modules directly in a folder, the largest first; folders that are tables are left out."""
    counts = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for top in ("edgellm", "formats", "tests")
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py" and path.relative_to(ROOT).parts[:2] != ("edgellm", "formats")
    )
    return sorted(((n, name) for name, n in counts.items() if Path(name).name not in TABLES), reverse=True)


def main() -> None:
    loops, rooms, (calls, files, switches) = circles(), folders(), calls_of_a_token()
    for loop in loops:
        print("circle:", ", ".join(loop))
    print("folders:", ", ".join(f"{name} {n}" for n, name in rooms[:8]))
    print(
        f"house: {calls} calls in {files} files with {switches} switches a token; {len(loops)} import circles; "
        f"largest folder {rooms[0][1]} with {rooms[0][0]} modules"
    )


if __name__ == "__main__":
    main()
