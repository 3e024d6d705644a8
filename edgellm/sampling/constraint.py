"""Which tokens may come next: the interface of constraints, and the one that follows a grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from edgellm.errors import SchemaError
from edgellm.sampling.json_limits import JsonLimits, JsonState, ValueState
from edgellm.sampling.pieces import Mask

if TYPE_CHECKING:
    from edgellm.sampling.matcher import Matcher

MAX_ROLLBACK = 256  # tokens


class TokenConstraint(Protocol):
    """Follows an answer token by token. The sampler knows nothing of what stands behind it."""

    @property
    def complete(self) -> bool:
        """True if nothing but the end may follow."""
        ...

    def mask(self) -> Mask | None:
        """The tokens that may come next, None where all may. Valid until the next call."""
        ...

    def accept(self, token: int) -> None:
        """`token` is the next one of the answer."""
        ...

    @property
    def accepting(self) -> bool:
        """True if the answer may end here."""
        ...

    def takes(self, token: int) -> bool:
        """True if `token` may come next."""
        ...

    def rollback(self, n: int) -> None:
        """The last `n` tokens were not accepted after all."""
        ...


def allowed_ids(mask: Mask, n_vocab: int) -> npt.NDArray[np.intp]:
    """The ids of a mask's tokens, ascending."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab])


class GrammarConstraint:
    """Keeps an answer within a grammar of llguidance; ends are allowed where the grammar is satisfied.

    `start` makes the matcher when the first mask is wanted, so that the vocabulary's tree is built while a prompt is read.
    """

    def __init__(
        self,
        start: Callable[[], Matcher],
        n_vocab: int,
        limits: JsonLimits | None = None,
        state: JsonState | ValueState = JsonState(),  # noqa: B008  # it is immutable
    ) -> None:
        """`limits`: of the JSON that the grammar describes; `state`: where it stands."""
        self._start, self._limits = start, limits
        self._states = [state]
        self._matcher: Matcher | None = None
        self._mask = np.zeros((n_vocab + 31) // 32, np.uint32)

    @property
    def _following(self) -> Matcher:
        if self._matcher is None:
            self._matcher = self._start()
        return self._matcher

    @property
    def complete(self) -> bool:
        return bool(self._following.is_stopped())

    @property
    def accepting(self) -> bool:
        """True if the answer may end here."""
        return bool(self._following.is_accepting())

    def takes(self, token: int) -> bool:
        """True if `token` may come next."""
        return self._following.validate_tokens([token]) == 1

    def mask(self) -> Mask:
        """See TokenConstraint. Raises SchemaError where the grammar is too much for the parser."""
        self._following.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        if self._limits is not None:
            self._limits.restrict(self._mask, self._states[-1])
        return self._mask

    def accept(self, token: int) -> None:
        self._following.consume_token(token)
        self._check()
        if self._limits is not None:
            self._states.append(self._states[-1].after(self._limits.pieces[token]))
            del self._states[:-MAX_ROLLBACK]

    def rollback(self, n: int) -> None:
        self._following.rollback(n)
        self._check()
        if self._limits is not None:
            del self._states[len(self._states) - n :]

    def _check(self) -> None:
        if self._following.is_error():
            reason = self._following.get_error().strip().partition("\n")[0]
            why = f" ({reason[:200]})" if " " in reason else ""  # a single word is a name of the parser's own
            raise SchemaError(f"no text can follow the answer's form any further{why}; give a simpler one.")


class AnyConstraint:
    """Keeps an answer within one of several constraints: all those that fit what is written hold together."""

    def __init__(self, constraints: Sequence[TokenConstraint]) -> None:
        self._fitting = [tuple(constraints)]  # after each token

    @property
    def complete(self) -> bool:
        return all(each.complete for each in self._fitting[-1])

    @property
    def accepting(self) -> bool:
        return any(each.accepting for each in self._fitting[-1])

    def takes(self, token: int) -> bool:
        return any(each.takes(token) for each in self._fitting[-1])

    def mask(self) -> Mask | None:
        first, *others = (each.mask() for each in self._fitting[-1])
        for mask in others:
            first = None if first is None or mask is None else first | mask
        return first

    def accept(self, token: int) -> None:
        """See TokenConstraint. A token that none takes is for the first to refuse."""
        fitting = tuple(each for each in self._fitting[-1] if each.takes(token)) or self._fitting[-1][:1]
        for each in fitting:
            each.accept(token)
        self._fitting.append(fitting)
        del self._fitting[: -MAX_ROLLBACK - 1]

    def rollback(self, n: int) -> None:
        for _ in range(n):
            for each in self._fitting.pop():
                each.rollback(1)
