"""`edgellm import`: give a model file of your own a name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.terminal.output import say


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .gguf file; any part of a split model.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The name: lower-case letters, digits, dots and dashes. Default: the file's name."),
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the file instead of linking to it.")] = False,
    json_: options.Json = False,
) -> None:
    """Give a model file a name. You can then use it from any folder.

    The file is checked, then linked into edgellm's own folder, which takes no space; so is the projector (mmproj-*.gguf) beside
    it. Use --copy for files that will go away, such as those on a USB stick. edgellm rm NAME removes the name.

    \b
    edgellm import ~/Downloads/my-model.Q4_K_M.gguf
    edgellm import /media/stick/model.gguf travel --copy
    """
    from edgellm.catalogue.importing import import_model
    from edgellm.cli.terminal.fetching import FetchProgress
    from edgellm.loading.projector import own_projector

    with FetchProgress(quiet=json_ or not copy) as progress:
        called, path = import_model(file, name, projector=own_projector(file), copy=copy, progress=progress)
    if json_:
        import json

        print(json.dumps({"name": called, "path": str(path)}))
    else:
        say(f"{file.name} is now called {called}: edgellm chat {called}")
        print(path)
