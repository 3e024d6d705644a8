"""`edgellm bench --parallel`: the table of several conversations in shared steps, as llama-batched-bench prints it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any  # Any: options of `load`, and what JSON has

from edgellm.cli.terminal.profile_table import milliseconds, print_profile, profile_report
from edgellm.cli.terminal.progress import ProgressLine
from edgellm.cli.terminal.table import table

if TYPE_CHECKING:
    from edgellm.bench.batched import Batched

HEAD = ("PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s")
OPTIONAL = (3, 8, 4, 6)  # columns that a narrow terminal leaves out, the first first
WARM = 8  # tokens that are computed before anything is measured


def batched(
    name: str,
    load: dict[str, Any],
    prompts: Sequence[int],
    lengths: Sequence[int],
    parallel: Sequence[int],
    repetitions: int,
    *,
    as_json: bool,
    profile: bool,
) -> None:
    """Measure every combination, the median of the repetitions of each, and print them. `profile`: where the time goes of a step
    with a token of each conversation, after their prompts.
    """
    from edgellm.bench.batched import check_profiled, measure, profiled
    from edgellm.cli.opening import open_model

    rows: list[Batched] = []
    reports: list[dict[str, Any]] = []
    with open_model(name, {**load, "parallel": max(parallel)}) as model:
        if profile:
            check_profiled(model, max(parallel))
        measure(model, max(parallel), WARM, 2)
        for prompt, length, n in [(prompt, length, n) for prompt in prompts for length in lengths for n in parallel]:
            with ProgressLine(f"{n} x {prompt}+{length}") as progress:
                runs = []
                for k in range(repetitions):
                    progress(f"{n} x {prompt}+{length}", k, repetitions)
                    runs.append(measure(model, n, prompt, length))
            rows.append(sorted(runs, key=lambda run: run.seconds or run.prompt_seconds)[len(runs) // 2])
            reports.append(rows[-1].report(model))
            if profile:
                reports[-1] |= profile_report(profiled(model, n, prompt))
    if as_json:
        print(json.dumps(reports, indent=2))
        return
    print(table(HEAD, [_cells(row) for row in rows], range(len(HEAD)), OPTIONAL))
    for report in reports if profile else ():
        _print_profile(report)


def _print_profile(report: dict[str, Any]) -> None:
    tested = f" ({milliseconds(int(report['t_tg'] / report['tg'] * 1e9))} a token in the test)" if report["tg"] else ""
    tokens = f"a token of each of {report['pl']} conversations" if report["pl"] > 1 else "one token"
    print_profile(
        f"A step with {tokens} after {report['pp']} others, {report['n_threads']} threads: "
        f"{milliseconds(report['profile_ns'])} ms{tested}, of which these parts make "
        f"{report['profile_coverage']:.1%}",
        report,
    )


def _cells(row: Batched) -> list[str]:
    seconds = row.prompt_seconds + row.seconds
    return [
        str(row.prompt),
        str(row.generated),
        str(row.n),
        str(row.n * (row.prompt + row.generated)),
        f"{row.prompt_seconds:.2f}",
        f"{row.prompt_speed:.2f}",
        f"{row.seconds:.2f}",
        f"{row.speed:.2f}",
        f"{seconds:.2f}",
        f"{row.total:.2f}",
    ]
