"""Rows of the option table as parameters of commands, what the user chose among them, and errors in the command line's words."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any  # Any: options of load() and generate(), of many types

import typer

from edgellm.cli.completion import model_names
from edgellm.cli.terminal.output import say
from edgellm.errors import BackendError, EdgeError, OptionError, OptionValue
from edgellm.options import generation, loading
from edgellm.options.option import Option, Part
from edgellm.options.sampling import SAMPLING
from edgellm.options.table import TABLE

if TYPE_CHECKING:
    from edgellm.server.mcp import McpServer


def understood(context: typer.Context, name: str | None) -> str | None:
    """A model's name in edgellm's spelling; a line on stderr says so where another was typed. Raises ModelNotFound."""
    if name is None or context.resilient_parsing:  # the latter: a shell asks for completions
        return name
    from edgellm.catalogue.names import meant

    known, note = meant(name)
    if note:
        say(note)
    return known


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=understood,
        autocompletion=model_names,
        help="A .gguf file, a catalogue name (qwen3-0.6b, qwen3-0.6b:Q8_0), or hf:owner/repo[:TYPE|FILE].",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Do not render Markdown. NO_COLOR does the same.")]
System = Annotated[str | None, typer.Option("--system", "-sys", "--system-prompt", metavar="TEXT", help="The system prompt.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Mcp = Annotated[Path | None, typer.Option("--mcp", metavar="FILE", help="MCP servers, whose tools the model may ask for.")]


def mcp_servers(path: Path | None) -> tuple[McpServer, ...]:
    """The servers of a file, none without one. Raises OptionError, BackendError."""
    if path is None:
        return ()
    from importlib.util import find_spec

    from edgellm.server.mcp import read_mcp_file

    if find_spec("mcp") is None:
        raise BackendError("--mcp needs the mcp package; install it with: pip install 'edgellm[mcp]'")
    return read_mcp_file(path)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of the table that the user gave, by their Python names; the library's defaults hold for the others."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def part(self, *parts: Part) -> dict[str, Any]:
        """Those of a part of the table, such as "loading" for `load()`."""
        return {name: value for name, value in self.values.items() if TABLE[name].part in parts}


NONE = Chosen()
WEIGHTS = (loading.MMAP, loading.MLOCK, loading.FORCE)
SERVER = (loading.PARALLEL, loading.QUEUE, loading.PREFIX_CACHE)  # where many answers are written
LOADING = tuple(row for row in loading.LOADING if row not in (*WEIGHTS, *SERVER, loading.POOLING))
CHAT = (
    generation.MAX_TOKENS,
    *SAMPLING,
    generation.STOP,
    generation.BAN,
    *LOADING,
    generation.CONTEXT_POLICY,
    generation.THINK,
    generation.THINK_BUDGET,
    generation.THINK_MESSAGE,
    generation.DRAFT,
)
FORM = (generation.SCHEMA, generation.CHOICES, generation.REGEX, generation.GRAMMAR)
RUN = (*CHAT, *FORM, generation.LOGPROBS, generation.ECHO)
COMPUTE = (loading.THREADS, loading.THREADS_BATCH, loading.BACKEND, loading.KV_TYPE)


def takes(*rows: Option) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter `chosen` stands for these rows: `--help` lists them in its place."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        names = {_identifier(row): row for row in rows}

        @functools.wraps(command)
        def called(**values: Any) -> None:
            chosen = {row.name: values.pop(name) for name, row in names.items()}
            return command(**values, chosen=Chosen(dict(_given(chosen))))

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for each in signature.parameters.values():
            parameters += [_parameter(row) for row in rows] if each.name == "chosen" else [each]
        del called.__wrapped__  # its signature is not that of `called`
        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions may have one
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _identifier(row: Option) -> str:
    return row.flag.partition("/")[0].lstrip("-").replace("-", "_")


def _parameter(row: Option) -> inspect.Parameter:
    """A row as Typer reads it."""
    many, switch = row.kind is list, row.kind is bool and row.default is not None
    help_ = row.help if row.kind in (bool, list) and not row.usual else f"{row.help} Default: {row.default_words}."
    option = typer.Option(
        *row.flags,
        metavar=None if row.kind is bool else row.metavar,
        callback=None if many or row.kind is bool else _checked(row),
        autocompletion=_offered(row) if row.values else None,
        hidden=not row.listed,
        help=help_,
    )
    kind: Any = bool if switch else list[str] | None if many else row.kind | None
    return inspect.Parameter(
        _identifier(row),
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=False if switch else None,
        annotation=Annotated[kind, option],
    )


def _checked(row: Option) -> Callable[[typer.Context, Any], Any]:
    """A callback that holds a value against its range while the line is read, before a model is looked for."""

    def check(context: typer.Context, value: Any) -> Any:
        if value is not None and not context.resilient_parsing:
            row.check_typed(value)
        return value

    return check


def _offered(row: Option) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [text for text in row.values if text.startswith(incomplete)]

    return offered


def _given(typed: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The values that were typed, as the library takes them. Raises OptionError."""
    for name, value in typed.items():
        row = TABLE[name]
        if value is None or (row.kind is bool and row.default is not None and not value):
            continue
        if name in _READ:
            yield name, _READ[name](value)
        elif row.kind is bool and row.default is not None:
            yield name, not row.default
        else:
            yield name, row.meant(value)


def _texts(flag: str, texts: list[str]) -> tuple[str, ...]:
    r"""The texts of --stop or --ban, in which \n and \t are what they are in a program. Raises OptionError for ""."""
    if "" in texts:
        raise OptionError(f"{flag} '': give a text of at least one character")
    return tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in texts)


def adapters(texts: list[str]) -> list[tuple[str, float]]:
    """The files and scales of --lora. Raises OptionError for no name at all."""
    if "" in texts:
        raise OptionError("--lora '': give the file of an adapter")
    return [_adapter(text) for text in texts]


def _adapter(text: str) -> tuple[str, float]:
    """A path may have colons: only a number behind the last one is a scale."""
    path, colon, scale = text.rpartition(":")
    try:
        return (path, float(scale)) if colon and path else (text, 1.0)
    except ValueError:
        return text, 1.0


_READ: dict[str, Callable[[Any], Any]] = {
    "stop": functools.partial(_texts, "--stop"),
    "ban": functools.partial(_texts, "--ban"),
    "adapters": adapters,
}


def worded(error: EdgeError) -> str:
    """An error of the library in the command line's words: `--context 7` for `context=7`."""
    if isinstance(error, OptionError) and error.option in TABLE and not error.problem:
        return f"{typed(error.option, error.value)}: {error.advice}"
    return error.worded(lambda part: typed(part.option, part.value) if isinstance(part, OptionValue) else str(part))


def typed(name: str, value: object) -> str:
    """An option and its value as they are typed: `--context 7`, `--no-think`."""
    row = TABLE.get(name)
    if row is None:
        return str(OptionValue(name, value))
    if row.kind is bool:
        on, _, off = row.flag.partition("/")
        return off if off and not value else on
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{row.flag} {shown or repr(shown)}"
