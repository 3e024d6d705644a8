"""`edgellm tokenize`: the tokens of a text, as the model sees it."""

from __future__ import annotations

from typing import Annotated

import typer

from edgellm.cli import options
from edgellm.errors import OptionError


def tokenize(
    model: options.Model,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text. Default: standard input.")] = None,
    special: Annotated[bool, typer.Option("--special", help="Parse names of control tokens as control tokens.")] = False,
    no_bos: Annotated[bool, typer.Option("--no-bos", help="Do not add BOS and EOS.")] = False,
    json_: options.Json = False,
) -> None:
    """Print the tokens of a text.

    One line per token, with its id and its piece. The weights are not read.
    """
    import json

    import edgellm
    from edgellm.catalogue import resolve
    from edgellm.cli.terminal.piped import PipedText

    if text is None:
        piped = PipedText()
        if not piped.connected:
            raise OptionError('TEXT is missing: edgellm tokenize MODEL "some text", or pipe text into it')
        text = piped.text(wait=True) or ""
    tokenizer = edgellm.load_tokenizer(resolve(model))
    ids = [int(i) for i in tokenizer.encode(text, add_special=not no_bos, parse_special=special)]
    pieces = [tokenizer.piece(i) for i in ids]
    if json_:
        print(json.dumps({"ids": ids, "pieces": [_json_piece(piece) for piece in pieces]}))
        return
    for token, piece in zip(ids, pieces, strict=True):
        print(f"{token:>7}  {_shown(piece)}")


def _json_piece(piece: bytes) -> str | list[int]:
    """A piece as text, or as its byte values where it is a part of a character only."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _shown(piece: bytes) -> str:
    """A piece in quotes, with everything escaped that is not printable."""
    try:
        return repr(piece.decode())
    except UnicodeDecodeError:
        return repr(piece)
