"""Stop texts: found across token borders, never shown, with no more text held back than could still become one."""

from __future__ import annotations

from collections.abc import Iterable

from edgellm.errors import OptionError
from edgellm.sampling.bans import MAX_BYTES


class StopText:
    """Passes text on until one of the stop texts is complete. Holds back less than the longest of them."""

    def __init__(self, stops: str | Iterable[str] | None) -> None:
        self._stops = as_texts(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None  # the one that is complete

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop text is complete: then all before it is shown, nothing after."""
        text = self._held + text
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            at, self.found = min(found)
            return text[:at], True
        keep = self._beginning(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """The text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop text begins."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


def as_texts(stops: object, option: str = "stop") -> tuple[str, ...]:
    """One text or several, for stopping or banning. Raises OptionError for what is none."""
    single = stops is None or isinstance(stops, str | bytes | bytearray)
    try:
        parts = iter(() if stops is None else (stops,) if single else stops)  # type: ignore[call-overload]  # that is asked here
    except TypeError:
        parts = iter((stops,))  # an array without dimensions, too
    texts = tuple(parts)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise OptionError(
                f"is not a {option} text", option=option, value=text, advice="give a text that is not empty, or a list of them"
            )
    if option == "ban" and (long := next((text for text in texts if len(text.encode(errors="replace")) > MAX_BYTES), None)):
        raise OptionError("is too long", option=option, value=long, advice=f"give texts of at most {MAX_BYTES} bytes")
    return texts
