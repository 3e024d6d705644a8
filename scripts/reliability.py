"""Counts how edgellm ends against hostile input, with a fixed seed: one line for each figure of docs/security.md.

    .venv/bin/python scripts/reliability.py [WHAT ...] [--seed 1] [--count N]

Without WHAT all figures, which takes an hour or more. Ends with 1 where something happened that should not; that is printed too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = map(str, (HERE, *(TESTS / folder for folder in ("helpers", "models", "arch", "chat", "cli", "tokenizer"))))

from attacks import Figure, calls, files, mapped, pictures, saves, servers, streams, templates, texts  # noqa: E402  # after the path

FIGURES: dict[str, tuple[Callable[[Path, int, int], Figure], int]] = {
    "files": (files.handcrafted, 1),
    "mutations": (files.mutations, 100_000),
    "others": (files.others, 30_000),
    "cuts": (files.cuts, 1),
    "templates": (templates.attacks, 1),
    "generated-templates": (templates.generated, 5_000),
    "texts": (texts.round_trips, 10_000),
    "long-texts": (texts.long_ones, 1),
    "control-tokens": (texts.control_tokens, 500),
    "streams": (streams.filtered, 100_000),
    "servers": (servers.hostile, 1),
    "kills": (servers.kills, 200),
    "cut-files": (mapped.cut_while_answering, 50),
    "replaced-files": (mapped.replaced, 50),
    "threads": (calls.from_threads, 3_000),
    "saves": (saves.at_once, 12_000),
    "projectors": (pictures.projectors, 510),
    "pictures": (pictures.pictures, 200),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*FIGURES, []], metavar="WHAT", help=", ".join(FIGURES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="how many, where that is a choice")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = 0
    for name in asked.what or FIGURES:
        figure, usual = FIGURES[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="edgellm-attack-") as folder:
            result = figure(Path(folder), asked.seed, asked.count or usual)
        print(f"{name}: {result.tried}; {result.ended} (seed {asked.seed}, {time.monotonic() - began:.0f} s)", flush=True)
        for fault in result.faults[:20]:
            print(f"    {fault:.400}", flush=True)
        wrong += len(result.faults)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
