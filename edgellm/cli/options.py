"""The arguments and options that several commands share, under llama.cpp's names where it has one."""
from __future__ import annotations

from typing import Annotated

import typer

from edgellm.cli.output import say


def understood(context: typer.Context, name: str | None) -> str | None:
    """A model's name in edgellm's spelling; a line on stderr says so where another was typed. Raises ModelNotFound."""
    if name is None or context.resilient_parsing:        # the latter: a shell asks for completions
        return name
    from edgellm.catalogue.names import meant

    known, note = meant(name)
    if note:
        say(note)
    return known


Model = Annotated[str, typer.Argument(
    metavar="MODEL", show_default=False, callback=understood,
    help="A .gguf file, a name from the catalogue (qwen3-0.6b, qwen3-0.6b:Q8_0), or hf:owner/repo[:TYPE|FILE].",
)]
Predict = Annotated[int | None, typer.Option(
    "-n", "--predict", "--n-predict", metavar="N", show_default=False,
    help="Stop after N tokens; -1: only where the model stops. Default: as many as the context holds.",
)]
Temperature = Annotated[float | None, typer.Option(
    "--temp", metavar="X", show_default=False, help="Randomness; 0 always takes the likeliest token.",
)]
TopK = Annotated[int | None, typer.Option(
    "--top-k", metavar="K", show_default=False, help="Sample from the K likeliest.",
)]
TopP = Annotated[float | None, typer.Option(
    "--top-p", metavar="P", show_default=False, help="Sample from the likeliest that together reach probability P.",
)]
MinP = Annotated[float | None, typer.Option(
    "--min-p", metavar="P", show_default=False, help="Leave out what is less likely than P times the likeliest.",
)]
Seed = Annotated[int | None, typer.Option(
    "-s", "--seed", metavar="N", show_default=False, help="Same seed, same answer.",
)]
Context = Annotated[int | None, typer.Option(
    "-c", "--context", "--ctx-size", metavar="N", show_default=False, help="Tokens that the model sees at a time.",
)]
Threads = Annotated[int | None, typer.Option(
    "-t", "--threads", metavar="N", show_default=False, help="Compute threads. Default: one per physical core.",
)]
ThreadsBatch = Annotated[int | None, typer.Option(
    "-tb", "--threads-batch", metavar="N", show_default=False, help="Threads that read prompts. Default: as --threads.",
)]
Backend = Annotated[str | None, typer.Option(
    "--backend", metavar="NAME", show_default=False, help="cpu, mlx, or auto: the GPU of a Mac where the model fits, else the CPU.",
)]
KvType = Annotated[str | None, typer.Option(
    "--kv-type", metavar="TYPE", show_default=False, help="How the context is kept: f16, q8_0 (half of that) or f32.",
)]
Sinks = Annotated[int | None, typer.Option(
    "--sinks", metavar="N", show_default=False, help="First tokens that stay when the context overflows.",
)]
System = Annotated[str | None, typer.Option(
    "--system", "-sys", "--system-prompt", metavar="TEXT", show_default=False, help="The system prompt.",
)]
Force = Annotated[bool, typer.Option("--force", help="Load the model even where it does not fit into the free memory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def given(**options: object) -> dict[str, object]:
    """The options that the user set: the library's defaults hold for the others."""
    return {name: value for name, value in options.items() if value is not None}
