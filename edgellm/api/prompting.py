"""Text to prompts: tokens, rendered conversations, and filling in the middle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast  # Any: options of templates

import numpy as np
import numpy.typing as npt

from edgellm.api.chat_options import ChatKeywords, check_template_options, check_think
from edgellm.api.context_policy import PINNED
from edgellm.api.context_policy import Prompt as ChatPrompt
from edgellm.chat import ChatTemplate, Message, encode_chat, shape_of, switch, thinking_of
from edgellm.chat.beginning import beginning, with_beginning
from edgellm.engine.prompts import UNWATCHED, PromptVectors, TokenIds, Watch, checked_ids
from edgellm.errors import OptionError
from edgellm.loading.loaded import LoadedModel

if TYPE_CHECKING:
    from edgellm.api.infill import InfillKeywords
    from edgellm.api.tools import Toolbox
    from edgellm.chat.audio import Audio
    from edgellm.chat.images import Image
    from edgellm.loading.encoder import Encoded

Prompt = str | Sequence["int | str | Image | Audio"] | npt.NDArray[np.integer]


class Prompting:
    """Calls that compute nothing: from text and conversations to tokens, and back."""

    def _opened(self) -> LoadedModel:
        """Raises ModelClosed, SessionError."""
        raise NotImplementedError

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text. `add_special`: with the tokens that begin and end a text. `parse_special`: names of control tokens
        become these tokens. Raises NoTokenizer, ModelClosed.
        """
        return self._opened().tokenizer.encode(text, add_special, parse_special)

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids. Raises OptionError for ids outside the vocabulary, NoTokenizer, ModelClosed."""
        return self._opened().tokenizer.decode(token_ids, skip_special=skip_special)

    def apply_template(
        self,
        messages: Sequence[Message],
        *,
        tools: object = None,
        think: bool | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt that `chat` makes of a conversation, as text. Options and errors as there."""
        return _rendered(self._opened(), messages, tools, think, template_options).rendered.text

    def chat_prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: object = None,
        think: bool | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt that `chat` makes of a conversation, as token ids. Options and errors as there."""
        found: list[int] = _rendered(self._opened(), messages, tools, think, template_options).ids.tolist()
        return found

    def fill_in_prompt(self, prefix: str, suffix: str, **options: Unpack[InfillKeywords]) -> list[int]:
        """The prompt that `infill` makes, as token ids. Options and errors as there."""
        from edgellm.api import infill

        return infill.prompt(self._opened(), prefix, suffix, options)[0]


def prompt_of(
    model: LoadedModel, prompt: Prompt, name: str = "prompt", watch: Watch = UNWATCHED
) -> tuple[TokenIds, PromptVectors | None]:
    """A prompt's token ids, and the vectors of its images and audio. Raises OptionError, NoTokenizer, ImageError, AudioError."""
    if isinstance(prompt, list | tuple) and not all(type(part) is int for part in prompt):
        from edgellm.api.media import is_mixed, mixed_runs, woven  # images

        if is_mixed(prompt):
            return woven(model, mixed_runs(model, prompt, name, watch))
    if not isinstance(prompt, str):
        return checked_ids(cast("Sequence[int]", prompt), model.n_vocab, name=name), None
    ids = model.tokenizer.encode(prompt, add_special=True)
    if not ids:
        raise OptionError("the prompt is empty, and this model has no token that begins a text; give some text or token ids.")
    return np.array(ids, np.int32), None


def encoder(
    model: LoadedModel,
    template: ChatTemplate,
    tools: Toolbox | None,
    think: bool | None,
    template_options: object,
    watch: Watch = UNWATCHED,
    *,
    continued: bool = False,
) -> Callable[[Sequence[Message]], ChatPrompt]:
    """A function from messages to a prompt; `continued`: a last message of the assistant is the beginning of the answer. Raises
    OptionError for options that do not fit the template.
    """
    thinking, given = thinking_of(template.source), check_template_options(template_options)
    shape = shape_of(template)

    def encode(messages: Sequence[Message]) -> ChatPrompt:
        begun = beginning(messages, template.source) if continued else ""
        plain = [_unpinned(message) for message in (messages[:-1] if begun else messages)]
        extra = {**switch(thinking, False if begun and thinking == "optional" else think), **given}
        marks: Mapping[str, Encoded] = {}
        if any(_has_parts(message) for message in plain):
            from edgellm.api.media import with_marks

            plain, marks = with_marks(model, plain, watch)
        rendered = shape.render(plain, tools.messages if tools else None, **extra)
        if begun:
            rendered = with_beginning(rendered, begun, template.source)
        if marks:
            from edgellm.api.media import marked_runs, marks_of, woven

            return ChatPrompt(rendered, *woven(model, marked_runs(model, rendered, marks)), marks_of(model, rendered, marks))
        return ChatPrompt(rendered, np.array(encode_chat(model.tokenizer, rendered), np.int32))

    return encode


def check_messages(messages: object) -> None:
    """Raises OptionError for what is not a list."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise OptionError('messages is not a list of messages; give e.g. [{"role": "user", "content": "Hello"}].')


def _rendered(
    model: LoadedModel, messages: Sequence[Message], tools: object, think: object, template_options: object
) -> ChatPrompt:
    check_messages(messages)
    template, box = tools_of(model, {"tools": tools})  # type: ignore[typeddict-item]  # checked there
    return encoder(model, template, box, check_think(think), template_options)(messages)


def tools_of(model: LoadedModel, options: ChatKeywords) -> tuple[ChatTemplate, Toolbox | None]:
    """The template of a conversation, and its tools. Raises OptionError, SchemaError, TemplateError."""
    if not any(options.get(name) is not None for name in ("tools", "tool_choice", "parallel_tool_calls")):
        return model.template, None
    from edgellm.api.tools import check_tools, chosen, toolbox  # with all formats of calls

    given = check_tools(options.get("tools"))
    template = model.tool_template if given else model.template
    tools = toolbox(given, template, strict=options.get("strict") is True)
    return template, chosen(tools, options.get("tool_choice"), options.get("parallel_tool_calls"))


def _has_parts(message: Message) -> bool:
    return isinstance(message, Mapping) and isinstance(message.get("content"), list | tuple)


def _unpinned(message: Message) -> Message:
    """A message as templates know it."""
    if isinstance(message, Mapping) and PINNED in message:
        return {key: value for key, value in message.items() if key != PINNED}
    return message
