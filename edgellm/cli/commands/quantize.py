"""`edgellm quantize`: a smaller file of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgellm.cli import options
from edgellm.cli.commands.perplexity import read_text
from edgellm.cli.completion import type_names
from edgellm.cli.terminal.format_stats import size
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.progress import ProgressLine
from edgellm.errors import OptionError
from edgellm.options import loading

if TYPE_CHECKING:
    from edgellm.tools.quantize import Plan, Quantized, QuantizeOptions


@options.takes(loading.THREADS)
def quantize(
    model: options.Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    type_: Annotated[
        str | None,
        typer.Argument(
            metavar="[TYPE]",
            autocompletion=type_names,
            help="Q4_K_M (the usual choice), Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q4_K_S, Q4_0, IQ4_XS, IQ4_NL, Q3_K_M, "
            "Q2_K, F16, BF16 and others.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="BPW",
            help="Instead of TYPE: a target size in bits per weight; tensor types are chosen by measured error. Needs --calibrate.",
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            "--calibrate", metavar="TEXT", help="Calibration text for --target, in UTF-8, similar to what the model will read."
        ),
    ] = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor-type",
            metavar="PATTERN=TYPE",
            help="The type of tensors whose name contains PATTERN (a regular expression). May be repeated; the first match wins.",
        ),
    ] = None,
    output_type: Annotated[
        str | None, typer.Option("--output-type", "--output-tensor-type", metavar="TYPE", help="The type of the output matrix.")
    ] = None,
    token_embedding_type: Annotated[
        str | None, typer.Option("--token-embedding-type", metavar="TYPE", help="The type of the token embeddings.")
    ] = None,
    imatrix: Annotated[
        Path | None,
        typer.Option(
            "--imatrix",
            metavar="FILE",
            help="An importance matrix (from edgellm imatrix or llama-imatrix), to round important columns more precisely.",
        ),
    ] = None,
    pure: Annotated[bool, typer.Option("--pure", help="Use one type for all matrices instead of a mix.")] = False,
    allow_requantize: Annotated[
        bool,
        typer.Option(
            "--allow-requantize", help="Accept a file that is already quantised. Quality is worse than from the original."
        ),
    ] = False,
    split: Annotated[
        str | None, typer.Option("--split-max-size", metavar="SIZE", help="Split into files of at most SIZE, such as 2G or 500M.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, but write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
    chosen: options.Chosen = options.NONE,
    json_: options.Json = False,
) -> None:
    """Quantise a model to a smaller file.

    MODEL is an F16, BF16 or F32 file. Each tensor gets the same type and values as with llama.cpp's mix of that name.
    OUT appears when it is complete; an interrupted run leaves OUT.part.

    \b
    edgellm quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M
    edgellm quantize model-F16.gguf small.gguf Q3_K_M --imatrix imatrix.gguf --tensor-type ffn_down=Q5_K
    edgellm quantize model-F16.gguf best.gguf --target 4.5 --calibrate text.txt
    """
    from edgellm.catalogue import resolve
    from edgellm.cli.bus_error import say_why
    from edgellm.tools.quantize import QuantizeOptions, plan
    from edgellm.tools.quantize import quantize as make

    _check_target(type_, target, calibrate, mix_options=bool(tensor_type or output_type or token_embedding_type or pure))
    path = resolve(model)
    asked = QuantizeOptions(
        type=type_ or "",
        target=target,
        text=read_text(calibrate) if calibrate else "",
        tensor_types=tuple(tensor_type or ()),
        output_type=output_type,
        token_embedding_type=token_embedding_type,
        imatrix=None if imatrix is None else str(imatrix),
        pure=pure,
        allow_requantize=allow_requantize,
        force=force,
        threads=chosen.values.get("threads"),
        split_bytes=_bytes(split),
    )
    if dry_run:
        _say_plan(plan(path, asked), asked, json_=json_)
        return
    say_why(path)
    with ProgressLine("quantising") as progress:
        made = make(path, out, asked, progress=progress)
    _say_result(made, json_=json_)


def _check_target(type_: str | None, target: float | None, calibrate: Path | None, *, mix_options: bool) -> None:
    """Raises OptionError where it is not said what to make, or said twice."""
    if (type_ is None) == (target is None):
        raise OptionError("give a TYPE, such as Q4_K_M, or --target with bits per weight" + (", not both" if type_ else ""))
    if target is not None and not 0 < target <= 16:
        raise OptionError(f"--target {target:g}: give bits per weight, from 2 to 16")
    if target is not None and calibrate is None:
        raise OptionError(f"--target {target:g}: give --calibrate TEXT as well, on which errors are measured")
    if target is None and calibrate is not None:
        raise OptionError(f"--calibrate {calibrate}: is for --target")
    if target is not None and mix_options:
        raise OptionError(
            f"--target {target:g}: chooses all types; leave out --tensor-type, --output-type, --token-embedding-type and --pure"
        )


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    number, factor = text[:-1], {"M": 10**6, "G": 10**9}.get(text[-1:].upper())
    if factor is None or not (number.isascii() and number.isdigit()) or not int(number):
        raise OptionError(f"--split-max-size {text}: give a whole number with M or G, such as 2G")
    return int(number) * factor


def _say_plan(planned: Plan, chosen: QuantizeOptions, *, json_: bool) -> None:
    if json_:
        import json

        types = {name: kind.name for name, kind in planned.types.items()}
        print(json.dumps({"bytes": planned.file_bytes, "bits_per_weight": planned.bits_per_weight, "types": types}))
        return
    from edgellm.cli.terminal.filter import clean

    for name, kind in planned.types.items():
        print(f"{planned.tensors[name].type.name:<8} {kind.name:<8} {clean(name)}")
    say(f"{planned.mix.name}: {size(planned.file_bytes)}, {planned.bits_per_weight:.2f} bits per weight")


def _say_result(made: Quantized, *, json_: bool) -> None:
    if json_:
        import json

        print(
            json.dumps(
                {
                    "paths": made.paths,
                    "bytes": made.nbytes,
                    "source_bytes": made.source_bytes,
                    "seconds": made.seconds,
                    "bits_per_weight": made.plan.bits_per_weight,
                    "tensors": made.plan.counts(),
                }
            )
        )
        return
    counts = ", ".join(f"{count} {name}" for name, count in made.plan.counts().items())
    say(
        f"{size(made.source_bytes)} became {size(made.nbytes)}, {made.plan.bits_per_weight:.2f} bits per weight, in "
        f"{made.seconds:.1f} s: {counts}"
    )
    for path in made.paths:
        print(path)
