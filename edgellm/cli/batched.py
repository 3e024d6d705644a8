"""`edgellm bench --parallel`: the table of several conversations in shared steps, as llama-batched-bench prints it."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any  # Any: options of `load`

from edgellm.cli.progress import ProgressLine
from edgellm.cli.table import table

if TYPE_CHECKING:
    from edgellm.engine.batched import Batched

HEAD = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")
OPTIONAL = (3, 8, 4, 6)                             # columns that a narrow terminal leaves out, the first first
WARM = 8                                            # tokens that are computed before anything is measured


def batched(name: str, load: dict[str, Any], prompts: Sequence[int], lengths: Sequence[int], parallel: Sequence[int],
            repetitions: int, *, as_json: bool) -> None:
    """Measure every combination, the median of the repetitions of each, and print them."""
    from edgellm.cli.opening import open_model
    from edgellm.engine.batched import measure

    rows: list[Batched] = []
    with open_model(name, {**load, "parallel": max(parallel)}) as model:
        measure(model, max(parallel), WARM, 2)
        for prompt, length, n in [(prompt, length, n) for prompt in prompts for length in lengths for n in parallel]:
            with ProgressLine(f"{n} x {prompt}+{length}") as progress:
                runs = []
                for k in range(repetitions):
                    progress(f"{n} x {prompt}+{length}", k, repetitions)
                    runs.append(measure(model, n, prompt, length))
            rows.append(sorted(runs, key=lambda run: run.seconds or run.prompt_seconds)[len(runs) // 2])
        reports = [row.report(model) for row in rows]
    print(json.dumps(reports, indent=2) if as_json else table(HEAD, [_cells(row) for row in rows], range(len(HEAD)), OPTIONAL))


def _cells(row: Batched) -> list[str]:
    seconds = row.prompt_seconds + row.seconds
    return [str(row.prompt), str(row.generated), str(row.n), str(row.n * (row.prompt + row.generated)), f"{row.prompt_seconds:.2f}",
            f"{row.prompt_speed:.2f}", f"{row.seconds:.2f}", f"{row.speed:.2f}", f"{seconds:.2f}", f"{row.total:.2f}"]
