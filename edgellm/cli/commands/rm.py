"""`edgellm rm`: take a model off this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.terminal.output import say
from edgellm.errors import OptionError


def rm(
    model: options.Model,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also remove files that edgellm did not put there.")] = False,
    json_: options.Json = False,
) -> None:
    """Remove a model's files, after asking.

    Only files that edgellm downloaded or imported are removed, unless --force is given: other programs may need the
    rest. Remove Ollama's models with Ollama.

    \b
    edgellm rm qwen3-0.6b
    edgellm rm hf:ggml-org/SmolLM3-3B-GGUF:Q4_K_M --yes
    """
    from edgellm.catalogue.removing import find_removable, remove
    from edgellm.cli.terminal.format_stats import size

    found = find_removable(model, force=force)
    if not yes:
        if not sys.stdin.isatty():
            raise OptionError(f"rm {model}: can't ask for confirmation, because stdin isn't a terminal; give --yes to remove it")
        question = f"remove {found.paths[0]} ({size(found.size)}{f', {len(found.paths)} files' if len(found.paths) > 1 else ''})?"
        if not typer.confirm(question, err=True):
            say("nothing was removed")
            raise typer.Exit(1)
    freed = remove(found)
    if json_:
        import json

        print(json.dumps({"name": model, "removed": [str(path) for path in found.paths], "freed": freed}))
    else:
        say(f"removed {model}; " + (f"{size(freed)} are free again" if freed else "no space was freed: the file has other names"))
