"""`edgellm convert`: a checkpoint of the Hugging Face hub becomes a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.completion import plain_type_names
from edgellm.cli.terminal.output import say


def convert(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A Hugging Face checkpoint folder, with config.json, .safetensors files and a tokenizer."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .gguf file to write.")],
    type_: Annotated[
        str | None,
        typer.Option(
            "--type",
            "--outtype",
            metavar="TYPE",
            autocompletion=plain_type_names,
            help="F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1. Default: the checkpoint's type (auto).",
        ),
    ] = None,
    pre: Annotated[str | None, typer.Option("--pre", metavar="NAME", help="The pre-tokenizer, if it is not recognised.")] = None,
    mmproj: Annotated[
        bool, typer.Option("--mmproj", help="Write the model's image encoder, a projector file (F32, F16, BF16 or Q8_0).")
    ] = False,
    lora: Annotated[bool, typer.Option("--lora", help="DIR is a PEFT adapter; write a GGUF adapter.")] = False,
    base: Annotated[
        Path | None, typer.Option("--base", metavar="DIR", help="The adapter's base model. Default: the one that it names.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
    json_: options.Json = False,
) -> None:
    """Convert a checkpoint to GGUF. The checkpoint is a folder from the Hugging Face hub.

    Tensors get llama.cpp's names and layouts; tokenizer and chat template are included. The file appears when it is complete. For
    K-quants and other small types, convert first, then run edgellm quantize.
    """
    import dataclasses
    import json

    from edgellm.cli.terminal.format_stats import size
    from edgellm.cli.terminal.progress import ProgressLine
    from edgellm.errors import OptionError
    from edgellm.tools.convert import convert as convert_folder
    from edgellm.tools.hf_lora import convert_lora
    from edgellm.tools.hf_projector import convert_projector
    from edgellm.tools.places import check_out

    if mmproj and (lora or pre is not None):
        raise OptionError("--mmproj writes an image encoder alone; leave --lora and --pre out")
    if base is not None and not lora:
        raise OptionError("--base belongs to an adapter: give --lora too")
    check_out(out, [], force=force)
    with ProgressLine(f"converting {folder}") as progress:
        if mmproj:
            done = convert_projector(folder, out, type_name=type_)
        elif lora:
            done = convert_lora(folder, out, base=base, type_name=type_)
        else:
            done = convert_folder(folder, out, type_name=type_, pre=pre, progress=progress)
    if json_:
        print(json.dumps(dataclasses.asdict(done), indent=2))
        return
    for note in done.notes:
        say(f"note: {note}")
    print(f"{done.path}: {done.architecture}, {done.type}, {done.n_tensors} tensors, {size(done.nbytes)}")
