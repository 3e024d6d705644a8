"""`edgellm list`: the models on this machine, fetched by any program."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgellm.cli import options
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.table import line_width
from edgellm.errors import EdgeError

if TYPE_CHECKING:
    from edgellm.catalogue.stores import Found, StoredModel

NARROWEST = 22  # columns of type and size, which stay on the line


def list_(json_: options.Json = False) -> None:
    """List the models on this machine.

    Models are used in place: from the Hugging Face cache (shared with llama.cpp), the folders of Ollama, LM Studio,
    llama.cpp, GPT4All and Jan, edgellm's own folder, and those in your models.toml. Each file is listed once, and once
    more for every name given with edgellm import. "images" marks models that a projector lies beside.

    \b
    edgellm list
    edgellm list --json
    """
    from edgellm.bench.fit import rough_bytes, verdict
    from edgellm.catalogue.machine import memory
    from edgellm.catalogue.stores import aliases, bundled, scan
    from edgellm.cli.terminal.format_stats import size
    from edgellm.cli.terminal.table import table

    models, free = scan(), memory()
    if json_:
        import json

        print(
            json.dumps(
                [
                    {
                        "name": model.found.name,
                        "type": _type(model),
                        "bytes": model.found.size,
                        "sees": _sees(model),
                        "store": model.store,
                        "also": list(model.also),
                        "same_as": model.same_as or None,
                        "path": str(model.found.path),
                        "fits": verdict(rough_bytes(model.found.size), free),
                    }
                    for model in models
                ],
                indent=2,
            )
        )
        return
    stems = Counter(alias for model in models for alias in aliases(model.found))
    rows = []
    for model in models:
        found, fits = model.found, verdict(rough_bytes(model.found.size), free)
        seen = "images" if _sees(model) else ""
        rows.append((_name(found, stems), _type(model) or "?", size(found.size), seen, _where(model), fits))
    if rows:
        head = ("name", "type", "size", "sees", "where", "fits")
        shown = [column for column in range(len(head)) if head[column] != "sees" or any(row[column] for row in rows)]
        print(
            table(
                [head[column] for column in shown],
                [[row[column] for column in shown] for row in rows],
                right=(2,),
                optional=(len(shown) - 2, len(shown) - 1),
            )
        )
    if all(model.store == bundled.NAME for model in models):
        say("no model was fetched yet: edgellm fit lists what fits here, edgellm pull NAME fetches one")


def _name(model: Found, stems: Mapping[str, int]) -> str:
    """The name to type: of a file that only its path names the file's own name, where no other has it, or the path, cut to fit."""
    if not os.path.isabs(model.name):
        return model.name
    if stems[model.path.stem.lower()] == 1:
        return model.path.stem
    home = os.path.expanduser("~")
    path = f"~{model.name.removeprefix(home)}" if model.name.startswith(home + os.sep) else model.name
    room = (line_width() or len(path)) - NARROWEST
    return path if len(path) <= room else f"{path[: room // 3]}…{path[len(path) - (room - room // 3 - 1) :]}"


def _where(model: StoredModel) -> str:
    if model.same_as:
        return f"{model.store}, the file of {model.same_as}"
    return ", ".join((model.store, *model.also))


def _sees(model: StoredModel) -> bool:
    """True if its projector for images is there."""
    from edgellm.catalogue.projectors import projectors_beside

    if next(projectors_beside(model.found.path), None) is None:
        return False
    from edgellm.loading.projector import own_projector  # opens both files

    return own_projector(model.found.path) is not None


def _type(model: StoredModel) -> str:
    """The type that names tell, else the one that the header states; "" where it cannot be read."""
    if model.found.type:
        return model.found.type
    from edgellm.formats.gguf import open_gguf
    from edgellm.formats.gguf_file_type import file_type

    try:
        with open_gguf(model.found.path) as gguf:
            return file_type(gguf)
    except EdgeError:
        return ""
