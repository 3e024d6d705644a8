"""`edgellm perplexity`: how well a model predicts a text, and how far its predictions are from another model's."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.terminal.piped import file_bytes
from edgellm.errors import OptionError
from edgellm.options.tools import CHUNKS, STRIDE

PLAIN_KV = ("f16", "f32")

if TYPE_CHECKING:
    from edgellm.tools.kl import Divergence
    from edgellm.tools.perplexity import Perplexity, Report


@options.takes(STRIDE, CHUNKS, *options.COMPUTE, *options.WEIGHTS)
def perplexity(
    model: options.Model,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text in UTF-8.")],
    context: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--context",
            "--ctx-size",
            metavar="N",
            help="Window length in tokens. Default: 512, or what the model was trained for if that is less.",
        ),
    ] = None,
    kl_base: Annotated[
        str | None, typer.Option("--kl-base", metavar="MODEL", help="Base model for KL divergence, such as the unquantised one.")
    ] = None,
    chosen: options.Chosen = options.NONE,
    json_: options.Json = False,
) -> None:
    """Measure the perplexity of a text. The definition is llama-perplexity's.

    The text is split into windows of --context tokens; each begins with BOS if the vocabulary uses one, and the second half of each
    is scored. With --kl-base also: the Kullback-Leibler divergence from that model's predictions, how often both have the same top
    token, and how the probability of the correct token changes. A quantised --kv-type applies to MODEL only; the base model's KV
    cache is then f16.
    """
    import json

    from edgellm.catalogue import resolve
    from edgellm.cli.opening import open_model
    from edgellm.cli.terminal.progress import ProgressLine

    text = read_text(file)
    resolve(model)
    if kl_base is not None:
        resolve(kl_base)  # a mistyped name shows before anything is loaded
    from edgellm.tools.perplexity import DEFAULT_CONTEXT, cut, measure, trained_context, window_size

    length = context if context is not None else min(DEFAULT_CONTEXT, trained_context(resolve(model)))
    stride, chunks = chosen.values.get("stride"), chosen.values.get("chunks")
    size = window_size(length, stride)
    load = chosen.part("loading") | {"context": size}
    kv_type = load.get("kv_type")
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_model(model, load))
        plain = load | {"kv_type": kv_type if kv_type in PLAIN_KV else PLAIN_KV[0]}
        base = None if kl_base is None else stack.enter_context(open_model(kl_base, plain))
        ids = opened.tokenizer.encode(text)
        windows = cut(len(ids), length, stride, chunks)
        line = stack.enter_context(ProgressLine("measuring perplexity"))

        def show(so_far: Perplexity, done: int, of: int) -> None:
            if sys.stderr.isatty():  # a log has one line of progress, and no use for the first value in it
                line(f"perplexity {so_far.value:.4f} ± {so_far.error:.4f} after window", done, of)

        report = measure(opened, ids, windows, base=base, progress=show)
    if json_:
        facts = {"model": str(opened.path), "file": str(file), "context": length, "stride": stride}
        print(json.dumps(facts | _facts(report) | ({"kl_base": str(base.path)} if base is not None else {}), indent=2))
    else:
        print(_page(report))


def read_text(file: Path) -> str:
    """A text in UTF-8, as `PipedText` gives it: line ends as they are, no byte order mark. Raises OptionError."""
    try:
        return file_bytes(file).decode().removeprefix("\ufeff")
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}; give a text file.") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is not UTF-8 (byte {error.start}); give a text file.") from error
    except ValueError as error:
        raise OptionError(f"{file} cannot be read: {error}; give a text file.") from error


def _facts(report: Report) -> dict[str, Any]:  # Any: numbers and tables, as JSON has them
    found = report.perplexity
    facts: dict[str, Any] = {
        "perplexity": found.value,
        "perplexity_error": found.error,
        "tokens": found.tokens,
        "windows": found.windows,
        "window": report.windows.size,
    }
    if report.divergence is not None:
        kl = report.divergence
        facts |= {
            "base_perplexity": kl.base_perplexity,
            "base_perplexity_error": kl.base_perplexity_error,
            "kl": {
                "mean": kl.mean,
                "error": kl.error,
                "median": kl.median,
                "min": kl.minimum,
                "max": kl.maximum,
                "percentiles": {f"{percent:g}": value for percent, value in kl.percentiles.items()},
            },
            "same_top": kl.same_top,
            "same_top_error": kl.same_top_error,
            "delta_p": {
                "mean": kl.delta_p_mean,
                "rms": kl.delta_p_rms,
                "percentiles": {f"{percent:g}": value for percent, value in kl.delta_p_percentiles.items()},
            },
        }
    return facts


def _page(report: Report) -> str:
    found, windows = report.perplexity, report.windows
    lines = [("perplexity", f"{found.value:.4f} ± {found.error:.4f}")]
    if report.divergence is not None:
        lines += _comparison(report.divergence)
    lines.append(("scored", f"{found.tokens} tokens in {found.windows} windows of {windows.size}"))
    return "\n".join(f"{name:<20} {value}" for name, value in lines)


def _comparison(kl: Divergence) -> list[tuple[str, str]]:
    changes = kl.delta_p_percentiles
    return [
        ("base's perplexity", f"{kl.base_perplexity:.4f} ± {kl.base_perplexity_error:.4f}"),
        ("KL divergence", f"{kl.mean:.6f} ± {kl.error:.6f} (mean)"),
        *((f"  {percent:g}%", f"{kl.percentiles[percent]:.6f}") for percent in (99.9, 99.0, 95.0, 90.0)),
        ("  median", f"{kl.median:.6f}"),
        *((f"  {percent:g}%", f"{kl.percentiles[percent]:.6f}") for percent in (10.0, 5.0, 1.0)),
        ("  maximum", f"{kl.maximum:.6f}"),
        ("same top token", f"{kl.same_top:.3%} ± {kl.same_top_error:.3%}"),
        ("change of p", f"RMS {kl.delta_p_rms:.3%}, mean {kl.delta_p_mean:+.3%}"),
        *((f"  {percent:g}%", f"{changes[percent]:+.3%}") for percent in (99.0, 95.0, 50.0, 5.0, 1.0)),
    ]
