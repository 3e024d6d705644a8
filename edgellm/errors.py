"""The public errors: one family, so that an app can catch `EdgeError` and show its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from edgellm.formats.errors import (
    BadAlignment,
    BadHParam,
    BadMagic,
    BadTensorInfo,
    BadType,
    BadVersion,
    BadVocab,
    Duplicate,
    EdgeError,
    FormatError,
    LimitExceeded,
    ShapeMismatch,
    Truncated,
    Unreadable,
    Unsupported,
    Unwritable,
)

__all__ = [
    "AudioError",
    "BackendError",
    "BadAlignment",
    "BadCatalogue",
    "BadHParam",
    "BadMagic",
    "BadTensorInfo",
    "BadType",
    "BadVersion",
    "BadVocab",
    "ContextFull",
    "DownloadError",
    "Duplicate",
    "EdgeError",
    "FormatError",
    "ImageError",
    "LimitExceeded",
    "ModelClosed",
    "ModelNotFound",
    "NoTokenizer",
    "NotEnoughMemory",
    "NumericError",
    "OptionError",
    "QueueFull",
    "SchemaError",
    "SessionError",
    "ShapeMismatch",
    "TemplateError",
    "Truncated",
    "Unreadable",
    "Unsupported",
    "Unwritable",
]


def shown(value: object) -> str:
    """A caller's value for an error text: short, and also where Python refuses to write it (4,300 digits)."""
    try:
        text = " ".join(repr(value).split())  # arrays have several lines
    except ValueError:
        text = "a number of thousands of digits" if isinstance(value, int) else f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True)
class OptionValue:
    """An option with a value as a part of a message: `context=512` in Python, which the command line shows as `--context 512`."""

    option: str
    value: object

    def __str__(self) -> str:
        return f"{self.option}={shown(self.value)}"


@dataclass(frozen=True, slots=True)
class TextNumber:
    """Which of several texts a message is about: `texts[3]` in Python, which the command line shows as line 4."""

    index: int

    def __str__(self) -> str:
        return f"texts[{self.index}]"


class OptionError(EdgeError):
    """An option or argument outside its range; names the option and the value.

    Attributes: `option` (its Python name, "" where the text names none), `value`, `problem` ("is not a tuple"; "" where the value
    is just not possible), and `advice` ("give 1 or more").
    """

    exit_code = 2

    def __init__(self, problem: str = "", *more: object, option: str = "", value: object = None, advice: str = "") -> None:
        self.option, self.value, self.problem, self.advice = option, value, problem, advice
        if option:
            super().__init__(OptionValue(option, value), f" {problem or 'is not possible'}; {advice}.")
        else:
            super().__init__(problem, *more)


class SchemaError(OptionError):
    """A JSON schema, regular expression or grammar that cannot be enforced; names the keyword or what is wrong with it."""


class ModelNotFound(EdgeError):
    """A path or name that leads to no readable model file."""


class BadCatalogue(EdgeError):
    """The user's own models.toml, which does not follow the schema."""


class DownloadError(EdgeError):
    """A file that could not be fetched: the hub refuses it, the connection or the disk gave out, or its bytes are wrong."""


class NotEnoughMemory(EdgeError):
    """A model that would not fit into the memory of this machine; `force` loads it anyway."""


class ModelClosed(EdgeError):
    """A model that was used after `close()`."""


class SessionError(EdgeError):
    """A session that was closed, or a saved one that is damaged or another model's."""


class NoTokenizer(EdgeError):
    """Text was given to a model file that carries no tokenizer."""


class TemplateError(EdgeError):
    """A chat template that cannot be parsed or refuses the conversation."""


class ContextFull(EdgeError):
    """The context is full and the declared policy is to stop (learned positions cannot slide).

    `numbers`: tokens of the prompt, and tokens that the context holds, where a prompt does not fit.
    """

    numbers: tuple[int, int] | None = None

    @classmethod
    def of_prompt(cls, *message: object, tokens: int, limit: int) -> Self:
        """The error of a prompt that does not fit."""
        error = cls(*message)
        error.numbers = (tokens, limit)
        return error


class QueueFull(EdgeError):
    """A request that was refused because as many wait already as `load(queue=...)` allows; later it may be taken."""


class NumericError(EdgeError):
    """The model produced NaN or Inf logits."""


class ImageError(EdgeError):
    """A picture that can't be read, or that a model can't take."""


class AudioError(EdgeError):
    """A clip that can't be read, or that a model can't take."""


class BackendError(EdgeError):
    """A back end that is missing on this machine or failed to start."""
