"""/set in a chat: rows of the option table by their names there, the values in force and where these come from."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from edgellm.catalogue.names import meant
from edgellm.errors import OptionError
from edgellm.options.generation import CONTEXT_POLICY, DRAFT, MAX_TOKENS, THINK, THINK_BUDGET, UNLIMITED
from edgellm.options.option import Option
from edgellm.options.sampling import SAMPLING

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Dialogue

DEFAULT = "default"
SOURCES = {"user": "set by you", "catalogue": "recommended for this model", "model": "recommended by the model", "default": ""}


SET: tuple[Option, ...] = (*SAMPLING, MAX_TOKENS, THINK, CONTEXT_POLICY, THINK_BUDGET, DRAFT)
SETTINGS = {row.typed_names[0]: row for row in SET if row.listed}  # in the order of /set, which lists these
NAMES = {name: row.typed_names[0] for row in SET for name in row.typed_names} | {"num-predict": "n"}
_ROWS: dict[str, Option] = {row.typed_names[0]: row for row in SET}
SAMPLING_NAMES = tuple(name for name, row in SETTINGS.items() if row.part == "sampling")


def change(chat: Dialogue, name: str, text: str) -> None:
    """Set an option for the messages to come, or take the user's value back with "default". Raises OptionError."""
    row = find(name)
    if text == DEFAULT:
        chat.chosen.pop(row.name, None)
        return
    try:
        value = row.read(meant(text)[0] if row is DRAFT else text)
        chat.check(row.name, value)
    except OptionError as error:
        otherwise = "" if row is THINK and error.problem else ", or default"
        reason = f": {error.advice}" if not error.problem else f" {error.problem}" + ("" if row is THINK else f"; {error.advice}")
        raise OptionError(f"/set {name} {text}{reason if error.option else f': {error}'}{otherwise}") from error
    chat.chosen[row.name] = value


def words(name: str) -> tuple[str, ...]:
    """Texts worth offering as the value of an option."""
    row = find(name)
    return (*(("on", "off") if row.kind is bool else row.values or row.suggestions), DEFAULT)


def find(name: str) -> Option:
    """The option of a name, with either kind of dash. Raises OptionError."""
    dashed = name.lower().replace("_", "-")
    if dashed not in NAMES:
        near = difflib.get_close_matches(dashed, NAMES, n=1)
        hint = f"did you mean {NAMES[near[0]]}? The options are" if near else "the options are"
        raise OptionError(f"/set {name}: no such option; {hint} {', '.join(SETTINGS)}")
    return _ROWS[NAMES[dashed]]


def shown(chat: Dialogue, name: str) -> str:
    """The value that holds for the next message, and where it comes from."""
    option = find(name).name
    if option == "think":
        return _thinking(chat)
    if option == "context_policy":
        return f"{chat.policy}  {SOURCES['user'] if option in chat.chosen else ''}".rstrip()
    if option == "draft":
        draft = chat.settings.get(option)
        return "none" if draft is None else f"{draft}  {SOURCES['user']}"
    settings, sampling = chat.settings, chat.sampling()
    if option == "think_budget":
        budget = settings.get(option)
        return "no limit" if budget is None else f"{budget}  {SOURCES['user']}"
    if option == "max_tokens":
        value = settings.get(option, "context")
        text = (
            f"{chat.model.info.context} (the context)" if value == "context" else "no limit" if value == UNLIMITED else str(value)
        )
    else:
        value = getattr(sampling.options, option)
        text = "a new one for each answer" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    source: str = sampling.sources.get(option, "default")
    if source == "user" or option == "max_tokens":
        source = "user" if option in chat.chosen else "catalogue" if option in chat.recommended else "default"
    return f"{text}  {SOURCES[source]}".rstrip()


def _thinking(chat: Dialogue) -> str:
    kind = chat.model.thinking
    if kind != "optional":
        return "this model does not think before it answers" if kind == "no" else "always on with this model"
    chosen = chat.chosen.get("think")
    return "on or off (template's default)" if chosen is None else f"{'on' if chosen else 'off'}  {SOURCES['user']}"
