"""Conversations in the shape that a chat template reads, which rendering small ones shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple  # Any: JSON

from edgellm.chat.provenance import Text, joined
from edgellm.chat.soft_switch import with_soft_switch
from edgellm.chat.templates import REASONING, ChatTemplate, Message, Rendered
from edgellm.chat.tools import Call, Tool, is_finite
from edgellm.errors import OptionError, TemplateError, shown

if TYPE_CHECKING:
    from edgellm.chat.families import Format

Way = Literal["tools", "xml_tools", "system"]  # two options of templates, and a key of the system message
WORD, OTHER = "zqprobe", "zqother"  # what no template says by itself
USER, SYSTEM = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "Hello"}
TOOL = Tool(OTHER, OTHER, {"type": "object", "properties": {"x": {"type": "string", "description": "x"}}, "required": ["x"]})
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": OTHER, "content": "1"}
LATE = "[System: {}]"  # a system message within the user's
HELPFUL = "You are a helpful assistant with some tools."
MEDIA = ("image", "audio", "video")  # words in the types of parts that no model gets


class Calling(NamedTuple):
    """How a template takes a message with calls."""

    objects: bool  # arguments are objects, not JSON in a text
    empty: dict[str, str | None]  # the content of a message that has none
    shown: bool  # the calls are in the text


class TemplateShape:
    """The message forms that a template supports, found by rendering probes when a conversation needs to know."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    @cached_property
    def _format(self) -> Format:
        """The format of the model's calls."""
        from edgellm.chat.families import find_format  # thirty modules, which a model needs for its first conversation

        return find_format(self._template.source)

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, **options: Any) -> Rendered:
        """As `ChatTemplate.render`, for messages as programs that use OpenAI's API write them."""
        if self._format.call_id is not None:
            messages = _numbered(messages, self._format.call_id)
        messages = [
            self._message(message, index) if isinstance(message, Mapping) else message for index, message in enumerate(messages)
        ]
        if any(map(_is_system, messages[1:])) and not self._late_systems:
            messages = _folded(messages)
        if _users_meet(messages) and not self._users_in_a_row:
            messages = _users_joined(messages)
        messages = with_soft_switch(messages, self._template.source, options.get("enable_thinking"))
        more: dict[str, Any] = {}
        if messages and tools:
            messages, more = _with_tools(self.tools or "tools", messages, tools)
        rendered = self._template.render(messages, **{**more, **options})
        prefill = self._format.prefill
        if prefill and not tools and rendered.text.endswith(prefill[0]):
            rendered = replace(rendered, text=rendered.text + prefill[1])
        return rendered

    @cached_property
    def tools(self) -> Way | None:
        """The way in which a template shows tools; None where the template has no way."""
        if "tools" not in self._template.source:
            return None
        ways: tuple[Way, ...] = ("tools", "xml_tools", "system")
        texts = {way: [self._text(talk, way) for talk in ([USER], [SYSTEM, USER])] for way in ways}
        if texts["tools"] == [None, None]:
            return "tools"  # it takes other conversations, or says why not
        return next((way for way in ways if any(OTHER in (text or "") for text in texts[way])), None)

    @cached_property
    def _parts(self) -> bool:
        """Content may be a list of parts."""
        text = self._text([{**USER, "content": [{"type": "text", "text": WORD, OTHER: OTHER}]}])
        return text is not None and WORD in text and OTHER not in text

    @cached_property
    def _developer(self) -> str:
        """The role that instructions of a developer have."""
        shown = (role for role in ("developer", "system") if WORD in (self._text([{"role": role, "content": WORD}, USER]) or ""))
        return next(shown, "developer")

    @cached_property
    def _late_systems(self) -> bool:
        """System messages may come in the middle of a conversation."""
        late = {"role": "system", "content": WORD}
        return all(WORD in (self._text(talk) or "") for talk in ([USER, ANSWER, late, USER], [SYSTEM, USER, ANSWER, late, USER]))

    @cached_property
    def _users_in_a_row(self) -> bool:
        """A message of the user may follow another one."""
        return WORD in (self._text([USER, {**USER, "content": WORD}]) or "") or self._text([USER]) is None

    @cached_property
    def _calling(self) -> Calling | None:
        """None where the template takes no calls, or refuses this conversation."""
        empties: tuple[dict[str, str | None], ...] = ({"content": None}, {}, {"content": ""})
        ways = [
            (objects, empty, text)
            for objects, empty in product((True, False), empties)
            if (text := self._text([USER, {**_probe(objects), **empty}, RESULT], self.tools)) is not None
        ]
        if not ways:
            return None
        objects, empty, text = min(ways, key=lambda way: way[2].count("None") + way[2].count("null"))
        return Calling(objects, empty, WORD in text)

    @cached_property
    def _thinks_aloud(self) -> bool:
        """A message with calls may have both content and reasoning; gpt-oss allows one of them."""
        if self._calling is None:
            return True
        message = {**_probe(self._calling.objects), "reasoning_content": "Hm."}
        spoken, silent = (
            self._text([USER, {**message, **content}, RESULT], self.tools)
            for content in ({"content": "Well."}, self._calling.empty)
        )
        return spoken is not None or silent is None

    def _text(self, messages: Sequence[Message], way: Way | None = None) -> str | None:
        """A small conversation rendered, with a tool if `way` is given."""
        try:
            messages, options = _with_tools(way, messages, [TOOL.message]) if way else (messages, {})
            return self._template.render(messages, **options).text
        except TemplateError:
            return None

    def _message(self, message: Message, index: int) -> Message:
        content, role, calls = message.get("content"), message.get("role"), message.get("tool_calls")
        if isinstance(content, list | tuple):
            _check_parts(content, f"messages[{index}]", self._template.source, result=role == "tool")
        if isinstance(role, str) and role == "developer":
            message = {**message, "role": self._developer}
        if isinstance(content, list | tuple) and all(map(_is_text, content)) and not self._parts:
            message = {**message, "content": "".join(part["text"] for part in content)}
        if isinstance(calls, list | tuple) and calls and self._calling is not None:
            try:
                return self._with_calls(message, self._calling)
            except (TypeError, ValueError, RecursionError):
                pass  # arguments that are no JSON, which the template's rendering refuses in a sentence
        return message

    def _with_calls(self, message: Message, calling: Calling) -> Message:
        calls = [_with_arguments(call, calling.objects) for call in message["tool_calls"]]
        message, content = {**message, "tool_calls": calls}, message.get("content")
        if not is_finite(calls):
            return message  # which the template's rendering refuses
        if not calling.shown and self.tools and isinstance(content or "", str) and (written := self._written(calls)):
            return {**message, "content": joined([part for part in (content, written) if part], "\n")}
        if not content or (any(message.get(name) for name in REASONING) and not self._thinks_aloud):
            return {**{name: value for name, value in message.items() if name != "content"}, **calling.empty}
        return message

    def _written(self, calls: object) -> str:
        """Calls as the model writes them; nothing where its format is not known, or they are none."""
        format, found = self._format, list[Call]()
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            if not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), Mapping):
                return ""
            found.append(Call(function["name"], dict(function["arguments"])))
        if format.write is None:
            return ""
        closer = Text.written(format.closers[0] if format.closers else "")
        return joined([joined((Text.written(format.openers[0]), block, closer)) for block in format.write(found)], "\n")


@lru_cache(maxsize=16)
def shape_of(template: ChatTemplate) -> TemplateShape:
    return TemplateShape(template)


def _with_tools(way: Way, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[list[Message], dict[str, Any]]:
    """Messages and template options with the tools."""
    if way != "system":
        return list(messages), dict.fromkeys({"tools", way}, tools)
    listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    has_system = isinstance(messages[0], Mapping) and messages[0].get("role") == "system"
    first = messages[0] if has_system else {"role": "system", "content": HELPFUL}
    return [{**first, "tools": listed}, *messages[has_system:]], {}


def _probe(objects: bool) -> dict[str, Any]:
    arguments = {"x": WORD}
    function = {"name": OTHER, "arguments": arguments if objects else json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]}


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _check_parts(parts: Sequence[object], where: str, source: str, *, result: bool) -> None:
    """Raises OptionError for parts that are neither text nor of a type that the template knows: it would show them as Python does,
    or leave out the message. `result`: of a tool, which may be any list.
    """
    for part in parts:
        if _is_text(part):
            continue
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and any(word in kind for word in MEDIA):
            raise OptionError(f"{where} has a part of the type {shown(kind)}; this version reads text only, so leave it out.")
        if result:
            continue
        if not isinstance(kind, str) or kind == "text":
            raise OptionError(f'{where} has a part that is not text; give a text, or {{"type": "text", "text": "Hello"}}.')
        if not re.search(rf"""["']{re.escape(kind)}["']""", source):
            raise OptionError(f"{where} has a part of the type {shown(kind)}, which this model does not know; give text instead.")


def _is_system(message: object) -> bool:
    return (
        isinstance(message, Mapping) and message.get("role") == "system" and isinstance(message.get("content"), str | list | tuple)
    )


def _folded(messages: Sequence[Message]) -> list[Message]:
    """System messages put into others: those behind the first one into it, later ones, with a mark, into a message of the user
    beside them."""
    found = list[Message]()
    waiting: str | None = None  # for the user's next message
    for message in messages:
        if _is_system(message) and found and all(map(_is_system, found)):
            found[-1] = _with_text(found[-1], _plain_text(message), before=False)
        elif _is_system(message) and found:
            waiting = "\n\n".join(filter(None, (waiting, LATE.format(_plain_text(message)))))
        elif waiting is not None and isinstance(message, Mapping) and message.get("role") == "user":
            found.append(_with_text(message, waiting, before=True))
            waiting = None
        else:
            if waiting is not None:
                _append_user(found, waiting)
                waiting = None
            found.append(message)
    if waiting is not None:
        _append_user(found, waiting)
    return found


def _is_user(message: object) -> bool:
    return isinstance(message, Mapping) and isinstance(role := message.get("role"), str) and role == "user"


def _users_meet(messages: Sequence[Message]) -> bool:
    return any(_is_user(one) and _is_user(next_one) for one, next_one in pairwise(messages))


def _users_joined(messages: Sequence[Message]) -> list[Message]:
    """Messages of the user that follow each other as one, where they are text."""
    found = list[Message]()
    for message in messages:
        if found and _is_user(found[-1]) and _is_user(message) and isinstance(message.get("content"), str):
            found[-1] = _with_text(found[-1], message["content"], before=False)
        else:
            found.append(message)
    return found


def _append_user(found: list[Message], text: str) -> None:
    if isinstance(found[-1], Mapping) and found[-1].get("role") == "user":
        found[-1] = _with_text(found[-1], text, before=False)
    else:
        found.append({"role": "user", "content": text})


def _with_text(message: Message, text: str, *, before: bool) -> Message:
    """A message with another text before or behind its own."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        part = {"type": "text", "text": f"{text}\n\n" if before else f"\n\n{text}"}
        return {**message, "content": [part, *content] if before else [*content, part]}
    texts = (text, content) if before else (content, text)
    return {**message, "content": "\n\n".join(each for each in texts if each)}


def _plain_text(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(str(part["text"]) for part in content if _is_text(part))


def _numbered(messages: Sequence[Message], call_id: Callable[[str, int], str]) -> list[Message]:
    """Calls with ids of the model's own form, numbered through the conversation, and results with those of their calls."""
    found, renamed, number = list[Message](), dict[object, str](), 0
    for message in messages:
        if isinstance(message, Mapping) and isinstance(calls := message.get("tool_calls"), list | tuple):
            named = list[object]()
            for call in calls:
                function = call.get("function") if isinstance(call, Mapping) else None
                if isinstance(function, Mapping) and isinstance(name := function.get("name"), str):
                    given, stem = str(call.get("id")), call_id(name, 0).removesuffix("0")
                    if not (given.startswith(stem) and given.removeprefix(stem).isdecimal()):
                        renamed[given] = call_id(name, number)
                        call = {**call, "id": renamed[given]}
                    number += 1
                named.append(call)
            message = {**message, "tool_calls": named}
        elif isinstance(message, Mapping) and str(message.get("tool_call_id")) in renamed:
            message = {**message, "tool_call_id": renamed[str(message["tool_call_id"])]}
        found.append(message)
    return found


def _with_arguments(call: object, objects: bool) -> object:
    """A call whose arguments are an object, or JSON in a text, whichever they were; an object if JSON does not have all numbers."""
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        try:
            found = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
        arguments = found if isinstance(found, dict) and (objects or not is_finite(found)) else arguments
    elif isinstance(arguments, Mapping) and not objects and is_finite(arguments):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}
