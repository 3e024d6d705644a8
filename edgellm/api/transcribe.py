"""The words of a clip, asked for in the way that each model family was trained for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast  # Any: options of generation

from edgellm.chat.audio import Audio, Source
from edgellm.errors import OptionError, OptionValue

if TYPE_CHECKING:
    from pathlib import Path

    from edgellm.api.records import Generation
    from edgellm.api.stream import Stream
    from edgellm.audio_spec import AudioSpec
    from edgellm.loading.loaded import LoadedModel
    from edgellm.tokenizer import Tokenizer

PROMPT = "Transcribe the speech into text. Write the words alone."
MARK = "<asr_text>"  # of Qwen3-ASR, after the language that it has heard


class Hearing(Protocol):
    """The members of a Model that a transcription uses."""

    _loaded: LoadedModel

    @property
    def path(self) -> Path: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def tokenize(self) -> Callable[..., list[int]]: ...
    @property
    def generate(self) -> Callable[..., Generation | Stream]: ...
    @property
    def chat(self) -> Callable[..., Generation | Stream]: ...


def transcribe(model: Hearing, clip: Source | Audio, prompt: str | None, options: dict[str, Any]) -> Generation:
    """See `Model.transcribe`."""
    options = {"temperature": 0} | options
    raw, messages = question(model, clip, prompt)
    if raw is not None:
        return cast("Generation", model.generate(raw, **options))
    return words_of(cast("Generation", model.chat(messages, **options)))


def words_of(answer: Generation) -> Generation:
    """An answer to messages without what stands before the words."""
    return replace(answer, text=answer.text.rpartition(MARK)[2].strip())


def question(model: Hearing, clip: Source | Audio, prompt: str | None) -> tuple[list[int | Audio] | None, list[dict[str, Any]]]:
    """The prompt that asks for the words of a clip where the model takes it without a chat template, and else the messages that do.

    Raises OptionError.
    """
    encoder = model._loaded.encoders.audio
    if encoder is None:
        raise OptionError(
            f"{model.path.name} takes no audio, so it can't transcribe: there is no projector (mmproj-*.gguf) with an audio "
            "encoder beside it; download its projector, or give ",
            OptionValue("mmproj", "FILE"),
            ".",
        )
    heard = clip if isinstance(clip, Audio) else Audio(clip)
    if prompt is None and encoder.spec.raw_prompt is not None:
        before, after = (model.tokenize(text, add_special=False, parse_special=True) for text in encoder.spec.raw_prompt)
        bos = model.tokenizer.bos_id
        first = [] if bos is None else [bos]
        return [*first, *before, heard, *after], []
    parts: list[dict[str, Any]] = [{"type": "audio", "audio": heard}]
    asked = _prompt(encoder.spec, model.tokenize) if prompt is None else prompt
    if asked:
        parts.append({"type": "text", "text": asked})
    return None, [{"role": "user", "content": parts}]


def _prompt(spec: AudioSpec, tokenize: Callable[..., list[int]]) -> str:
    """The question that is asked beside a clip: none of a model that only transcribes."""
    if len(tokenize(MARK, add_special=False, parse_special=True)) == 1:
        return ""
    return spec.prompt or PROMPT
