"""`edgellm verify`: is a model file sound?"""

from __future__ import annotations

import typer

from edgellm.cli import options


def verify(model: options.Model, json_: options.Json = False) -> None:
    """Check a model file. Checks hash, types, values, tensors, tokenizer and chat template.

    Every byte is read, and each check is reported on one line: ok, warning, error, or skipped if it does not apply. The exit
    code is 3 if there is an error, else 0.
    """
    import json

    from edgellm.catalogue import resolve
    from edgellm.cli.bus_error import say_why
    from edgellm.cli.terminal.filter import clean
    from edgellm.cli.terminal.progress import ProgressLine
    from edgellm.cli.terminal.table import wrapped
    from edgellm.errors import EdgeError

    path = resolve(model)
    from edgellm.tools.verify import verify as findings_of

    say_why(path)
    findings = []
    with ProgressLine(f"verifying {model}") as progress:
        for finding in findings_of(path, name=model, progress=progress):
            findings.append(finding)
    errors = sum(one.status == "error" for one in findings)
    if json_:
        rows = [{"check": one.check, "status": one.status, "text": one.text} for one in findings]
        print(json.dumps({"file": str(path), "errors": errors, "findings": rows}, indent=2))
    else:
        for one in findings:
            print(wrapped(f"{one.status:<8} {one.check:<10} {clean(one.text)}", 20))
    if errors:
        raise typer.Exit(EdgeError.exit_code)
