"""The turns of one chat: asked, answered, asked again, forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from edgellm.api.records import Event
from edgellm.errors import ContextFull, OptionError
from edgellm.options.table import TABLE

if TYPE_CHECKING:
    from edgellm.api.generation_options import PromptProgress
    from edgellm.api.model import Model, Session
    from edgellm.api.records import Generation
    from edgellm.api.stream import Stream
    from edgellm.cli.chat.keeping import Keeper
    from edgellm.sampling import ResolvedOptions, SamplingKeywords

Settings = dict[str, Any]  # Any: options of Model.chat, of many types
Turns = list[dict[str, str]]
NGRAM = "ngram"  # the draft that needs no model


class Conversation:
    """Holds what was said and streams the next answer.

    `chosen` are the user's options, `recommended` those that hold where the user has none; `last` is the last answer's Generation.
    `full`: the context has begun to lose what was said first. `progress` is told how far the prompt is read. `refuse` may answer a
    message in the model's place.
    """

    def __init__(self, model: Model, chosen: Settings, system: str | None = None, recommended: Settings | None = None) -> None:
        self.model, self.chosen, self.system, self.recommended = model, chosen, system, recommended or {}
        self.turns: Turns = []
        self.last: Generation | None = None
        self.full = False
        self.note_on_system = ""  # what is worth knowing about system prompts with this model
        self.progress: PromptProgress | None = None
        self.refuse: Callable[[str], str | None] = lambda text: None
        self.called = ""  # the name or path by which the model was opened
        self.keeper: Keeper | None = None  # None: nothing is saved
        self.session: Session | None = None  # what holds the computed conversation
        self.plain = False  # Markdown is shown as it is written
        self._stream: Stream | None = None
        self._files: list[tuple[str, str]] = []  # that come with the next message: their names and texts

    @property
    def settings(self) -> Settings:
        """The options for the next answer."""
        return {**self.recommended, **self.chosen}

    def sampling(self) -> ResolvedOptions:
        """The sampling options that hold, those of the model and the library included."""
        return self.model.sampling_options(**_sampling(self.settings))

    def check(self, option: str, value: object) -> None:
        """Raises OptionError where the next answer could not have this option."""
        if option == "think":
            from edgellm.chat import switch

            switch(self.model.thinking, cast(bool, value))
        elif option == "draft":
            if value != NGRAM:
                self.model.load_draft(cast(str, value))
        elif TABLE[option].part == "sampling":
            self.model.sampling_options(**_sampling({option: value}))

    def ask(self, text: str) -> Iterator[Event]:
        """The answer to `text`. Stopped early, the part that was said counts as the answer.

        Raises ContextFull where the message alone is too long for a context that may not slide.
        """
        turns, files = [*self.turns, self._with_files(text)], list(self._files)
        if (refusal := self.refuse(text)) is not None:
            self.turns, self.last, self._files = [*turns, {"role": "assistant", "content": refusal}], None, []
            return iter([Event("text", refusal)])
        return self._answer(turns, files)

    def attach(self, name: str, text: str) -> None:
        """Let a document come with the next message that is answered."""
        self._files.append((name, text))

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """The files that come with the next message: their names and texts."""
        return self._files

    @property
    def attached(self) -> str:
        """The names of the files that come with the next message."""
        return ", ".join(name for name, _ in self._files)

    def _with_files(self, text: str) -> dict[str, str]:
        if not self._files:
            return {"role": "user", "content": text}
        documents = "\n\n".join(f"{name}:\n\n{document.strip()}" for name, document in self._files)
        return {"role": "user", "content": f"{documents}\n\n{text}", "files": self.attached, "asked": text}

    def _drop(self, files: Sequence[tuple[str, str]]) -> None:
        """They do not come with the next message."""
        self._files = [file for file in self._files if file not in files]

    def again(self) -> Iterator[Event]:
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
        self.turns, self.last, self.full = [], None, False
        if self.keeper is not None:
            self.keeper.leave()

    def undo(self) -> str:
        """Take files back that wait for the next message, else the last question and its answer; what that was. Raises OptionError
        where there is nothing.
        """
        if names := self.attached:
            self._files = []
            return names
        asked = [k for k, turn in enumerate(self.turns) if turn["role"] == "user"]
        if not asked:
            raise OptionError("/undo: nothing was said yet")
        turn = self.turns[asked[-1]]
        self.turns, self.last = self.turns[: asked[-1]], None
        return f"{turn['asked']} (with {turn['files']})" if "asked" in turn else turn["content"]

    def drop_session(self) -> None:
        """Go on without what was computed: another model, or another conversation."""
        if self.session is not None:
            self.session.close()
        self.session = None

    @property
    def policy(self) -> str:
        """What happens when the context is full: as the user chose, else turns go where the context cannot slide."""
        usual = "ring" if self.model.info.slides else "drop-oldest-turns"
        return str(self.settings.get("context_policy") or usual)

    def messages(self, turns: Turns | None = None) -> list[dict[str, Any]]:
        """What the model is given: the system prompt, then the turns; documents are pinned."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *(_message(turn) for turn in (self.turns if turns is None else turns))]

    def _answer(self, turns: Turns, files: Sequence[tuple[str, str]] = ()) -> Iterator[Event]:
        """`files` have come with the last turn once something is said to it."""
        try:
            self._stream = stream = self._chat(turns)
        except ContextFull as error:
            if not files:
                raise
            self._drop(files)
            raise ContextFull(f"{error} The next message comes without {turns[-1]['files']}.") from error
        try:
            yield from stream.events()
        finally:
            stream.close()
            self._stream, self.last = None, stream.result
            if said := stream.result.text:  # otherwise the turns stay as they were
                stats = stream.result.stats
                self.full = self.full or stats.evicted_tokens > 0 or bool(stats.forgotten_messages)
                self.turns = [*turns, {"role": "assistant", "content": said}]
                self._drop(files)
                if self.keeper is not None:
                    self.keeper.note(self)

    def _chat(self, turns: Turns) -> Stream:
        settings = self.settings if self.policy == "ring" else {**self.settings, "context_policy": self.policy}
        self.session = self.session or self.model.session()
        return self.session.chat(self.messages(turns), stream=True, progress=self.progress, **settings)


def _message(turn: dict[str, str]) -> dict[str, Any]:
    if "files" not in turn:
        return turn
    return {"role": turn["role"], "content": turn["content"], "pinned": True}


def _sampling(settings: Settings) -> SamplingKeywords:
    return cast("SamplingKeywords", {name: value for name, value in settings.items() if TABLE[name].part == "sampling"})
