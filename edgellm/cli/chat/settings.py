"""The options that /set knows inside a chat: what is taken, which values hold, and where these come from."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgellm.cli.chat.conversation import NGRAM
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.cli.chat.conversation import Conversation

DEFAULT = "default"
SOURCES = {"user": "set by you", "catalogue": "recommended for this model", "model": "recommended by the model", "default": ""}


@dataclass(frozen=True, slots=True)
class Setting:
    """One name of /set: the option of `Model.chat` behind it, and what its text means. `words`: texts worth offering."""

    option: str
    read: Callable[[str], object]  # raises ValueError with what to give
    words: tuple[str, ...] = (DEFAULT,)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("give a number") from None


def _not_negative(text: str) -> float:
    number = _number(text)
    if not 0 <= number < math.inf:
        raise ValueError("give 0 or more")
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < math.inf:
        raise ValueError("give more than 0")
    return number


def _fraction(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 1:
        raise ValueError("give a number from 0 to 1")
    return number


def _whole(low: int, unset: int | None = None) -> Callable[[str], int | None]:
    """A whole number from `low` on; `unset` stands for None."""

    def read(text: str) -> int | None:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("give a whole number") from None
        if number < low and number != unset:
            raise ValueError(f"give {low} or more" + ("" if unset is None else f", or {unset}"))
        return None if number == unset else number

    return read


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError("give on or off")
    return text == "on"


def _draft(text: str) -> str:
    from edgellm.catalogue.names import meant

    return meant(text)[0]


def _policy(text: str) -> str:
    from edgellm.api.context_policy import check_policy

    try:
        return check_policy(text)
    except OptionError:
        raise ValueError("give ring, drop-oldest-turns or error") from None


SETTINGS = {
    "temp": Setting("temperature", _not_negative),
    "top-k": Setting("top_k", _whole(0)),
    "top-p": Setting("top_p", _fraction),
    "min-p": Setting("min_p", _fraction),
    "repeat-penalty": Setting("repeat_penalty", _positive),
    "presence-penalty": Setting("presence_penalty", _number),
    "frequency-penalty": Setting("frequency_penalty", _number),
    "seed": Setting("seed", _whole(0, unset=-1)),
    "n": Setting("max_tokens", _whole(1, unset=-1)),
    "think": Setting("think", _switch, ("on", "off", DEFAULT)),
    "context-policy": Setting("context_policy", _policy, ("ring", "drop-oldest-turns", "error", DEFAULT)),
    "think-budget": Setting("think_budget", _whole(0, unset=-1)),
    "draft": Setting("draft", _draft, (NGRAM, DEFAULT)),
}
SAMPLING = tuple(name for name in SETTINGS if name not in ("n", "think", "context-policy", "think-budget", "draft"))
ALIASES = {"temperature": "temp", "max-tokens": "n", "num-predict": "n", "n-predict": "n", "predict": "n"}


def change(chat: Conversation, name: str, text: str) -> None:
    """Set an option for the messages to come, or take the user's value back with "default". Raises OptionError."""
    setting = find(name)
    if text == DEFAULT:
        chat.chosen.pop(setting.option, None)
        return
    try:
        value = setting.read(text)
        chat.check(setting.option, value)
    except ValueError as error:
        raise OptionError(f"/set {name} {text}: {error}, or default") from None
    except OptionError as error:
        otherwise = "" if setting.option == "think" else ", or default"
        raise OptionError(f"/set {name} {text}: {_reason(str(error))}{otherwise}") from error
    chat.chosen[setting.option] = value


def _reason(error: str) -> str:
    """What an error of the library says, without the option and value in Python's words."""
    _, impossible, why = error.partition(" is not possible: ")
    if error.startswith("draft="):
        return error.partition("' ")[2].rstrip(".")
    return (why.partition(";")[0] if impossible else error.partition("; ")[2]).rstrip(".")


def find(name: str) -> Setting:
    """The setting of a name, with either kind of dash. Raises OptionError."""
    dashed = name.lower().replace("_", "-")
    setting = SETTINGS.get(ALIASES.get(dashed, dashed))
    if setting is None:
        near = difflib.get_close_matches(dashed, [*SETTINGS, *ALIASES], n=1)
        hint = f"did you mean {ALIASES.get(near[0], near[0])}? The options are" if near else "the options are"
        raise OptionError(f"/set {name}: there is no such option; {hint} {', '.join(SETTINGS)}")
    return setting


def shown(chat: Conversation, name: str) -> str:
    """The value that holds for the next message, and where it comes from."""
    option = find(name).option
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
        text = f"{chat.model.info.context} (the context)" if value == "context" else "no limit" if value is None else str(value)
    else:
        value = getattr(sampling.options, option)
        text = "a new one for each answer" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    source: str = sampling.sources.get(option, "default")
    if source == "user" or option == "max_tokens":
        source = "user" if option in chat.chosen else "catalogue" if option in chat.recommended else "default"
    return f"{text}  {SOURCES[source]}".rstrip()


def _thinking(chat: Conversation) -> str:
    kind = chat.model.thinking
    if kind != "optional":
        return "this model does not think before it answers" if kind == "no" else "always on with this model"
    chosen = chat.chosen.get("think")
    return "as the model's template has it" if chosen is None else f"{'on' if chosen else 'off'}  {SOURCES['user']}"
