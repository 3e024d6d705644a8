"""`edgellm bench`: prompt and generation speed of a model on this machine."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.terminal import clean
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.cli.measuring import Read, Test
    from edgellm.engine.model import Model

SMALLEST_CONTEXT = 64        # for tests of a few tokens: room for the sinks
PAIR = 2


def bench(
    model: options.Model,
    p: Annotated[str, typer.Option("-p", "--n-prompt", metavar="N,...", help="Prompt lengths; 0 for none.")] = "512",
    n: Annotated[str, typer.Option("-n", "--n-gen", metavar="N,...", help="Tokens to generate; 0 for none.")] = "128",
    pg: Annotated[list[str] | None, typer.Option(
        "-pg", metavar="P,N", show_default=False, help="A prompt of P tokens and then N tokens, as one test.",
    )] = None,
    d: Annotated[str, typer.Option("-d", "--n-depth", metavar="N,...", help="Tokens in the context before a test.")] = "0",
    r: Annotated[int, typer.Option("-r", "--repetitions", metavar="N", help="Repetitions of each test.")] = 5,
    t: Annotated[str | None, typer.Option(
        "-t", "--threads", metavar="N,...", show_default=False, help="Compute threads.",
    )] = None,
    threads_batch: options.ThreadsBatch = None,
    backend: options.Backend = None,
    kv_type: options.KvType = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time of a step goes.")] = False,
    force: options.Force = False,
    json_: options.Json = False,
) -> None:
    """Measure tokens per second.

    As in llama-bench: ppN reads N random tokens, tgN writes N tokens one by one, -pg does both, in a context that
    holds as many tokens as -d says and has room for the longest test. Each test runs once before it is measured.
    Printed are mean and standard deviation. For tg also: the bytes that it reads, as GB/s and as a part of what a
    plain read of memory gives with as many threads, measured between the repetitions.
    """
    from edgellm.cli.measuring import rows
    from edgellm.cli.opening import open_model
    from edgellm.engine.measure import machine
    from edgellm.engine.speed import remember

    tests = _tests(p, n, pg or [], d)
    threads: list[int] | list[None] = [None] if t is None else _numbers("-t", t)
    if 0 in threads:
        raise OptionError(f"-t {t}: give 1 or more")
    if r < 1:
        raise OptionError(f"-r {r}: give at least one repetition")
    reports = []
    context = max(SMALLEST_CONTEXT, max(test.tokens for test in tests) + max(test.depth for test in tests))
    for count in threads:
        load = options.given(threads=count, threads_batch=threads_batch, backend=backend, kv_type=kv_type, context=context,
                             force=force or None)
        with open_model(model, load) as opened, _reading(opened, any(test.decodes for test in tests)) as read:
            facts = machine(opened)
            for row in rows(opened, tests, r, read, profile=profile):
                reports.append(row.report(opened, facts))
                if row.test.decodes and count is None and not row.test.depth and opened.info.backend == "cpu":
                    remember(opened.info.file_bytes, row.mean)
                if not json_:
                    _print_row(reports[-1], row.test.name, head=len(reports) == 1)
    if json_:
        import json

        print(json.dumps(reports, indent=2))
    elif profile:
        for report in reports:
            _print_profile(report)


@contextlib.contextmanager
def _reading(model: Model, wanted: bool) -> Iterator[Read | None]:
    """What measures a streaming read with the model's threads; None where that says nothing, or is not asked for."""
    if not wanted or model.info.backend != "cpu":
        yield None
        return
    from edgellm.backends.cpu.bandwidth import ReadProbe

    probe = ReadProbe(model.info.threads)
    try:
        yield probe.measure
    finally:
        probe.close()


def _tests(p: str, n: str, pairs: list[str], d: str) -> list[Test]:
    """At each depth: prompts, then generations, then both together; a length of 0 is no test."""
    from edgellm.cli.measuring import Test

    prompts, lengths, depths = _numbers("-p", p), _numbers("-n", n), _numbers("-d", d)
    both = [_numbers("-pg", pair) for pair in pairs]
    if wrong := [pair for pair, numbers in zip(pairs, both, strict=True) if len(numbers) != PAIR or not all(numbers)]:
        raise OptionError(f"-pg {wrong[0]}: give two numbers, as in -pg 512,128")
    sizes = [*((size, 0) for size in prompts if size), *((0, size) for size in lengths if size), *map(tuple, both)]
    if not sizes:
        raise OptionError("-p and -n are both 0: there is nothing to measure")
    return [Test(prompt, generated, depth) for depth in depths for prompt, generated in sizes]


def _numbers(option: str, text: str) -> list[int]:
    """Comma-separated numbers of an option."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise OptionError(f"{option} {text}: give whole numbers, with commas between several")
    return numbers


def _print_row(report: dict[str, Any], test: str, *, head: bool) -> None:      # Any: as in Row.report
    """A line of a Markdown table, after the machine and its head for the first."""
    name = clean(Path(report["model_filename"]).name)
    if head:
        print(f"{report['cpu']}, {report['cores']} core{'s' if report['cores'] > 1 else ''}, {report['isa'] or 'no'} kernels\n")
        print(f"| {'model':<{len(name)}} | backend | threads | test           |           tokens/s |  GB/s | of a read |")
        print(f"| {'-' * len(name)} | ------- | ------: | -------------- | -----------------: | ----: | --------: |")
    speed = f"{report['avg_ts']:.2f} ± {report['stddev_ts']:.2f}"
    rate = "" if report["bytes_per_second"] is None else f"{report['bytes_per_second'] / 1e9:.2f}"
    part = "" if report["of_read"] is None else f"{report['of_read']:.0%}"
    print(f"| {name} | {report['backend']:<7} | {report['n_threads']:>7} | {test:<14} | {speed:>18} | {rate:>5} | {part:>9} |",
          flush=True)


def _print_profile(report: dict[str, Any]) -> None:
    """Where a step's time went, by kind of kernel."""
    size, total = report["profile_tokens"], sum(kind["ns"] for kind in report["profile"])
    before = report["n_depth"] + (report["n_prompt"] or 1) - size
    print(f"\nA step of {size} token{'s' if size > 1 else ''} after {before} others, {report['n_threads']} threads; "
          f"{report['inside']:.1%} of the test's time was inside steps\n")
    print("| kernel                  | calls |       ms |     % |  GB/s |")
    print("| ----------------------- | ----: | -------: | ----: | ----: |")
    for kind in report["profile"]:
        rate = f"{kind['bytes'] / kind['ns']:.2f}" if kind["bytes"] and kind["ns"] else ""
        part = kind["ns"] / max(total, 1)
        print(f"| {kind['kind']:<23} | {kind['calls']:>5} | {kind['ns'] / 1e6:>8.3f} | {part:>5.1%} | {rate:>5} |")
