"""`edgellm import`: give a model file of your own a name."""
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.output import say


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A .gguf file, of a split model any part.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", show_default=False, help=(
        "What to call it: lower case letters, digits, dots and dashes. Default: the file's name."
    ))] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the bytes instead of linking to them.")] = False,
    json_: options.Json = False,
) -> None:
    """Give a model file a name. It can then be used from any folder.

    The file is checked, then linked into edgellm's own folder: that costs no space. --copy is for files that will go
    away, such as those on a stick. edgellm rm NAME takes the name back.

    \b
    edgellm import ~/Downloads/my-model.Q4_K_M.gguf
    edgellm import /media/stick/model.gguf travel --copy
    """
    from edgellm.catalogue.importing import import_model
    from edgellm.cli.fetching import FetchProgress

    with FetchProgress(quiet=json_ or not copy) as progress:
        called, path = import_model(file, name, copy=copy, progress=progress)
    if json_:
        import json

        print(json.dumps({"name": called, "path": str(path)}))
    else:
        say(f"{file.name} is now called {called}: edgellm chat {called}")
        print(path)
