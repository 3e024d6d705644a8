"""`edgellm doctor`: is this machine in order, and what to do where it is not."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.terminal.progress import ProgressLine


def doctor(
    timing: Annotated[bool, typer.Option("--timing/--no-timing", help="Measure memory bandwidth.")] = True,
    json_: options.Json = False,
) -> None:
    """Look for problems on this machine. Checks CPU, memory, caches, terminal and models, and says what to do.

    \b
    edgellm doctor
    edgellm doctor --json
    """
    from edgellm.backends.base import Finding
    from edgellm.bench.doctor import examine

    with ProgressLine("looking around"):
        findings = examine(timing=timing)
    findings.append(Finding("terminal", *_terminal()))
    if json_:
        import json

        print(json.dumps([{"what": one.what, "value": one.value, "advice": one.advice or None} for one in findings], indent=2))
        return
    from pathlib import Path

    from edgellm.cli.terminal.filter import clean
    from edgellm.cli.terminal.table import wrapped

    home = f"{Path.home()}{os.sep}"
    for one in findings:
        print(wrapped(f"{'!' if one.advice else ' '} {one.what:<14}{clean(one.value).replace(home, f'~{os.sep}')}", 16))
        if one.advice:
            print(wrapped(f"    {clean(one.advice)}", 4))
    wrong = sum(1 for one in findings if one.advice)
    print(f"{wrong} thing{'s' if wrong > 1 else ''} to look at" if wrong else "all is well")


def _terminal() -> tuple[str, str]:
    encoding = (sys.stdout.encoding or "unknown").lower()
    kind = os.environ.get("TERM", "none") if sys.stdout.isatty() else "a pipe or file"
    advice = "" if encoding.replace("-", "").startswith("utf8") else "set the locale or PYTHONUTF8=1 to see all letters"
    return f"{kind}, {encoding}", advice
