"""Renders conversations with a chat template, as transformers' `apply_chat_template` does, with the author of each part."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from edgellm.chat.budget import BUDGET, Budget
from edgellm.chat.provenance import Span, Text
from edgellm.errors import TemplateError

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]  # role, content, and what the template knows beside: tool_calls, name, ...
AUDIO_PARTS = ("audio", "input_audio")  # types of content parts: ours, and OpenAI's
IMAGE_PARTS = ("image", "image_url", "input_image")  # types of content parts: ours, and OpenAI's two
MAX_SOURCE = 64 << 10  # characters of a template; the longest published ones have 20,000
MAX_DATE = 200  # characters of a date's pattern
MAX_DEPTH = 60  # of nested lists and objects in a conversation
# Roles may form control tokens together with the template's text: "<|" + role + "|>".
ROLES = frozenset({"system", "user", "assistant", "tool", "developer", "function", "ipython", "model", "environment", "context"})
REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as text. Control tokens may stand only within `trusted`; `given` are the texts that came from outside."""

    text: str
    trusted: tuple[Span, ...]
    given: tuple[str, ...]


class ChatTemplate:
    """One Jinja template. Compiled on first use; safe to use from several threads."""

    def __init__(
        self, source: str, *, bos: str = "", eos: str = "", name: str = "the chat template", stops: Sequence[str] = ()
    ) -> None:
        """`bos`, `eos`: texts of these tokens. `name`: for messages. `stops`: texts that end an answer, if no token does."""
        self.source, self.bos, self.eos, self.name, self.stops = source, bos, eos, name, tuple(stops)
        self._template: Template | None = None
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        now: datetime | None = None,
        **options: Any,
    ) -> Rendered:
        """Text of a conversation. `options` go to the template (`enable_thinking=False`); `now` is the date it may print.

        Raises TemplateError: a template that cannot be parsed, that refuses the conversation, or that costs too much.
        """
        if not messages:
            raise TemplateError("the conversation is empty; give at least one message")
        given: list[str] = []
        tokens = {"bos_token": self.bos, "eos_token": self.eos}
        data = {
            "messages": [_message(message, given) for message in messages],
            "tools": _plain(tools, given),
            "documents": _plain(documents, given),
            "add_generation_prompt": add_generation_prompt,
            **{name: Text.written(token) for name, token in tokens.items() if token},
            **{name: _plain(value, given) for name, value in options.items()},
        }
        text = self._run(data, now)
        return Rendered(str.__str__(text), text.spans if isinstance(text, Text) else (), tuple(given))

    def _run(self, data: dict[str, Any], now: datetime | None) -> str:
        """Render within a budget; whatever goes wrong in there is a TemplateError."""

        def strftime_now(pattern: str) -> str:
            return (now or datetime.now()).strftime(str(pattern)[:MAX_DATE])

        try:
            template = self._compiled()
            token = BUDGET.set(Budget(data, len(data["messages"])))
            try:
                return template.render({**data, "strftime_now": strftime_now})
            finally:
                BUDGET.reset(token)
        except TemplateError as error:
            raise TemplateError(f"{self.name}: {error}") from error
        except RecursionError as error:
            raise TemplateError(f"{self.name}: it nests or calls itself too deeply; choose another template") from error
        except MemoryError as error:
            raise TemplateError(f"{self.name}: it needs more memory than there is; choose another template") from error
        except Exception as error:  # a template is a program: it can raise anything that Python can
            what = str(error).strip().rstrip(".") or type(error).__name__
            raise TemplateError(f"{self.name} does not take this conversation: {' '.join(what.split())[:300]}") from error

    def _compiled(self) -> Template:
        with self._lock:
            if self._template is None:
                if len(self.source) > MAX_SOURCE:
                    raise TemplateError(f"it has {len(self.source)} characters, and {MAX_SOURCE} is the limit")
                from edgellm.chat.sandbox import compile_template

                self._template = compile_template(self.source)
            return self._template


def _message(message: Message, given: list[str]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(f"a message is a mapping with role and content, not {type(message).__name__}")
    calls = message.get("tool_calls")
    # A key without a value is left out: templates cope with that, but print "None" or fail on None. Beside calls they expect it.
    plain: dict[str, Any] = {
        str(key): _plain(value, given)
        for key, value in message.items()
        if value is not None or (key == "content" and isinstance(calls, list | tuple) and calls)
    }
    role = plain.get("role")
    if role is not None and not isinstance(role, str):
        raise TemplateError(f'the role of a message is a text such as "user", not {type(role).__name__}')
    if role in ROLES:
        plain["role"] = Text.written(role)
    reasoning = next((plain[name] for name in REASONING if plain.get(name) is not None), None)
    if reasoning is not None:  # templates differ in the name they read
        plain = {"thinking": reasoning, "tool_plan": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _plain(value: Any, given: list[str], depth: int = 0) -> Any:
    """A copy in plain JSON types, so that a template meets no object with methods of its own. Texts are noted in `given`."""
    if depth > MAX_DEPTH:
        raise TemplateError(f"the conversation nests lists deeper than {MAX_DEPTH}")
    if isinstance(value, Text):  # ours, with the marks of a call in it
        bounds = [0, *(place for span in value.spans for place in span), len(value)]
        given += [str(value.cut(start, stop)) for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]
        return value
    if isinstance(value, str):
        given.append(str.__str__(value))
        return given[-1]
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateError(f"the conversation holds the number {value}, which JSON does not have; give None or a text instead")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_plain(key, given, depth + 1): _plain(item, given, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, given, depth + 1) for item in value]
    raise TemplateError(f"a conversation holds texts, numbers, lists and mappings, not {type(value).__name__}")
