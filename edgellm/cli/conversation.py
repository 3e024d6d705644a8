"""The turns of one chat: asked, answered, asked again, forgotten."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.engine.model import Model
    from edgellm.engine.records import Generation
    from edgellm.engine.stream import Stream


class Conversation:
    """Holds what was said and streams the next answer.

    `settings` are generation options; `last` is the last answer's Generation.
    """

    def __init__(self, model: Model, settings: dict[str, Any], system: str | None = None) -> None:
        self.model, self.settings, self.system = model, settings, system
        self.turns: list[dict[str, str]] = []
        self.last: Generation | None = None
        self._stream: Stream | None = None

    def ask(self, text: str) -> Iterator[str]:
        """The pieces of the answer to `text`. Stopped early, the part that was said counts as the answer."""
        return self._answer([*self.turns, {"role": "user", "content": text}])

    def again(self) -> Iterator[str]:
        """Another answer to the last question. Raises OptionError when nothing was asked."""
        if not self.turns:
            raise OptionError("/regen: there is no answer yet to make again")
        return self._answer(self.turns[:-1])

    def stop(self) -> None:
        """End the answer that is being streamed, from wherever; its iterator then ends."""
        if self._stream is not None:
            self._stream.close()

    def clear(self) -> None:
        """Forget all turns; the system prompt stays."""
        self.turns, self.last = [], None

    def _answer(self, turns: list[dict[str, str]]) -> Iterator[str]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        self._stream = stream = self.model.chat([*system, *turns], stream=True, **self.settings)
        try:
            yield from stream
        finally:
            stream.close()
            self._stream, self.last = None, stream.result
            if said := stream.result.text:       # otherwise the turns stay as they were
                self.turns = [*turns, {"role": "assistant", "content": said}]
