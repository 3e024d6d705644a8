"""`edgellm imatrix`: measures which columns of a model's matrices matter, for `edgellm quantize --imatrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.commands.perplexity import read_text
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.progress import ProgressLine
from edgellm.options.tools import CHUNKS


@options.takes(CHUNKS)
def imatrix(
    model: options.Model,
    text: Annotated[
        Path,
        typer.Argument(
            metavar="TEXT",
            help="Calibration text in UTF-8, similar to what the model will read; a few hundred thousand characters are usual.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .gguf file to write.")],
    context: Annotated[int, typer.Option("-c", "--context", "--ctx-size", metavar="N", help="Window length in tokens.")] = 512,
    chosen: options.Chosen = options.NONE,
    process_output: Annotated[bool, typer.Option("--process-output", help="Include the output matrix.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
) -> None:
    """Measure an importance matrix.

    It is the mean square of each input column of every matrix while the model reads TEXT, in llama-imatrix's file
    format. It is computed in NumPy, so large models take hours.

    \b
    edgellm imatrix model-F16.gguf text.txt imatrix.gguf
    edgellm quantize model-F16.gguf small.gguf Q3_K_M --imatrix imatrix.gguf
    """
    from edgellm.catalogue import resolve
    from edgellm.cli.bus_error import say_why
    from edgellm.formats.whole_file import check_place
    from edgellm.tools.imatrix import measure
    from edgellm.tools.importance import write_importance
    from edgellm.tools.places import check_out, open_source

    words, path = read_text(text), resolve(model)
    parts: list[str | Path] = [path]
    if path.is_file():
        with open_source(path) as gguf:
            parts = list(gguf.paths)
    check_out(out, [*parts, text], force=force)
    check_place(out)
    say_why(path)
    with ProgressLine("measuring importance") as progress:
        measured = measure(
            path, words, context=context, chunks=chosen.values.get("chunks"), with_output=process_output, progress=progress
        )
    write_importance(out, measured.sums, datasets=[str(text)], chunks=measured.windows, chunk_size=measured.window)
    say(f"{len(measured.sums)} matrices, {measured.windows} windows of {measured.window} tokens")
    print(out)
