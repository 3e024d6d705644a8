"""Which model a chat talks to: opened, introduced, exchanged for another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from edgellm.cli import opening
from edgellm.cli.chat.conversation import Dialogue
from edgellm.cli.chat.guide import NOTES, is_guide, rule
from edgellm.cli.options import worded
from edgellm.cli.state import last_model, remember_model
from edgellm.cli.terminal.output import say
from edgellm.errors import BackendError, EdgeError, ModelNotFound, NotEnoughMemory, OptionError

if TYPE_CHECKING:
    from edgellm.api.model import Model

BUNDLED = "built in"  # why the guide was chosen


class ModelSlot:
    """The open model of a chat; one at a time, because two might not fit. A context manager that closes it."""

    # Any: options of load()
    def __init__(self, name: str, load: dict[str, Any], usual: Mapping[str, Any] | None = None, *, remembers: bool = True) -> None:
        """`usual`: options for the first model where `load` has none, as far as they are possible. `remembers`: the model is the
        next chat's default.
        """
        self._name, self._load, self._remembers = name, load, remembers
        try:
            self.model: Model = opening.open_model(name, {**(usual or {}), **load})
        except (NotEnoughMemory, OptionError, BackendError):
            if not usual:
                raise
            self.model = opening.open_model(name, load)

    def begin(self, chosen: dict[str, Any], system: str | None, why: str) -> Dialogue:  # Any: options of Model.chat
        """A conversation with the model. `why` it was taken where the user named none.

        Raises OptionError for `think` and `draft`, and what opening a draft's model raises.
        """
        conversation = Dialogue(self.model, chosen, system)
        for option in ("think", "draft"):
            if option in chosen:
                conversation.check(option, chosen[option])
        self._introduce(conversation, why)
        return conversation

    def switch(self, conversation: Dialogue, name: str) -> None:
        """Go on with another model, or with the one before where that cannot be opened. Raises what opening raises."""
        from edgellm.catalogue.names import meant

        name, note = meant(name)
        if note:
            say(note)
        opening.check(name)  # before anything is closed
        conversation.drop_session()
        self.model.close()
        try:
            self.model = opening.open_model(name, self._load)
        except BaseException:
            conversation.model = self.model = opening.open_model(self._name, self._load)
            if is_guide(self.model):
                conversation.refuse = rule(self.model)
            raise
        self._name, conversation.model = name, self.model
        conversation.last, conversation.full = None, False
        self._introduce(conversation, "")
        for option in ("think", "draft"):
            _keep_if_possible(conversation, option)

    def _introduce(self, conversation: Dialogue, why: str) -> None:
        """Say which model answers now, and set what depends on that."""
        guide = why == BUNDLED or is_guide(self.model)
        if self._remembers and not guide:  # a model that is fetched later shall come before it
            remember_model(_lasting(self._name))
        conversation.called = _lasting(self._name)
        say(_introduction(self._name, self.model, BUNDLED if guide else why))
        info = self.model.info
        if 0 < info.context_train < info.context:
            say(
                f"warning: a context of {info.context} tokens exceeds the trained length of {info.context_train}; answers "
                "beyond it get worse"
            )
        if why and not guide:
            say("/model guide leads back to the guide, which explains edgellm")
        conversation.recommended = opening.sampling_of(self._name, {})
        conversation.refuse = rule(self.model) if guide else lambda text: None
        conversation.notes = NOTES if guide else {}
        if conversation.system and guide:
            say(NOTES["system"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.model.close()


def _keep_if_possible(conversation: Dialogue, option: str) -> None:
    """Take an option back that another model cannot have; where that is not plain to see, a line says so."""
    if option not in conversation.chosen:
        return
    try:
        conversation.check(option, conversation.chosen[option])
    except EdgeError as error:
        del conversation.chosen[option]
        if option == "draft":
            say(f"drafting is off: {worded(error)}")


def usual_model() -> tuple[str, str]:
    """The model of a chat that names none, and why it is this one. Raises ModelNotFound."""
    from edgellm.catalogue import resolve
    from edgellm.catalogue.names import fetch_command, installed
    from edgellm.catalogue.registry import bundled, entries

    last = last_model()
    if last is not None:
        try:
            resolve(last)
            return last, "used last"
        except ModelNotFound:
            pass  # it was deleted or moved since
    if here := installed():
        return here[0][0], "found on this machine"
    for entry, _, _ in bundled():
        return entry.name, BUNDLED
    fetched = (entry for entry in entries().values() if entry.kind == "chat" and not entry.files[0].bundled)
    small = min(fetched, key=lambda entry: entry.memory_gb)
    raise ModelNotFound(
        "no model is given, and none of the catalogue is on this machine: give a .gguf file, or fetch "
        f"{small.name} with: {fetch_command(small)} and start edgellm chat again"
    )


def _lasting(name: str) -> str:
    """A name that means the same file from any folder."""
    path = Path(name)
    return str(path.absolute()) if path.is_file() or (path / "config.json").is_file() else name


def _introduction(name: str, model: Model, why: str) -> str:
    """The line that says which model, with which context, answers, and why this one where none was named."""
    info = model.info
    file = info.path.name
    called = name if why == BUNDLED else f"{name} ({file})" if not name.endswith(file) else file
    threads = f"{info.threads} thread{'s' if info.threads > 1 else ''}"
    called = f"{called} ({why})" if why else called
    trained = f" (of {info.context_train})" if info.context_train > info.context else ""
    return f"{called} · {info.architecture} · {info.context}-token context{trained} · {threads} · /help lists commands"
