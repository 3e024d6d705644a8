"""`edgellm sessions`: saved chats listed, shown, exported, deleted."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgellm.cli import options
from edgellm.cli.completion import session_names
from edgellm.cli.terminal.filter import Filter
from edgellm.cli.terminal.output import AnswerPrinter, say
from edgellm.errors import OptionError, SessionError

if TYPE_CHECKING:
    from edgellm.cli.chat.session_store import SessionStore

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=session_names, help="A name from edgellm sessions list.")]
FORMATS = ("markdown", "json")

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def sessions(context: typer.Context) -> None:
    """List, show, export, delete chats."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("list")
def list_(json_: options.Json = False) -> None:
    """List saved chats, newest first. `edgellm chat --resume NAME` resumes one."""
    from edgellm.cli.terminal.table import table

    store = _store()
    rows = []
    for name in store.names():
        try:
            record = store.read(name)
        except SessionError as error:
            say(str(error))
            continue
        rows.append(
            {
                "name": name,
                "model": record.model,
                "messages": len(record.turns),
                "updated": record.updated,
                "state_bytes": store.state_bytes(name),
                "title": record.title,
            }
        )
    if json_:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        say("no chat was saved yet")
        return
    shown = [
        (str(row["name"]), Path(str(row["model"])).name, str(row["messages"]), _size(row["state_bytes"]), _when(row["updated"]))
        for row in rows
    ]
    print(table(("name", "model", "messages", "state", "last"), shown, right=(2, 3), optional=(3, 1)))


@app.command()
def show(name: Name) -> None:
    """Print a chat: rendered on a terminal, as Markdown elsewhere."""
    from edgellm.cli.chat.session_store import markdown

    text = markdown(name, _store().read(name))
    if not sys.stdout.isatty():
        sys.stdout.write(Filter()(text))
        return
    page = AnswerPrinter(reply=True)
    page.write(text)
    page.end()


@app.command()
def export(
    name: Name,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="NAME", help="markdown or json.")] = "markdown",
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Export a chat as Markdown, or as JSON with its messages."""
    from edgellm.cli.chat.session_store import as_json, markdown
    from edgellm.formats.whole_file import write_whole
    from edgellm.tools.places import check_out

    if format_ not in FORMATS:
        raise OptionError(f"--format {format_}: give {' or '.join(FORMATS)}")
    record = _store().read(name)
    text = markdown(name, record) if format_ == "markdown" else as_json(name, record) + "\n"
    if output is None:
        sys.stdout.write(Filter()(text) if sys.stdout.isatty() else text)
        return
    check_out(output, [], force=force)
    try:
        write_whole(output, text.encode(errors="replace"))
    except OSError as error:
        raise OptionError(f"--output {output}: cannot be written ({error.strerror}); give another file") from error


@app.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=session_names, help="One or more names.")],
) -> None:
    """Delete saved chats, with their KV states."""
    store = _store()
    for name in names:
        store.remove(name)
        say(f"deleted {name}")


def _store() -> SessionStore:
    from edgellm.cli.chat.session_store import SessionStore

    return SessionStore()


def _size(n_bytes: object) -> str:
    from edgellm.cli.terminal.format_stats import size

    return size(int(str(n_bytes))) if n_bytes else "-"


def _when(seconds: object) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(float(str(seconds))))
