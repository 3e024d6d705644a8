"""`edgellm bench`: prompt and generation speed of a model on this machine."""
from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.terminal import clean
from edgellm.errors import OptionError

SMALLEST_CONTEXT = 64        # for tests of a few tokens: room for the sinks


def bench(
    model: options.Model,
    p: Annotated[str, typer.Option("-p", "--n-prompt", metavar="N,...", help="Prompt lengths; 0 for none.")] = "512",
    n: Annotated[str, typer.Option("-n", "--n-gen", metavar="N,...", help="Tokens to generate; 0 for none.")] = "128",
    d: Annotated[str, typer.Option("-d", "--n-depth", metavar="N,...", help="Tokens in the context before a test.")] = "0",
    r: Annotated[int, typer.Option("-r", "--repetitions", metavar="N", help="Repetitions of each test.")] = 5,
    t: Annotated[str | None, typer.Option(
        "-t", "--threads", metavar="N,...", show_default=False, help="Compute threads.",
    )] = None,
    backend: options.Backend = None,
    kv_type: options.KvType = None,
    force: options.Force = False,
    json_: options.Json = False,
) -> None:
    """Measure tokens per second.

    As in llama-bench: ppN reads N random tokens, tgN writes N tokens one by one, in a context that holds as
    many tokens as -d says and has room for the longest test. Each test runs once before it is measured.
    Printed are mean and standard deviation.
    """
    from edgellm.cli.measuring import rows
    from edgellm.cli.opening import open_model
    from edgellm.engine.speed import remember

    prompts, lengths, depths = _numbers("-p", p), _numbers("-n", n), _numbers("-d", d)
    threads: list[int] | list[None] = [None] if t is None else _numbers("-t", t)
    if r < 1:
        raise OptionError(f"-r {r}: give at least one repetition")
    if not any(prompts + lengths):
        raise OptionError("-p and -n are both 0: there is nothing to measure")
    reports = []
    context = max(SMALLEST_CONTEXT, max(*prompts, *lengths) + max(depths))
    for count in threads:
        load = options.given(threads=count, kv_type=kv_type, backend=backend, context=context, force=force or None)
        with open_model(model, load) as opened:
            for row in rows(opened, prompts, lengths, depths, r):
                reports.append(row.report(opened))
                if row.kind == "tg" and count is None and not row.depth and opened.info.backend == "cpu":
                    remember(opened.info.file_bytes, row.mean)
                if not json_:
                    _print_row(reports[-1], head=len(reports) == 1)
    if json_:
        import json

        print(json.dumps(reports, indent=2))


def _numbers(option: str, text: str) -> list[int]:
    """Comma-separated numbers of an option."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise OptionError(f"{option} {text}: give whole numbers, with commas between several")
    return numbers


def _print_row(report: dict[str, Any], *, head: bool) -> None:       # Any: as in Row.report
    """A line of a Markdown table, after its head for the first."""
    name = clean(Path(report["model_filename"]).name)
    if head:
        print(f"| {'model':<{len(name)}} | backend | threads | test           |           tokens/s |")
        print(f"| {'-' * len(name)} | ------- | ------: | -------------- | -----------------: |")
    test = f"pp{report['n_prompt']}" if report["n_prompt"] else f"tg{report['n_gen']}"
    if report["n_depth"]:
        test += f" @ d{report['n_depth']}"
    speed = f"{report['avg_ts']:.2f} ± {report['stddev_ts']:.2f}"
    print(f"| {name} | {report['backend']:<7} | {report['n_threads']:>7} | {test:<14} | {speed:>18} |", flush=True)
