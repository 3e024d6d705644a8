"""From which conversation a prompt goes on: the one that shares the longest beginning with it, continued or forked."""

from __future__ import annotations

import weakref

import numpy as np

from edgellm.backends.base import Executable
from edgellm.catalogue.machine import memory
from edgellm.engine.conversation import Conversation, Home
from edgellm.engine.prompts import TokenIds
from edgellm.engine.task import Task

LEAST_SHARED = 4  # tokens: fewer are computed as fast as a state is forked
SMALL_TAIL = 16  # tokens that may get lost where a conversation is continued


class PrefixCache:
    """The conversations of a model: those of sessions, and `most` others at most, the idle ones of which may be dropped.

    Only the thread that drives touches conversations.
    """

    def __init__(self, executable: Executable, most: int, state_bytes: int) -> None:
        """`state_bytes`: what a conversation takes when its context is full."""
        self._executable, self._most, self._state_bytes = executable, most, state_bytes
        self._kept: list[Conversation] = []
        self._homes: weakref.WeakSet[Home] = weakref.WeakSet()
        self._uses = 0

    def add_home(self, home: Home) -> None:
        """A session's conversation may be the source of others from now on."""
        self._homes.add(home)

    def drop_home(self, home: Home) -> None:
        """Its session was closed."""
        self._homes.discard(home)

    def start(self, task: Task) -> int:
        """Find a conversation for `task` and cut it back to what it shares with the task's tokens: so many it returns."""
        if task.many_outputs:
            task.conversation = self._fresh()
            return 0
        kept = task.kept if task.kept is not None else self._executable.layout.classes[0].kept
        conversation, shared = self._continued(task.home, np.array(task.ids, np.int32), kept)
        conversation.truncate(shared)
        conversation.sequence.keep(kept)
        conversation.adapters = task.home.adapters if task.home is not None else 0
        self._uses += 1
        conversation.user, conversation.used = weakref.ref(task), self._uses
        task.conversation = conversation
        return shared

    def _continued(self, home: Home | None, ids: TokenIds, kept: int) -> tuple[Conversation, int]:
        """A conversation for the caller, and how many of its tokens are useful."""
        adapters = home.adapters if home is not None else 0
        own = home.conversation if home is not None and home.conversation is not None and home.conversation.idle else None
        best, shared = own, own.useful(ids, kept) if own is not None else 0
        for other in (*self._kept, *(found for one in self._homes if (found := one.conversation) is not None)):
            useful = other.useful(ids, kept) if other.adapters == adapters else 0
            if useful >= shared + (LEAST_SHARED if best is own is not None else 1):
                best, shared = other, useful
        if own is not None and best is own:
            return own, shared
        if home is None or (own is None and home.conversation is not None):
            return self._anonymous(best, shared)
        home.conversation, shared = self._other(best, shared)
        return home.conversation, shared

    def _anonymous(self, best: Conversation | None, shared: int) -> tuple[Conversation, int]:
        """One that belongs to no session."""
        idle = sorted((one for one in self._kept if one.idle), key=lambda one: one.used)
        if best is not None and best in idle and len(best) - shared <= SMALL_TAIL:
            return best, shared
        if idle and len(self._kept) >= self._most:
            victim = idle[0]
            if victim is best:
                return best, shared
            if best is None or shared < LEAST_SHARED:
                return victim, 0  # its memory serves again
            self._kept.remove(victim)  # its memory is free before the fork needs some
        else:
            self._relieve(best if shared >= LEAST_SHARED else None)
        conversation, shared = self._other(best, shared)
        self._kept.append(conversation)
        return conversation, shared

    def _other(self, best: Conversation | None, shared: int) -> tuple[Conversation, int]:
        """A new one: a fork of `best` where that is worth it."""
        if best is None or shared < LEAST_SHARED:
            return self._fresh(), 0
        return best.fork(), shared

    def _fresh(self) -> Conversation:
        return Conversation.empty(self._executable)

    def _relieve(self, wanted: Conversation | None) -> None:
        """Drop idle conversations where memory is short."""
        if any(one.idle for one in self._kept) and memory().available < 2 * self._state_bytes:
            self._kept = [one for one in self._kept if not one.idle or one is wanted]

    def forget(self, conversation: Conversation) -> None:
        """Drop a conversation whose keys may be wrong or NaN."""
        user = conversation.user() if conversation.user is not None else None
        if user is not None:
            user.conversation = None
        self._kept = [one for one in self._kept if one is not conversation]
        for home in self._homes:
            if home.conversation is conversation:
                home.conversation = None

    def release(self, task: Task) -> None:
        """A task is over or lost its place: others may have its conversation, unless there are too many."""
        conversation, task.conversation = task.conversation, None
        if conversation is not None:
            conversation.user = None
        idle = sorted((one for one in self._kept if one.idle), key=lambda one: one.used)
        for one in idle[: max(0, len(self._kept) - self._most)]:
            self._kept.remove(one)

    def clear(self) -> None:
        """Drop all of them."""
        self._kept.clear()
        for home in self._homes:
            home.conversation = None
