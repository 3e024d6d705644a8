"""One model's computing: prompts in chunks, single tokens, and the conversation whose keys are kept for the next call."""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from edgellm.backends.base import Executable, KindTime, Pending, Profiled, State, StepBatch, StepStopped, never
from edgellm.engine.prompts import TokenIds
from edgellm.engine.turns import Turns
from edgellm.errors import BackendError, ContextFull, FormatError, ModelClosed, OptionError
from edgellm.memory.sequence import Sequence
from edgellm.weights import WeightStore

Logits = npt.NDArray[np.float32]

NO_ROWS = np.empty(0, np.int32)
FIRST_ROW = np.zeros(1, np.int32)


class Session:
    """An executable and one conversation. Callers hold the turn while they use it.

    `owner`: the call for which the conversation was computed last; another one has to `prefill` before it can `decode`.
    """

    def __init__(self, executable: Executable, weights: WeightStore, path: str, *, positions: int | None) -> None:
        """`positions`: how many the model has learned, None where they go on for ever."""
        self.turns = Turns()
        self.owner: object | None = None
        self.positions, self._path = positions, path
        self.layout = executable.layout
        self._executable: Executable | None = executable
        self._weights = weights
        self._stepping = threading.Lock()        # held while executable and weights are used
        self._release = weakref.finalize(self, _release, executable, weights, self._stepping, os.getpid())
        self._sequence = Sequence(executable.layout)
        self._state: State | None = None
        self._begun: Pending | None = None       # the step of the newest token
        self._token = np.zeros(1, np.int32)

    @property
    def closed(self) -> bool:
        return not self._release.alive

    def check(self) -> Executable:
        """The executable. Raises ModelClosed, or FormatError where the file was changed under its memory map."""
        if self._executable is None or self.closed:
            raise ModelClosed(f"{self._path}: the model was closed; load it again.")
        with self._stepping:                     # at the end of the program the file is closed by another thread
            changed = self._weights.changed()
        if changed:
            raise FormatError("was changed on disk while the model was in use; load it again", file=self._path)
        return self._executable

    def check_room(self, n: int) -> None:
        """Raises ContextFull where `n` tokens are more than the model has positions for."""
        if self.positions is not None and n > self.positions:
            raise ContextFull(f"{n} tokens are more than the context of {self.positions}, and this model's learned positions "
                              "cannot slide; shorten the prompt or load the model with a larger context.")

    def prefill(self, owner: object, ids: TokenIds, cancelled: Callable[[], bool],
                progress: Callable[[int, int], None] | None = None) -> tuple[int, Logits | None]:
        """Make the conversation equal to `ids` (n,) and return how many were there already, and the last token's logits.

        The logits (n_vocab,) are None where `cancelled()` came true before the end. `progress(done, n)` is called before each step.
        """
        executable = self.check()
        if self._state is None:
            self._state = executable.new_state()
        self.owner = self._begun = None
        cached = self._keep(ids)
        at, logits = cached, None
        while at < len(ids):
            if progress is not None:
                progress(at, len(ids))
            n = min(executable.pace.tokens, len(ids) - at)
            rows = np.array([n - 1], np.int32) if at + n == len(ids) else NO_ROWS
            try:
                logits = self._step(executable, self._sequence, self._state, ids[at : at + n], rows, cancelled)
            except StepStopped:
                return cached, None
            at += n
        assert logits is not None, "the last token of a prompt is never cached"
        self.owner = owner
        return cached, logits[0]

    def _keep(self, ids: TokenIds) -> int:
        """Cut the conversation back to what it has in common with `ids`, all but the last of which may be kept."""
        common = min(self._sequence.common_prefix(ids), len(ids) - 1)
        if not self._sequence.can_truncate(common):
            common = 0
        self._sequence.truncate(common)
        return common

    def forget(self) -> None:
        """Drop the conversation and its memory: keys that are no numbers would spoil what is computed beside them."""
        self._sequence, self._state = Sequence(self.layout), None
        self.owner = self._begun = None

    def begin(self, token: int) -> bool:
        """Append one token without waiting, so that `decode` finds it under way; False, and nothing done, where that cannot be."""
        executable, state = self._executable, self._state
        if executable is None or not executable.runs_ahead or state is None:
            return False
        self._token[0] = token
        with self._stepping:
            try:
                self._begun = executable.submit(self._placed(self._sequence, state, self._token, FIRST_ROW))
            except BackendError:
                return False                     # `decode` will try and tell
            self._sequence.extend(self._token)
        return True

    def decode(self, token: int) -> Logits:
        """Append one token, if that was not begun, and return its logits (n_vocab,); valid until the next step."""
        executable, state, begun = self._executable, self._state, self._begun
        if executable is None or state is None:
            raise ModelClosed(f"{self._path}: the model was closed; load it again.")
        if begun is None:
            self._token[0] = token
            logits = self._step(executable, self._sequence, state, self._token, FIRST_ROW)
        else:
            logits = self._wait(begun)
        row: Logits = logits[0]
        return row

    def _wait(self, begun: Pending) -> Logits:
        self._begun = None
        try:
            with self._stepping:
                return begun.wait()["logits"]
        except Exception:
            self.forget()                        # the token is in the conversation, its keys perhaps not
            raise

    def all_logits(self, ids: TokenIds) -> Logits:
        """Logits (n, n_vocab) of every token in a context of their own; the conversation stays as it is."""
        executable = self.check()
        sequence, state = Sequence(self.layout), executable.new_state()
        most = min(executable.max_tokens, executable.max_outputs)
        parts = []
        for at in range(0, len(ids), most):
            tokens = ids[at : at + most]
            parts.append(self._step(executable, sequence, state, tokens, np.arange(len(tokens), dtype=np.int32)).copy())
        return np.concatenate(parts)

    def profile(self, ids: TokenIds, step: int) -> tuple[int, list[KindTime]]:
        """Compute `ids` in a context of their own; where the time of the last `step` of them goes, computed at once, or of as many
        as there are in one step; and how many that is.

        Raises OptionError where the back end cannot tell.
        """
        executable = self.check()
        if not isinstance(executable, Profiled):
            raise OptionError(f"the {executable.backend} back end cannot tell where its time goes; leave out --profile.")
        sequence, state = Sequence(self.layout), executable.new_state()
        at, last = 0, len(ids) - min(step, executable.max_tokens)
        while at < last:
            n = min(executable.max_tokens, last - at)
            self._step(executable, sequence, state, ids[at : at + n], NO_ROWS)
            at += n
        tokens = ids[last:]
        with self._stepping:
            return len(tokens), executable.profile(self._placed(sequence, state, tokens, np.array([len(tokens) - 1], np.int32)))

    @property
    def busy_seconds(self) -> float:
        """Seconds inside the back end's steps so far; 0 where it does not count them."""
        return self._executable.busy_seconds if isinstance(self._executable, Profiled) else 0.0

    @property
    def isa(self) -> str:
        """The instruction set in use; "" where there is none to tell."""
        return self._executable.isa if isinstance(self._executable, Profiled) else ""

    def _step(self, executable: Executable, sequence: Sequence, state: State, tokens: TokenIds, rows: TokenIds,
              stop: Callable[[], bool] = never) -> Logits:
        if not self._release.alive and threading.current_thread() is threading.main_thread():
            raise ModelClosed(f"{self._path}: the model was closed, for the program is ending.")
        with self._stepping:
            logits = executable.submit(self._placed(sequence, state, tokens, rows)).wait(stop)["logits"]
            sequence.extend(tokens)
        return logits

    @staticmethod
    def _placed(sequence: Sequence, state: State, tokens: TokenIds, rows: TokenIds) -> StepBatch:
        return StepBatch.single(state, tokens, sequence.place(len(tokens)), rows)

    def close(self) -> None:
        """End the executable's threads and drop conversation and weights. Closing twice does nothing."""
        self._executable = self._state = self.owner = self._begun = None
        self._sequence = Sequence(self.layout)
        self._release()


def _release(executable: Executable, weights: WeightStore, stepping: threading.Lock, process: int) -> None:
    """Free what a model holds: when it is closed or forgotten, or when the program ends while it is open.

    At the end daemon threads may still compute: the step under way is waited for, and no thread begins another one, for the
    lock is never given back. A forked process has neither the threads nor a lock it could trust.
    """
    if os.getpid() == process:
        stepping.acquire()
        executable.close()
        weights.close()
