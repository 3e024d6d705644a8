"""`edgellm chat`: a conversation in the terminal or over a pipe."""
from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgellm.cli import completion, options
from edgellm.cli.output import say
from edgellm.errors import ModelNotFound

if TYPE_CHECKING:
    from edgellm.engine.model import Model

BUNDLED = "which comes with edgellm"

def chat(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", show_default=False, callback=options.understood,
                                               autocompletion=completion.model_names, help=(
        "As for run; without it the last chat's model, else one that is on this machine, else the guide that comes with edgellm."
    ))] = None,
    n: options.Predict = None,
    temp: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repeat_penalty: options.RepeatPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    context: options.Context = None,
    threads: options.Threads = None,
    threads_batch: options.ThreadsBatch = None,
    backend: options.Backend = None,
    kv_type: options.KvType = None,
    sinks: options.Sinks = None,
    system: options.System = None,
    force: options.Force = False,
) -> None:
    """Talk to a model. Ctrl-C stops an answer, Ctrl-D leaves, /help lists the commands.

    Over a pipe every line is one message and only the answers are printed.

    \b
    edgellm chat qwen3-0.6b
    edgellm chat model.gguf --system "You answer in one sentence."
    echo "Name three rivers." | edgellm chat qwen3-0.6b
    """
    from edgellm.cli.conversation import Conversation
    from edgellm.cli.opening import limit, open_model, sampling_of
    from edgellm.cli.repl import talk
    from edgellm.cli.state import remember_model

    name, why = (model, "") if model is not None else _usual_model()
    load = options.given(context=context, threads=threads, threads_batch=threads_batch, backend=backend, kv_type=kv_type,
                         sinks=sinks, force=force or None)
    settings = options.given(temperature=temp, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, repeat_penalty=repeat_penalty,
                             presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, stop=options.stops(stop))
    with open_model(name, load) as opened:
        if why != BUNDLED:                   # a model that is fetched later shall come before it
            remember_model(_lasting(name))
        say(_introduction(name, opened, why))
        settings = sampling_of(name, settings) | limit(n)
        conversation = Conversation(opened, settings, system)
        talk(conversation, interactive=sys.stdin.isatty() and sys.stdout.isatty())


def _usual_model() -> tuple[str, str]:
    """The model of a chat that names none, and why it is this one."""
    from edgellm.catalogue import bundled, entries, fetch_command, installed, resolve
    from edgellm.cli.state import last_model

    last = last_model()
    if last is not None:
        try:
            resolve(last)
            return last, "used last"
        except ModelNotFound:
            pass                             # it was deleted or moved since
    if here := installed():
        return here[0][0], "found on this machine"
    for entry, _, _ in bundled():
        return entry.name, BUNDLED
    fetched = (entry for entry in entries().values() if entry.kind == "chat" and not entry.files[0].bundled)
    small = min(fetched, key=lambda entry: entry.memory_gb)
    raise ModelNotFound("no model is given, and none of the catalogue is on this machine: give a .gguf file, or fetch "
                        f"{small.name} with: {fetch_command(small)} and start edgellm chat again")


def _lasting(name: str) -> str:
    """A name that means the same file from any folder."""
    path = Path(name)
    return str(path.absolute()) if path.is_file() else name


def _introduction(name: str, model: Model, why: str) -> str:
    """The line that says which model, with which context, answers, and why this one where none was named."""
    info = model.info
    file = info.path.name
    called = f"{name} ({file})" if not name.endswith(file) else file
    threads = f"{info.threads} thread{'s' if info.threads > 1 else ''}"
    called = f"{called}, {why}" if why else called
    return f"{called}, {info.architecture}: context of {info.context} tokens, {threads}; /help lists the commands"
