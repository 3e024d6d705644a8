"""Loading a model for a command: progress while it takes long, and the sampling defaults of its catalogue entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgellm.catalogue import resolve
from edgellm.catalogue.importing import sweep
from edgellm.catalogue.names import entry_of
from edgellm.cli.bus_error import say_why
from edgellm.cli.terminal.output import say
from edgellm.cli.terminal.progress import ProgressLine
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.api.model import Model


def check(name: str) -> None:
    """Raises what opening the model would raise at once: it is not there, or its header cannot be read."""
    path = resolve(name)
    from edgellm.checkpoints.opening import open_model as open_file  # brings NumPy, which a mistyped name need not wait for

    open_file(path).close()


def open_model(name: str, options: dict[str, Any], *, embeds: bool = False) -> Model:  # Any: passed on to load()
    """`edgellm.load` with a progress line. Raises what it raises, and OptionError for an embedding model where not `embeds`."""
    import edgellm

    path = resolve(name)  # before anything heavy is imported
    sweep()
    with ProgressLine(f"loading {name}") as progress:
        model = edgellm.load(path, progress=progress, **options)
    if not embeds and model.info.pooling:
        model.close()
        raise OptionError(
            f"{name} is an embedding model and writes no text: edgellm embed {name} lines.txt makes vectors of "
            "lines; for this command take a model that writes, such as qwen3-0.6b."
        )
    say_why(model.path)
    if model.info.place:
        say(model.info.place)
    return model


def sampling_of(name: str, options: dict[str, Any]) -> dict[str, Any]:  # Any: passed on to generate()
    """Generation options: those given, and for the others what the model's makers recommend in the catalogue."""
    entry = entry_of(name)
    return {**(entry.sampling if entry else {}), **options}
