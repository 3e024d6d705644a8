"""`edgellm path`: where a model's file is."""

from __future__ import annotations

import sys

from edgellm.cli import options
from edgellm.cli.terminal.filter import Filter


def path(model: options.Model, json_: options.Json = False) -> None:
    """Print where a model's file is.

    \b
    edgellm path qwen3-0.6b
    llama-cli -m "$(edgellm path ollama:llama3.2)"
    """
    from edgellm.catalogue import resolve

    found = resolve(model).absolute()
    if json_:
        import json

        print(json.dumps({"name": model, "path": str(found)}))
    else:
        print(Filter()(str(found)) if sys.stdout.isatty() else found)
