"""`edgellm chat`: a conversation in the terminal or over a pipe."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgellm.cli import completion, options

if TYPE_CHECKING:
    from edgellm.cli.chat.mcp_tools import ChatServers


@options.takes(*options.CHAT, *options.WEIGHTS)
def chat(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            callback=options.understood,
            autocompletion=completion.model_names,
            help="As for run. Default: the last chat's model, else one that is on this machine, else the bundled guide.",
        ),
    ] = None,
    chosen: options.Chosen = options.NONE,
    system: options.System = None,
    continue_: Annotated[bool, typer.Option("--continue", help="Resume the last chat, with its KV cache.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="NAME",
            autocompletion=completion.session_names,
            help="Resume a saved chat; without a name, pick one from a list.",
        ),
    ] = None,
    plain: options.Plain = False,
    mcp: options.Mcp = None,
    no_save: Annotated[bool, typer.Option("--no-save", help="Keep nothing of this chat on the disk.")] = False,
) -> None:
    """Talk to a model. Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.

    A chat in a terminal is saved on this machine. EDGELLM_SESSIONS=off turns that off; EDGELLM_SESSIONS=2G limits the disk space
    for saved KV states. From a pipe, each line is one message and only the answers are printed.

    More sampling options (DRY, XTC, Mirostat and others) are in docs/options.md.

    \b
    edgellm chat qwen3-0.6b
    edgellm chat model.gguf --system "Be brief."
    echo "Name three rivers." | edgellm chat qwen3-0.6b
    """
    from edgellm.cli.chat.repl import talk
    from edgellm.cli.chat.resuming import keeper, saved
    from edgellm.cli.chat.session_store import budget
    from edgellm.cli.chat.switching import ModelSlot, usual_model
    from edgellm.cli.terminal.keyboard import quiet
    from edgellm.folders import is_off

    before = saved(continue_, resume)
    if model is None and before is not None:
        model = before.record.model
    name, why = (model, "") if model is not None else usual_model()
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    private = no_save or is_off()
    most = budget() if interactive and not private else 0
    with (
        quiet() if interactive else contextlib.nullcontext(),
        _servers(mcp) as servers,
        ModelSlot(name, chosen.part("loading"), before.load if before else {}, remembers=not private) as slot,
    ):
        conversation = slot.begin(chosen.part("sampling", "generation", "chat"), system, why)
        conversation.plain, conversation.servers = plain, servers
        with keeper(conversation, before, most=most):
            if system is not None:
                conversation.system = system
            code = talk(conversation, lambda other: slot.switch(conversation, other), interactive=interactive, private=private)
    if code:
        raise typer.Exit(code)


def _servers(file: Path | None) -> contextlib.AbstractContextManager[ChatServers | None]:
    """The MCP servers of a file. Raises OptionError, BackendError."""
    if file is None:
        return contextlib.nullcontext()
    from edgellm.cli.chat.mcp_tools import chat_servers  # asyncio is 3 MB

    return chat_servers(options.mcp_servers(file))
