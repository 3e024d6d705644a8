"""A conversation of a caller's own: what it holds is kept between calls, can be forked, and goes on beside others."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Self

from edgellm.api.context_policy import ContextPolicy, check_policy
from edgellm.api.generating import Generating, Source
from edgellm.api.generation_options import Priority, check_priority
from edgellm.engine import saved_session
from edgellm.engine.conversation import Conversation, SessionCache
from edgellm.errors import SessionError

if TYPE_CHECKING:
    from edgellm.api.model import Model


class Session(Generating):
    """Made by `Model.session`; a context manager. Each call takes the whole prompt; what the session
    holds of it is not computed again.

    Sessions of one model are computed together, as many at a time as `load(parallel=...)` says; those in the background give way
    to others. A session's memory is its own until it is closed or dropped.
    """

    def __init__(
        self,
        model: Model,
        *,
        priority: Priority = "foreground",
        context_policy: ContextPolicy | None = None,
        adapters: int = 0,
        cache: SessionCache | None = None,
    ) -> None:
        self.priority: Priority = check_priority(priority)
        self.context_policy: ContextPolicy = model.context_policy if context_policy is None else check_policy(context_policy)
        self._model, self._cache = model, cache or SessionCache(adapters=adapters)
        self._closed = False
        model.engine.add_session(self._cache)

    @property
    def model(self) -> Model:
        return self._model

    @property
    def n_tokens(self) -> int:
        """Tokens that it holds."""
        conversation = self._cache.conversation
        return len(conversation) if conversation is not None else 0

    @property
    def closed(self) -> bool:
        return self._closed or self._model.closed

    def _source(self) -> Source:
        model = self._model._source().model
        if self._closed:
            raise SessionError("the session was closed; open another one with model.session().")
        return Source(model, self._cache, self.priority == "background", self.context_policy)

    def fork(self) -> Session:
        """A second session that goes on from here by itself; what both hold is in memory once. Raises SessionError, ModelClosed."""
        model, cache, _, _ = self._source()
        assert cache is not None
        return Session(model, priority=self.priority, context_policy=self.context_policy, cache=model.engine.fork(cache))

    def save(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        """Write what it holds to a file, from which `Model.resume` goes on, also in another process. The file is whole under its
        name or not there. `sync=False` does not wait for the disk: a power failure may damage the file, which `resume` then tells.

        Raises SessionError (closed), BackendError (a back end that cannot), Unwritable, ModelClosed.
        """
        model, cache, _, _ = self._source()
        assert cache is not None
        with model.engine.alone() as executable:
            conversation = cache.conversation or Conversation.empty(executable)
            saved_session.save(path, conversation, model.facts(cache.adapters), sync=sync)

    def close(self) -> None:
        """Free its memory; an answer that is being written for it is cancelled. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self._model.engine.close_session(self._cache)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.n_tokens} tokens, {self.priority}"
        return f"<edgellm.Session of {self._model.path.name}: {state}>"
