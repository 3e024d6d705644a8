"""Text to prompts: tokens, rendered conversations, and filling in the middle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack  # Any: options of templates

import numpy as np

from edgellm.api import infill as infilling
from edgellm.api.chat_options import check_template_options, check_think
from edgellm.api.context_policy import PINNED
from edgellm.api.context_policy import Prompt as ChatPrompt
from edgellm.api.infill import InfillKeywords
from edgellm.api.tools import check_tools, toolbox
from edgellm.api.vision import marked_runs, with_marks, woven
from edgellm.chat import ChatTemplate, Message, encode_chat, shape_of, switch, thinking_of
from edgellm.errors import OptionError

if TYPE_CHECKING:
    from edgellm.api.generating import Source
    from edgellm.api.model import Model
    from edgellm.api.tools import Toolbox


class Prompting:
    """What a model makes of text before it computes anything."""

    def _source(self) -> Source:
        """Raises ModelClosed, SessionError."""
        raise NotImplementedError

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of a text. `add_special`: with the tokens that begin and end a text. `parse_special`: names of control tokens
        become these tokens. Raises NoTokenizer, ModelClosed.
        """
        return self._source().model.tokenizer.encode(text, add_special, parse_special)

    def detokenize(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of token ids. Raises OptionError for ids outside the vocabulary, NoTokenizer, ModelClosed."""
        return self._source().model.tokenizer.decode(token_ids, skip_special=skip_special)

    def apply_template(
        self,
        messages: Sequence[Message],
        *,
        tools: object = None,
        think: bool | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt that `chat` makes of a conversation, as text. Options and errors as there."""
        return _rendered(self._source().model, messages, tools, think, template_options).rendered.text

    def chat_prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: object = None,
        think: bool | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt that `chat` makes of a conversation, as token ids. Options and errors as there."""
        found: list[int] = _rendered(self._source().model, messages, tools, think, template_options).ids.tolist()
        return found

    def fill_in_prompt(self, prefix: str, suffix: str, **options: Unpack[InfillKeywords]) -> list[int]:
        """The prompt that `infill` makes, as token ids. Options and errors as there."""
        return infilling.prompt(self._source().model, prefix, suffix, options)


def encoder(
    model: Model, template: ChatTemplate, tools: Toolbox | None, think: bool | None, template_options: object
) -> Callable[[Sequence[Message]], ChatPrompt]:
    """What turns messages into a prompt. Raises OptionError for options that do not fit the template."""
    extra = {**switch(thinking_of(template.source), think), **check_template_options(template_options)}
    shape = shape_of(template)

    def encode(messages: Sequence[Message]) -> ChatPrompt:
        plain, found = with_marks(model, [_unpinned(message) for message in messages])
        rendered = shape.render(plain, tools.messages if tools else None, **extra)
        if found:
            return ChatPrompt(rendered, *woven(model, marked_runs(model, rendered, found)))
        return ChatPrompt(rendered, np.array(encode_chat(model.tokenizer, rendered), np.int32))

    return encode


def check_messages(messages: object) -> None:
    """Raises OptionError for what is not a list."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise OptionError('messages is not a list of messages; give e.g. [{"role": "user", "content": "Hello"}].')


def _rendered(model: Model, messages: Sequence[Message], tools: object, think: object, template_options: object) -> ChatPrompt:
    check_messages(messages)
    given = check_tools(tools)
    template = model.tool_template if given else model.template
    return encoder(model, template, toolbox(given, template), check_think(think), template_options)(messages)


def _unpinned(message: Message) -> Message:
    """A message as templates know it."""
    if isinstance(message, Mapping) and PINNED in message:
        return {key: value for key, value in message.items() if key != PINNED}
    return message
