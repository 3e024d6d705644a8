"""Draws docs/images/speed.svg and writes the table of docs/speed.md, both from docs/speed.json, which bench_peers.py writes.

.venv/bin/python scripts/draw_speed.py [--check]         # --check: only say whether they are what the file says
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any  # what JSON holds

DOCS = Path(__file__).resolve().parent.parent / "docs"
CHART, PAGE, FIGURES = DOCS / "images" / "speed.svg", DOCS / "speed.md", DOCS / "speed.json"
BEGIN, END = "<!-- table: scripts/draw_speed.py writes it from speed.json -->\n", "<!-- end -->"
WIDTH, LABEL, BAR, ROW = 840, 170, 130, 26  # pixels: the picture, the names, a bar of llama.cpp's length, a row
PANEL = (WIDTH - LABEL) // 2
STYLE = """\
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}.ours{fill:#2f6feb}
.peer{stroke:#59636e;stroke-dasharray:4 3}.other{stroke:#bc4c00;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.peer{stroke:#9198a1}}"""


def main() -> None:
    facts = json.loads(FIGURES.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    written = {CHART: chart(facts), PAGE: before + BEGIN + table(facts["rows"]) + END + rest.partition(END)[2]}
    for path, text in written.items():
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path.name} is not what {FIGURES.name} says: run scripts/draw_speed.py")


def of(rows: list[dict[str, Any]], kind: str, threads: int) -> Iterator[dict[str, Any]]:
    """The rows of prompts ("pp") or of generation ("tg"), weights mapped, without depth, with that many threads."""
    return (
        row
        for row in rows
        if row["test"].startswith(kind)
        and "@" not in row["test"]
        and row["threads"] == threads
        and row.get("weights", "mapped") == "mapped"
    )


def table(rows: list[dict[str, Any]]) -> str:
    """A line per model: speed with the most threads, and ratios to each program, with the most threads and with one."""
    most, programs = max(row["threads"] for row in rows), list(rows[0]["ratios"])
    tests = [next(of(rows, kind, most))["test"] for kind in ("pp", "tg")]
    ratios = " | ".join(f"× {name}" for name in programs)
    lines = [
        f"| model, type | {' | '.join(f'{test}, tokens/s | {ratios}' for test in tests)} | memory |",
        "|---|" + "--:|" * (2 * (1 + len(programs)) + 1),
    ]
    for row in of(rows, "pp", most):
        cells = [row["model"]]
        for kind in ("pp", "tg"):
            many, one = (next(other for other in of(rows, kind, n) if other["model"] == row["model"]) for n in (most, 1))
            cells += [f"{many['edgellm']:.0f}", *(f"{many['ratios'][name]:.2f}, {one['ratios'][name]:.2f}" for name in programs)]
        lines.append(f"| {' | '.join(cells)} | {row['overhead_mib']:.0f} MiB |")
    return "\n".join(lines) + "\n"


def chart(facts: dict[str, Any]) -> str:
    """Bars of our speed, in lengths of the first program's, for prompts and for generation; ticks for the other programs."""
    rows = facts["rows"]
    most, (first, *others) = max(row["threads"] for row in rows), rows[0]["ratios"]
    models = [row["model"] for row in of(rows, "pp", most)]
    height = 62 + ROW * len(models) + 26
    longest = max(row["ratios"][first] for kind in ("pp", "tg") for row in of(rows, kind, most))
    unit = min(BAR, (PANEL - 145) / longest)
    parts = [f'<text x="0" y="{62 + ROW * k + 13}">{escape(model)}</text>' for k, model in enumerate(models)]
    for panel, (kind, title) in enumerate((("pp", "prompt processing"), ("tg", "decoding"))):
        left = LABEL + panel * PANEL
        parts.append(f'<text x="{left}" y="16" font-weight="600">{title}</text>')
        parts.append(f'<text class="small" x="{left + unit:.0f}" y="42" text-anchor="middle">{escape(first)}</text>')
        for k, model in enumerate(models):
            row = next(row for row in of(rows, kind, most) if row["model"] == model)
            y, ratio = 62 + ROW * k, row["ratios"][first]
            parts.append(f'<rect class="ours" x="{left}" y="{y}" width="{ratio * unit:.1f}" height="17" rx="2"/>')
            ends = [ratio]
            for name in others:
                ends.append(ratio / row["ratios"][name])
                parts.append(f'<path class="other" d="M{left + ends[-1] * unit:.1f} {y - 2}v21"/>')
            parts.append(
                f'<text class="small" x="{left + max(ends) * unit + 6:.1f}" y="{y + 13}">{ratio:.2f} &#215;, '
                f"{row['edgellm']:.0f} tokens/s</text>"
            )
        parts.append(f'<path class="peer" d="M{left + unit:.1f} 48V{62 + ROW * len(models)}"/>')
    peers = facts["peer"] + (" (ticks)" if others else "")
    note = f"{most} threads, {facts['machine']}; {peers}; {facts['date']}; medians of {facts['rounds']} rounds"
    parts.append(f'<text class="small" x="0" y="{height - 6}">{escape(note)}</text>')
    body = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>Speed of edgellm in multiples of {escape(first)}'s</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    main()
