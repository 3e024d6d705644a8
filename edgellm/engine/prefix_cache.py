"""The prefix cache: a request continues or forks the conversation that shares the longest prefix with it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgellm.backends.base import Executable
from edgellm.catalogue.machine import memory
from edgellm.engine.conversation import Conversation, SessionCache
from edgellm.engine.prompts import TokenIds
from edgellm.engine.request import Request

if TYPE_CHECKING:
    from edgellm.engine.state_store import StateStore

LEAST_SHARED = 4  # tokens: fewer are computed as fast as a state is forked
WORTH_WAITING = 8  # tokens that another request is about to compute
SMALL_TAIL = 16  # tokens that may get lost where a conversation is continued


class PrefixCache:
    """The conversations of a model: those of sessions, and `most` others at most, the idle ones of which may be dropped.

    Only the thread that drives touches conversations.
    """

    def __init__(self, executable: Executable, most: int, state_bytes: int) -> None:
        """`state_bytes`: what a conversation takes when its context is full."""
        self._executable, self._most, self._state_bytes = executable, most, state_bytes
        self._kept: list[Conversation] = []
        self._sessions: weakref.WeakSet[SessionCache] = weakref.WeakSet()
        self._uses = 0
        self.store: StateStore | None = None  # where they are saved, and found again

    def shared(self, ids: TokenIds, kept: int | None) -> int:
        """How many of the first tokens need not be computed."""
        return max((one.useful(ids, kept) for one in self._others() if not one.adapters), default=0)

    def _others(self) -> Iterator[Conversation]:
        yield from self._kept
        yield from (found for one in self._sessions if (found := one.conversation) is not None)

    def add_session(self, session: SessionCache) -> None:
        """Requests may continue or fork the session's conversation from now on."""
        self._sessions.add(session)

    def drop_session(self, session: SessionCache) -> None:
        """The session was closed."""
        self._sessions.discard(session)

    def better_later(self, request: Request, awaited: Sequence[Request]) -> bool:
        """True if a prompt that is being computed will soon share clearly more tokens than any conversation does now."""
        if request.every_row or self._executable.layout.state_slots:  # recurrent states cannot be cut back to any length
            return False
        ids, kept, adapters = np.array(request.ids, np.int32), self._kept_by(request), request.adapters
        soon = 0
        for other in awaited:
            if (conversation := other.conversation) is None or conversation.adapters != adapters or other.every_row:
                continue
            if other.cancelled or other.finished or (other.background and not request.background):
                continue
            shared = min(_common_prefix(ids, np.array(other.ids, np.int32)), len(ids) - 1)
            if kept != conversation.sequence.kept:
                shared = min(shared, kept, conversation.sequence.kept)
            if shared > len(conversation):
                soon = max(soon, shared)
        if soon < WORTH_WAITING:
            return False
        found = [*self._others(), *([request.recalled] if request.recalled is not None else ())]
        return soon >= WORTH_WAITING + max((one.useful(ids, kept) for one in found if one.adapters == adapters), default=0)

    def _kept_by(self, request: Request) -> int:
        """How many of a request's first tokens are never evicted."""
        return request.kept if request.kept is not None else self._executable.layout.classes[0].kept

    def start(self, request: Request) -> int:
        """Give a request a conversation, cut back to the prefix that they share. Returns the prefix's length."""
        if request.separate:
            request.conversation = self._fresh()
            return 0
        kept = self._kept_by(request)
        recalled, request.recalled = request.recalled, None
        ids = np.array(request.ids[:1] if request.every_row else request.ids, np.int32)  # of one token nothing is shared
        conversation, shared = self._continued(request, ids, kept, recalled)
        conversation.truncate(shared)
        conversation.sequence.keep(kept)
        conversation.reused = shared
        conversation.adapters = request.adapters
        self._uses += 1
        conversation.user, conversation.used = weakref.ref(request), self._uses
        request.conversation = conversation
        return shared

    def _continued(self, request: Request, ids: TokenIds, kept: int, recalled: Conversation | None) -> tuple[Conversation, int]:
        """A conversation for the request, and how many of its tokens are useful."""
        session, adapters = request.session, request.adapters
        own = session.conversation if session is not None else None
        if own is not None and (not own.idle or own.adapters != adapters):
            own = None
        best, shared = own, own.useful(ids, kept) if own is not None else 0
        for other in (*self._others(), *([recalled] if recalled is not None else ())):
            useful = other.useful(ids, kept) if other.adapters == adapters else 0
            if useful >= shared + (LEAST_SHARED if best is own is not None else 1):
                best, shared = other, useful
        if own is not None and best is own:
            return own, shared
        if session is None or (own is None and session.conversation is not None):
            return self._anonymous(best, shared, recalled)
        session.conversation, shared = self._other(best, shared)
        return session.conversation, shared

    def _anonymous(self, best: Conversation | None, shared: int, recalled: Conversation | None) -> tuple[Conversation, int]:
        """One that belongs to no session."""
        idle = sorted((one for one in self._kept if one.idle), key=lambda one: one.used)
        if best is not None and best in idle and len(best) - shared <= SMALL_TAIL:
            return best, shared
        if idle and len(self._kept) >= self._most:
            victim = idle[0]
            self._save(victim, last=True)
            if victim is best:
                return best, shared
            if best is None or shared < LEAST_SHARED:
                return victim, 0  # its memory serves again
            self._kept.remove(victim)  # its memory is free before the fork needs some
        else:
            self._relieve(best if shared >= LEAST_SHARED else None)
        if best is None or best is not recalled or best in self._kept:
            best, shared = self._other(best, shared)
        self._kept.append(best)
        return best, shared

    def _save(self, conversation: Conversation, *, last: bool = False) -> None:
        """Offer it to the store; `last`: it is about to be forgotten."""
        if self.store is not None:
            self.store.offer(conversation, last=last)

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
            for one in self._kept:
                if one.idle and one is not wanted:
                    self._save(one, last=True)
            self._kept = [one for one in self._kept if not one.idle or one is wanted]

    def forget(self, conversation: Conversation) -> None:
        """Drop a conversation whose keys may be wrong or NaN."""
        self._kept = [one for one in self._kept if one is not conversation]
        for session in self._sessions:
            if session.conversation is conversation:
                session.conversation = None

    def release(self, request: Request) -> None:
        """Let other requests have its conversation, unless there are too many."""
        conversation, request.conversation = request.conversation, None
        if conversation is not None:
            conversation.user = None
            if conversation in self._kept:
                self._save(conversation)
        idle = sorted((one for one in self._kept if one.idle), key=lambda one: one.used)
        for one in idle[: max(0, len(self._kept) - self._most)]:
            self._kept.remove(one)

    def clear(self) -> None:
        """Drop all of them, saved where there is a store."""
        if self.store is not None:
            self.store.close(one for one in self._kept if one.idle)
        self._kept.clear()
        for session in self._sessions:
            session.conversation = None


def _common_prefix(ids: TokenIds, others: TokenIds) -> int:
    n = min(len(ids), len(others))
    different = np.flatnonzero(ids[:n] != others[:n])
    return int(different[0]) if len(different) else n
