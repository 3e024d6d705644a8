"""Drafts by a small model of the same vocabulary, which reads along with the conversation."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Collection

import numpy as np

from edgellm.engine.conversation import FIRST_ROW, NO_ROWS, Conversation, Logits
from edgellm.engine.engine import Engine
from edgellm.engine.speculate.drafter import Drafter
from edgellm.sampling import Sampler, SamplingOptions

CATCH_UP = 64  # tokens that it reads at most before a step: others wait meanwhile
Pick = Callable[[Logits], int | None]
NOTHING = array("i")
LEAST_PROBABILITY = 0.3  # of the likeliest token; a draft ends before one that is less likely


class SmallModel:
    """A model that guesses for another one, and what it has read. One answer at a time is drafted."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._conversation: Conversation | None = None

    def guess(self, ids: array[int], most: int, pick: Pick) -> list[int]:
        """Up to `most` tokens, each picked from the logits after those before it; none while it has not read all of `ids`, and
        past its learned positions."""
        engine = self._engine
        engine.check_file()
        if engine.positions is not None and (most := min(most, engine.positions - len(ids) + 1)) <= 0:
            return []
        with self._lock, engine.alone() as executable:
            if self._conversation is None:
                self._conversation = Conversation.empty(executable)
            conversation, known = self._conversation, np.frombuffer(ids[:], np.int32)
            conversation.truncate(conversation.useful(known))
            unread = known[len(conversation) :]
            if len(unread) > (at_once := min(executable.max_tokens, CATCH_UP)):
                conversation.compute(executable, unread[:at_once], NO_ROWS)
                return []
            most = min(most, max(1, conversation.sequence.can_take_back))
            guesses, tokens, rows = list[int](), unread, np.array([len(unread) - 1], np.int32)
            while len(guesses) < most:
                token = pick(conversation.compute(executable, tokens, rows)[0])
                if token is None:
                    break
                guesses.append(token)
                tokens, rows = np.array([token], np.int32), FIRST_ROW
            return guesses


class ModelDrafter(Drafter):
    """Proposes what a small model takes for likely, or draws; its own time counts in what drafts cost."""

    def __init__(self, small: SmallModel, n_vocab: int, sampler: Sampler | None = None) -> None:
        """`sampler`: draws guesses, None for the likeliest."""
        super().__init__()
        self._small, self._n_vocab, self._sampler = small, n_vocab, sampler
        self._spent = 0.0

    def propose(self, ids: array[int], room: int) -> list[int]:
        most, started = self._most(room), time.perf_counter()
        if not most:
            return []
        self.chances = []
        guesses = self._small.guess(ids, most, self._drawn if self._sampler is not None else _likeliest)
        known = [token < self._n_vocab for token in guesses]
        self._spent = time.perf_counter() - started
        return guesses[: known.index(False)] if False in known else guesses

    def _drawn(self, logits: Logits) -> int | None:
        """A token that both vocabularies have. Whether there is one does not depend on the draw, which would shift the answer's."""
        assert self._sampler is not None
        token, chances = self._sampler.chances(logits[: self._n_vocab], NOTHING)
        if chances.probabilities.max() < LEAST_PROBABILITY:
            return None
        self.chances.append(chances)
        return token

    def note(self, drafted: int, produced: int, seconds: float) -> None:
        super().note(drafted, produced, seconds + (self._spent if drafted else 0.0))
        self._spent = 0.0


def _likeliest(logits: Logits) -> int | None:
    token = int(logits.argmax())
    return token if 1 / np.exp(logits - logits[token]).sum() >= LEAST_PROBABILITY else None


def guessing(options: SamplingOptions, n_vocab: int, context: int, banned: Collection[int]) -> Sampler:
    """A sampler of guesses for answers with these options.

    `n_vocab`: of the tokens that both models have; `banned`: tokens that the answer never has.
    """
    usual = SamplingOptions(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        logit_bias={token: bias for token, bias in options.logit_bias.items() if token < n_vocab},
    )
    return Sampler(usual, n_vocab=n_vocab, context=context, suppressed=[token for token in banned if token < n_vocab])
