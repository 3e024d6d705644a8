"""`edgellm list`: the models that are on this machine, whoever fetched them."""
from __future__ import annotations

from edgellm.cli import options
from edgellm.cli.output import say


def list_(json_: options.Json = False) -> None:
    """List the models on this machine.

    They are used where they are: in the Hugging Face cache (llama.cpp shares it), in the folders of Ollama, LM Studio,
    llama.cpp, GPT4All and Jan, in edgellm's own, and in those that your models.toml names. Each file is listed once.

    \b
    edgellm list
    edgellm list --json
    """
    from edgellm.catalogue.machine import memory
    from edgellm.catalogue.stores import bundled, scan
    from edgellm.cli.format_stats import size
    from edgellm.cli.table import table
    from edgellm.engine.fit import rough_bytes, verdict

    models, free = scan(), memory()
    if json_:
        import json

        print(json.dumps([
            {"name": model.found.name, "type": model.found.type, "bytes": model.found.size, "store": model.store,
             "also": list(model.also), "path": str(model.found.path), "fits": verdict(rough_bytes(model.found.size), free)}
            for model in models
        ], indent=2))
        return
    rows = [
        (model.found.name, model.found.type or "?", size(model.found.size), ", ".join((model.store, *model.also)),
         verdict(rough_bytes(model.found.size), free))
        for model in models
    ]
    if rows:
        print(table(("name", "type", "size", "where", "fits"), rows, right=(2,)))
    if all(model.store == bundled.NAME for model in models):
        say("no model was fetched yet: edgellm fit lists what fits here, edgellm pull NAME fetches one")
