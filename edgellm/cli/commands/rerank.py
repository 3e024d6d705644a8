"""`edgellm rerank`: the lines of a text in the order in which they answer a query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.cli.commands.embed import Truncate, read_lines
from edgellm.options import loading


@options.takes(loading.CONTEXT, loading.THREADS, loading.BACKEND, *options.WEIGHTS)
def rerank(
    model: options.Model,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What is looked for.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A text in UTF-8, one document per line. Default: standard input.")
    ] = None,
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Print the best N documents only.")] = None,
    truncate: Truncate = False,
    chosen: options.Chosen = options.NONE,
) -> None:
    """Sort lines by what answers a query.

    MODEL is a reranker, such as bge-reranker-v2-m3. One line of JSON is printed per line of the text: {"index", "score", "text"}.
    """
    from edgellm.catalogue import resolve
    from edgellm.cli.opening import open_model

    resolve(model)  # a mistyped name shows before text is waited for
    lines = read_lines(file)
    with open_model(model, chosen.part("loading"), embeds=True) as opened:
        scores = opened.rerank(query, lines, truncate=truncate)
    for index in scores.argsort(kind="stable")[::-1][:top].tolist():
        print(json.dumps({"index": index, "score": float(str(scores[index])), "text": lines[index]}, ensure_ascii=False))
