"""`edgellm embed`: the vectors of the lines of a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgellm.cli import options
from edgellm.errors import ContextFull, NumericError, OptionError, TextNumber, Unwritable
from edgellm.options import loading

if TYPE_CHECKING:
    from edgellm.api.embed import Vectors


Truncate = Annotated[bool, typer.Option("--truncate", help="Cut lines that exceed the context; without it they are an error.")]


@options.takes(loading.POOLING, loading.THREADS, loading.BACKEND, loading.MMAP, loading.MLOCK)
def embed(
    model: options.Model,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A text in UTF-8, one vector per line. Default: standard input.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.npy", help="Write a NumPy array (lines, values) instead of JSON lines."),
    ] = None,
    no_normalize: Annotated[bool, typer.Option("--no-normalize", help="Skip L2 normalisation.")] = False,
    dimensions: Annotated[
        int | None, typer.Option("--dimensions", metavar="N", help="Keep the first N values of each vector (Matryoshka models).")
    ] = None,
    truncate: Truncate = False,
    context: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--context",
            "--ctx-size",
            metavar="N",
            help="Maximum tokens per line. Default: what the model was trained for, at most 4096.",
        ),
    ] = None,
    chosen: options.Chosen = options.NONE,
    force: Annotated[
        bool, typer.Option("--force", help="Load the model even if it does not fit into free memory, and replace FILE.npy.")
    ] = False,
) -> None:
    """Embed each line of a text.

    MODEL is an embedding model. One line of JSON is printed per line of the text, in order: {"index", "embedding"}. A reranker
    gives its scores.
    """
    from edgellm.catalogue import resolve
    from edgellm.cli.opening import open_model
    from edgellm.cli.terminal.progress import ProgressLine
    from edgellm.formats.whole_file import check_place
    from edgellm.tools.places import check_out

    if output is not None and output.suffix != ".npy":
        raise OptionError(f"--output {output} has no name that ends in .npy; give one, or leave it out for JSON lines.")
    if output is not None:
        check_out(output, [] if file is None else [file], force=force)
    resolve(model)  # a mistyped name shows before text is waited for
    if output is not None:
        check_place(output)
    lines = read_lines(file)
    load = chosen.part("loading") | ({"context": context} if context is not None else {}) | ({"force": True} if force else {})
    with open_model(model, load, embeds=True) as opened, ProgressLine("embedding") as line:
        try:
            vectors = opened.embed(
                lines,
                normalize=not no_normalize,
                dimensions=dimensions,
                truncate=truncate,
                progress=lambda done, of: line("embedding, line", done, of),
            )
        except (ContextFull, NumericError) as error:
            line_number = [f"line {part.index + 1}" if isinstance(part, TextNumber) else part for part in error.args]
            raise type(error)(*line_number) from error
    _write(vectors, output)


def read_lines(file: Path | None) -> list[str]:
    """The lines of a file or of standard input. Raises OptionError."""
    from edgellm.cli.commands.perplexity import read_text
    from edgellm.cli.terminal.piped import PipedText

    if file is not None:
        text = read_text(file)
    else:
        piped = PipedText()
        if not piped.connected:
            raise OptionError("FILE is missing: name a file of lines, or pipe lines into this command")
        text = piped.text(wait=True) or ""
    lines = [each.removesuffix("\r") for each in text.removesuffix("\n").split("\n")] if text else []
    empty = next((index for index, each in enumerate(lines) if not each.strip()), None)
    if empty is not None:
        raise OptionError(f"line {empty + 1} is empty; take it out, so that lines and vectors keep their numbers.")
    return lines


def _write(vectors: Vectors, output: Path | None) -> None:
    import io
    import json

    import numpy as np

    from edgellm.formats.whole_file import write_whole

    if output is None:
        for index, vector in enumerate(vectors):  # str: the shortest text that is the same float32
            print(json.dumps({"index": index, "embedding": [float(str(value)) for value in vector]}))
        return
    data = io.BytesIO()
    np.save(data, vectors)
    try:
        write_whole(output, data.getbuffer())
    except OSError as error:
        raise Unwritable(f"cannot be written: {error.strerror}; make room or write elsewhere", file=output) from error
    print(f"{output}: {vectors.shape[0]} vectors of {vectors.shape[1]} values", file=sys.stderr)
