"""The commands of `edgellm`, and what becomes of their errors: one line and an exit code, never a traceback."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer

from edgellm import __version__
from edgellm.cli import completion
from edgellm.cli.options import worded
from edgellm.cli.terminal.filter import Filter
from edgellm.cli.terminal.output import complain, prepare_streams, say
from edgellm.errors import EdgeError
from edgellm.folders import DISK_FULL

INTERRUPTED = 130  # 128 + SIGINT, as Typer returns it
BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report a program that a closed pipe ended
ANSWERS = ("run", "chat", "embed", "rerank")  # commands whose output is incomplete where its reader leaves

COMMANDS = (  # in the order of --help
    "chat",
    "run",
    "serve",
    "fit",
    "pull",
    "show",
    "path",
    "rm",
    "tokenize",
    "bench",
    "embed",
    "rerank",
    "transcribe",
    "doctor",
    "convert",
    "quantize",
    "imatrix",
    "perplexity",
    "verify",
    "check-template",
    "list",
    "import",
    "sessions",
)
NAMES = {
    "import": ("import_", "import_"),
    "list": ("list", "list_"),
    "check-template": ("check_template", "check_template"),
}  # module and function, where their names differ
GROUP = "sessions"  # the only one with commands of its own


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"edgellm {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("-V", "--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, with any command.")] = False,
) -> None:
    """Run language models on this machine: GGUF files, offline, in the terminal or from Python.

    \b
    edgellm chat qwen3-0.6b
    edgellm run model.gguf "Once upon a time" -n 100
    """


def program(command: str = "") -> typer.Typer:
    """All commands; or only `command`, if it is one of them: the modules of the others are then not imported."""
    # Plain help: Typer's rich pages cost 70-90 ms more of the 200 ms that --help may take.
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for name in (command,) if command in COMMANDS else COMMANDS:
        file, function = NAMES.get(name, (name, name))
        module = importlib.import_module(f"edgellm.cli.commands.{file}")
        if name == GROUP:
            app.add_typer(module.app, name=name)
        else:
            app.command(name, no_args_is_help=False)(getattr(module, function))
    return app


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line. Returns the exit code: 0; 2 for usage, 3 for a model or file, 1 for our faults."""
    prepare_streams()
    warnings.showwarning = _say_warning
    debug, arguments = _take_debug(_as_options(arguments))
    try:
        if (asked := completion.wanted(arguments)) is not None:
            completion.show(*asked)
            return 0
        code = program(_command(arguments))(list(arguments) or ["--help"], standalone_mode=False, prog_name="edgellm")
        sys.stdout.flush()
        if code == INTERRUPTED:  # Typer's newer versions return it, its older ones raise Abort
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        print(file=sys.stderr)  # the shell's prompt starts on a line of its own
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):  # click exits on its own
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes stdout once more
        return BROKEN_PIPE if _command(arguments) in ANSWERS else 0
    except Exception as error:
        if debug:
            import traceback

            sys.stderr.write(Filter()(traceback.format_exc()))
        return _report(error, arguments)


def _as_options(arguments: Sequence[str]) -> list[str]:
    """`help COMMAND` and `version` as the options that they mean, and --resume without a name as one with an empty name."""
    words = list(arguments)
    if words[:1] == ["version"]:
        return ["--version", *words[1:]]
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    if words[:1] == ["chat"]:
        for k, word in enumerate(words):
            if word == "--resume" and (k + 1 == len(words) or words[k + 1].startswith("-")):
                words[k] = "--resume="
    return words


def _command(arguments: Sequence[str]) -> str:
    """The first argument that is no option; "" without one."""
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _say_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """The library's warnings as one line, without the place in the source."""
    say(f"warning: {message}")


def _take_debug(arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """--debug, which may stand before or after the command, and the arguments without it."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    kept = [a for a in arguments[:end] if a != "--debug"]
    return len(kept) < end, kept + list(arguments[end:])


def _report(error: Exception, arguments: Sequence[str]) -> int:
    """Say in one line what went wrong; returns the exit code."""
    if isinstance(error, EdgeError):
        complain(worded(error))
        return error.exit_code
    if hasattr(error, "format_message"):  # Typer's usage errors: their class moved between versions
        complain(_usage(error, arguments))
        return 2
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        complain("out of memory: take a smaller model, a smaller --context or --kv-type f16")
        return 3
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        complain(f"{error.filename or 'the output'} cannot be written: {error.strerror}; make room or write elsewhere")
        return 3
    if isinstance(error, ModuleNotFoundError) and (name := (error.name or "").partition(".")[0]) in sys.stdlib_module_names:
        complain(
            f"this Python ({sys.executable}) was built without its module {name.removeprefix('_')}, which this needs; "
            "use the Python of your system's packages, or build it again with that library's headers installed"
        )
        return 3
    complain(f"{type(error).__name__}: {error} (a fault of edgellm; --debug shows where)")
    return 1


def _usage(error: Exception, arguments: Sequence[str]) -> str:
    """A usage error in one sentence that names the option and its value, and what to do."""
    import difflib

    text = str(error.format_message()).rstrip(".?")  # type: ignore[attr-defined]  # checked by the caller
    text = text[:1].lower() + text[1:]  # it stands behind "error: "
    command = _command(arguments)
    if command not in COMMANDS:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
        return f"no command {command!r}; {hint}" if command else f"{text}; edgellm --help lists the commands"
    if type(error).__name__ == "NoSuchOption":
        near = difflib.get_close_matches(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or [], n=2)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        return f"{getattr(error, 'option_name', '')}: no such option; {hint}see edgellm {command} --help"
    if command == GROUP:
        from edgellm.cli.commands.sessions import app

        names = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback]
        command = " ".join([command, *[a for a in arguments if a in names][:1]])
    text = re.sub(
        r"got unexpected extra argument(?:s|\(s\))? \((.*)\)", r"\1: too many arguments; quote text that has spaces", text
    )
    letters = re.match(r"invalid value for '(-\w)'.*: '([a-zA-Z]+)' is not", text)
    if letters and (whole := letters[1] + letters[2]) in arguments:  # llama.cpp has options of one dash and several letters
        return f"{whole}: no such option; see edgellm {command} --help"
    name, value = _given(getattr(getattr(error, "param", None), "opts", []), arguments)
    if value:
        text = f"{name} {value}: {str(getattr(error, 'message', text)).rstrip('.')}"
    for theirs, ours in (("a valid int", "a whole number"), ("a valid float", "a number")):
        text = text.replace(theirs, ours)
    return f"{text}; see edgellm {command} --help"


def _given(names: Sequence[str], arguments: Sequence[str]) -> tuple[str, str]:
    """Under which of its names the command line gives an option, and its value there."""
    for k, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return name, value if equals else "".join(arguments[k + 1 : k + 2])
    return "", ""
