"""Policies for a full context: the messages that a conversation leaves out, and those that the model no longer sees."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from edgellm.arguments import check_flag
from edgellm.chat import Message
from edgellm.chat.templates import AUDIO_PARTS, IMAGE_PARTS, Rendered
from edgellm.engine.prompts import PromptVectors, TokenIds
from edgellm.errors import ContextFull, OptionError, OptionValue
from edgellm.options.generation import CONTEXT_POLICY

ContextPolicy = Literal["ring", "error", "drop-oldest-turns"]
ROOM = 4  # where turns are dropped, this part of the context is kept for the answer
PIECES = 4  # turns go by this part of the context, so that the rest is not read anew each time
PINNED = "pinned"  # the key of a message that stays


class Mark(NamedTuple):
    """The characters of a rendered conversation that stand for a picture, and its tokens."""

    start: int
    end: int
    tokens: int


class Prompt(NamedTuple):
    """A conversation as a model reads it."""

    rendered: Rendered
    ids: TokenIds
    vectors: PromptVectors | None = None  # of images
    marks: tuple[Mark, ...] = ()  # of these images


Encode = Callable[[Sequence[Message]], Prompt]


def context_for(n_tokens: int, trained: int) -> int | None:
    """A context that holds a prompt of this length and an answer; None beyond what the model was `trained` for (0: unknown)."""
    size = (n_tokens // 1024 + 2) * 1024
    return size if not trained else min(size, trained) if n_tokens < trained else None


def larger_context(n_tokens: int, trained: int) -> tuple[str | OptionValue, ...]:
    """The end of a message on a prompt of this length: the context to load the model with, or why there is none."""
    if (size := context_for(n_tokens, trained)) is None:
        return (f"; the model was trained for {trained} tokens.",)
    return ", or load the model with a larger context, such as ", OptionValue("context", size), "."


def check_policy(policy: object) -> ContextPolicy:
    """Raises OptionError for a policy that does not exist."""
    if policy is None:
        raise OptionError(option="context_policy", value=policy, advice=f"give {CONTEXT_POLICY.range_words()}")
    CONTEXT_POLICY.check(policy)
    return cast(ContextPolicy, policy)


@dataclass(frozen=True, slots=True)
class Visible:
    """The messages of a prompt, for telling which of them a model sees no more. `kept` are their numbers in the caller's list."""

    prompt: Prompt
    kept: tuple[int, ...]
    parts: tuple[tuple[str | None, ...], ...]  # texts of the kept messages; None for a picture
    dropped: tuple[int, ...]  # left out from the start
    count: Callable[[str], int]  # tokens of a text
    n_stay: int = 0  # of the first messages that are kept, which the ring never evicts
    kept_tokens: int | None = None  # of those; None: nothing but the sinks stays

    def forgotten(self, first: int) -> tuple[int, ...]:
        """Numbers of the messages that are dropped, or end before token `first` of the prompt."""
        if first <= 0:
            return self.dropped
        ends = self._ends()
        low, high = 0, len(ends)  # messages before `low` are out, those from `high` on are not
        while low < high:
            middle = (low + high) // 2
            if self._tokens(ends[middle]) <= first:
                low = middle + 1
            else:
                high = middle
        return tuple(sorted({*self.dropped, *self.kept[self.n_stay : low]}))

    def pinning(self, n_stay: int, most: int) -> Visible:
        """The same, with the first messages never evicted. Raises ContextFull where they have more tokens than that."""
        tokens = self._tokens(self._ends()[n_stay - 1])
        if tokens > most:
            raise ContextFull(
                f"what is pinned has {tokens} tokens (system prompt, tools and the pinned messages after it), and ",
                OptionValue("pinned", most),
                " was given; load the model with more, or shorten it.",
            )
        return replace(self, n_stay=n_stay, kept_tokens=tokens)

    def _tokens(self, end: int) -> int:
        """Tokens of the first `end` characters, pictures included."""
        text, at, tokens, plain = self.prompt.rendered.text, 0, 0, ""
        for mark in self.prompt.marks:
            if mark.end <= end:
                plain, at, tokens = plain + text[at : mark.start], mark.end, tokens + mark.tokens
        return tokens + self.count(plain + text[at:end])

    def _ends(self) -> list[int]:
        """Where each message ends among the characters of the prompt."""
        text, at, ends, marks = self.prompt.rendered.text, 0, list[int](), iter(self.prompt.marks)
        for parts in self.parts:
            for part in parts:
                if part is None:
                    at = max(at, next(marks, (0, at))[1])
                elif (found := text.find(part.strip(), at)) >= 0:
                    at = found + len(part.strip())
            ends.append(at)
        return ends


def fit(
    messages: Sequence[Message],
    encode: Encode,
    count: Callable[[str], int],
    policy: ContextPolicy,
    *,
    context: int,
    trained: int,
    slides: bool,
    max_tokens: int | None,
    pinned: int = 0,
) -> Visible:
    """The prompt of a conversation under a policy. Raises ContextFull where it cannot be made to fit. `pinned`: of its first tokens
    so many can stay in the ring, 0 for no more than the sinks.

    Turns (a user's message and all that follows it up to the next) are left out oldest first under "drop-oldest-turns", and under
    "ring" where messages are pinned that are not in the first tokens. System messages, pinned ones and the last turn stay.
    """
    prompt = encode(messages)
    n_stay = next((k for k, message in enumerate(messages) if not _stays(message)), len(messages)) if pinned else 0
    scattered = any(_pinned(message) for message in messages[n_stay:])
    room = context // ROOM if max_tokens is None else min(max_tokens, context // ROOM)
    drops = policy == "drop-oldest-turns" or (policy == "ring" and scattered)
    left = list(range(len(messages)))
    if drops and len(prompt.ids) > context - room:
        left, prompt = _shortened(messages, encode, count, prompt, context, room, trained, fails=policy != "ring" or not slides)
    elif policy == "error" and len(prompt.ids) > context:
        raise ContextFull.of_prompt(
            f"the conversation has {len(prompt.ids)} tokens, and the context holds {context}; shorten it, choose ",
            OptionValue("context_policy", "ring" if slides else "drop-oldest-turns"),
            *larger_context(len(prompt.ids), trained),
            tokens=len(prompt.ids),
            limit=context,
        )
    here = set(left)
    seen = Visible(
        prompt,
        tuple(left),
        tuple(_parts(messages[k]) for k in left),
        tuple(k for k in range(len(messages)) if k not in here),
        count,
    )
    return seen.pinning(n_stay, pinned) if policy == "ring" and n_stay else seen


def _shortened(
    messages: Sequence[Message],
    encode: Encode,
    count: Callable[[str], int],
    prompt: Prompt,
    context: int,
    room: int,
    trained: int,
    *,
    fails: bool,
) -> tuple[list[int], Prompt]:
    """The numbers of the messages that stay, and their prompt."""
    turns = _turns(messages)
    tokens = [count(_text(message)) for message in messages]
    marks = max(0, len(prompt.ids) - sum(tokens)) // len(messages)  # what the template writes around each
    lengths = [sum(tokens[k] + marks for k in turn) for turn in turns]
    piece = max(1, context // PIECES)
    wanted = -(-(len(prompt.ids) - (context - room)) // piece) * piece
    gone, n = 0, 0
    while n < len(turns) and gone < wanted:
        gone, n = gone + lengths[n], n + 1
    while True:
        out = {k for turn in turns[:n] for k in turn}
        left = [k for k in range(len(messages)) if k not in out]
        prompt = encode([messages[k] for k in left])
        if len(prompt.ids) <= context - room or n == len(turns):
            break
        n += 1
    if fails and len(prompt.ids) >= context:
        raise ContextFull.of_prompt(
            f"the message is too long: with the system prompt and pinned messages it has {len(prompt.ids)} tokens, "
            f"and this model sees {context}; send a shorter one",
            *larger_context(len(prompt.ids), trained),
            tokens=len(prompt.ids),
            limit=context,
        )
    return left, prompt


def _turns(messages: Sequence[Message]) -> list[list[int]]:
    """The turns that may be left out, oldest first, as the numbers of their messages."""
    starts = [k for k, message in enumerate(messages) if message.get("role") == "user"]
    turns = []
    for start, stop in itertools.pairwise(starts):
        turns.append([k for k in range(start, stop) if not _stays(messages[k])])
    return [turn for turn in turns if turn]


def _stays(message: Message) -> bool:
    return _pinned(message) or message.get("role") in ("system", "developer")


def _pinned(message: Message) -> bool:
    return message.get(PINNED) is not None and check_flag(PINNED, message[PINNED])


def _text(message: Message) -> str:
    return "\n".join(part for part in _parts(message) if part is not None)


def _parts(message: Message) -> tuple[str | None, ...]:
    """The texts of a message; None for a picture."""
    content = message.get("content")
    if isinstance(content, str):
        return (content,)
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, Sequence) else []
    return tuple(None if part.get("type") in (*IMAGE_PARTS, *AUDIO_PARTS) else str(part.get("text", "")) for part in parts)
