"""`edgellm bench`: prompt and generation speed of a model on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.profile_table import milliseconds, print_profile
from edgellm.cli.terminal.table import line_width, wrapped
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.api.model import Model
    from edgellm.cli.commands.measuring import Read, Test

SMALLEST_CONTEXT = 64  # for tests of a few tokens: room for the sinks
PAIR = 2
REPETITIONS = 5


@options.takes(*options.COMPUTE[1:], *options.WEIGHTS)
def bench(
    model: options.Model,
    p: Annotated[str, typer.Option("-p", "--n-prompt", metavar="N,...", help="Prompt lengths in tokens; 0 for no test.")] = "512",
    n: Annotated[str, typer.Option("-n", "--n-gen", metavar="N,...", help="Tokens to generate; 0 for no test.")] = "128",
    pg: Annotated[
        list[str] | None, typer.Option("-pg", metavar="P,N", help="One test of a prompt of P tokens and N generated tokens.")
    ] = None,
    d: Annotated[str, typer.Option("-d", "--n-depth", metavar="N,...", help="Tokens in the KV cache before each test.")] = "0",
    r: Annotated[
        int | None,
        typer.Option("-r", "--repetitions", metavar="N", show_default="5; 1 with --parallel", help="Repetitions of each test."),
    ] = None,
    parallel: Annotated[
        str | None, typer.Option("--parallel", metavar="N,...", help="Batch this many conversations, as llama-batched-bench does.")
    ] = None,
    t: Annotated[str | None, typer.Option("-t", "--threads", metavar="N,...", help="Compute threads.")] = None,
    chosen: options.Chosen = options.NONE,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Show where a step's time goes: kernel times averaged over the threads, and time spent at barriers."
        ),
    ] = False,
    json_: options.Json = False,
) -> None:
    """Measure tokens per second.

    As in llama-bench: ppN processes a prompt of N random tokens, tgN generates N tokens one by one, and -pg does both,
    after -d tokens already in the KV cache. Each test runs once as a warm-up. The mean and standard deviation are
    printed; for tg also the read bandwidth, in GB/s and as a fraction of a plain memory read with the same number of
    threads, measured between the repetitions.

    With --parallel, as in llama-batched-bench: N conversations are batched, with prompts of -p tokens and -n generated
    tokens each. S_PP and S_TG are total tokens/s over all conversations, from the median repetition.
    """
    from edgellm.bench.measure import machine
    from edgellm.bench.speed import remember
    from edgellm.cli.commands.measuring import rows

    if r is not None and r < 1:
        raise OptionError(f"-r {r}: give at least one repetition")
    load = chosen.part("loading")
    if parallel is not None:
        _refuse({"-d": d != "0", "-pg": bool(pg), "several numbers of -t": "," in (t or "")})
        _several(model, p, n, parallel, r or 1, json_, profile, load | ({} if t is None else {"threads": _numbers("-t", t)[0]}))
        return
    tests = _tests(p, n, pg or [], d)
    threads: list[int] | list[None] = [None] if t is None else _numbers("-t", t)
    if 0 in threads:
        raise OptionError(f"-t {t}: give 1 or more")
    reports = []
    context = max(SMALLEST_CONTEXT, max(test.tokens for test in tests) + max(test.depth for test in tests))
    for count in threads:
        with (
            _opened(model, load | {"context": context} | ({} if count is None else {"threads": count})) as opened,
            _reading(opened, any(test.decodes for test in tests)) as read,
        ):
            facts = machine(opened)
            for row in rows(opened, tests, r or REPETITIONS, read, profile=profile):
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


def _opened(model: str, load: dict[str, Any]) -> Model:
    """A model whose context the tests fill. Raises what loading raises, in the words of this command."""
    from edgellm.cli.opening import open_model

    try:
        return open_model(model, load)
    except OptionError as error:
        if error.option != "context" or "learned" not in error.problem:
            raise
        raise OptionError(
            f"the tests need a context of {load['context']}, which {error.problem}; lower -p, -n, -pg or -d"
        ) from error


def _refuse(given: dict[str, bool]) -> None:
    """Raises OptionError for options that --parallel does not have."""
    for option, wanted in given.items():
        if wanted:
            raise OptionError(f"--parallel has no {option}; leave one of them out")


def _several(
    model: str, p: str, n: str, parallel: str, repetitions: int, as_json: bool, profile: bool, load: dict[str, Any]
) -> None:
    """Several conversations at once."""
    from edgellm.cli.commands.batched import batched

    prompts, lengths, counts = _numbers("-p", p), _numbers("-n", n), _numbers("--parallel", parallel)
    if 0 in counts:
        raise OptionError(f"--parallel {parallel}: give 1 or more")
    if max(prompts) + max(lengths) == 0:
        raise OptionError("-p and -n are both 0: there is nothing to measure")
    context = max(SMALLEST_CONTEXT, max(prompts) + max(lengths))
    batched(model, {**load, "context": context}, prompts, lengths, counts, repetitions, as_json=as_json, profile=profile)


@contextlib.contextmanager
def _reading(model: Model, wanted: bool) -> Iterator[Read | None]:
    """A probe of a streaming read with the model's threads; None where that says nothing, or is not asked for."""
    from edgellm.bench.measure import read_probe

    probe = read_probe(model) if wanted else None
    if probe is None:
        yield None
        return
    try:
        yield probe.measure
    finally:
        probe.close()


def _tests(p: str, n: str, pairs: list[str], d: str) -> list[Test]:
    """At each depth: prompts, then generations, then both together; a length of 0 means no test."""
    from edgellm.cli.commands.measuring import Test

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


@dataclass(frozen=True, slots=True)
class _TableColumn:
    """A column of the printed table, and when it is left out on a narrow terminal: the lowest `rank` first, 0 never."""

    title: str
    width: int
    right: bool
    rank: int
    cell: Callable[[dict[str, Any], str], str]  # Any: as in Row.report


_COLUMNS = (
    _TableColumn("model", 0, False, 2, lambda report, test: _name(report)),
    _TableColumn("backend", 7, False, 1, lambda report, test: str(report["backend"])),
    _TableColumn("threads", 7, True, 4, lambda report, test: str(report["n_threads"])),
    _TableColumn("test", 14, False, 0, lambda report, test: test),
    _TableColumn("tokens/s", 18, True, 0, lambda report, test: f"{report['avg_ts']:.2f} ± {report['stddev_ts']:.2f}"),
    _TableColumn("GB/s", 5, True, 3, lambda report, test: _rate(report["bytes_per_second"])),
    _TableColumn("of a read", 9, True, 5, lambda report, test: "" if report["of_read"] is None else f"{report['of_read']:.0%}"),
)


def _name(report: dict[str, Any]) -> str:
    return clean(Path(report["model_filename"]).name)


def _rate(nbytes: float | None) -> str:
    return "" if nbytes is None else f"{nbytes / 1e9:.2f}"


def _print_row(report: dict[str, Any], test: str, *, head: bool) -> None:
    """A line of a Markdown table, after the machine and its head for the first; on a terminal no wider than that."""
    columns = [replace(column, width=column.width or len(_name(report))) for column in _COLUMNS]
    width = line_width()
    for column in sorted(columns, key=lambda column: column.rank):
        if width is not None and column.rank and sum(one.width + 3 for one in columns) + 1 > width:
            columns.remove(column)
    if head:
        cores = f"{report['cores']} core{'s' if report['cores'] > 1 else ''}"
        print(wrapped(f"{report['cpu']}, {cores}, {report['isa'] or 'no'} kernels") + "\n")
        if all(column.title != "model" for column in columns):
            print(wrapped(_name(report)) + "\n")
        _print_cells([_aligned(column.title, column) for column in columns])
        _print_cells(["-" * (column.width - column.right) + ":" * column.right for column in columns])
    _print_cells([_aligned(column.cell(report, test), column) for column in columns])


def _aligned(text: str, column: _TableColumn) -> str:
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def _print_cells(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _print_profile(report: dict[str, Any]) -> None:
    """Where a step's time went, by kind of kernel."""
    size = report["profile_tokens"]
    before = report["n_depth"] + (report["n_prompt"] or 1) - size
    tested = f" ({milliseconds(report['step_ns'])} in the test)" if report["step_ns"] else ""
    print_profile(
        f"A step of {size} token{'s' if size > 1 else ''} after {before} others, {report['n_threads']} threads: "
        f"{milliseconds(report['profile_ns'])} ms{tested}, of which these parts make {report['profile_coverage']:.1%}; "
        f"{report['inside']:.1%} of the test's time was inside steps",
        report,
    )
