"""The table of `edgellm bench --profile`: where a step's time went, by kind of kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any  # Any: strings and numbers, as JSON has them

from edgellm.cli.terminal.table import wrapped

if TYPE_CHECKING:
    from edgellm.backends.base import StepTimes


def profile_report(times: StepTimes) -> dict[str, Any]:
    """Fields of a JSON report, times in nanoseconds."""
    return {
        "profile_ns": int(times.seconds * 1e9),
        "profile_coverage": times.coverage,
        "profile": [
            {"kind": kind.kind, "calls": kind.calls, "ns": int(kind.seconds * 1e9), "bytes": kind.nbytes} for kind in times.kinds
        ],
    }


def print_profile(headline: str, report: dict[str, Any]) -> None:
    """A sentence and a table of the kinds."""
    print(f"\n{wrapped(headline)}\n")
    print("| kernel                  | calls |     ms |     % |  GB/s |")
    print("| ----------------------- | ----: | -----: | ----: | ----: |")
    for kind in report["profile"]:
        rate = f"{kind['bytes'] / kind['ns']:.2f}" if kind["bytes"] and kind["ns"] else ""
        part = kind["ns"] / report["profile_ns"]
        print(f"| {kind['kind']:<23} | {kind['calls']:>5} | {milliseconds(kind['ns']):>6} | {part:>5.1%} | {rate:>5} |")


def milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.{2 if nanoseconds < 1e9 else 0}f}"
