"""The chain: the stages in their order, and the sampler that runs them once per token."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from edgellm.errors import NumericError, OptionError, shown
from edgellm.options.sampling import SamplingOptions, TokenChoice
from edgellm.sampling import dry, penalties, temperature, truncation
from edgellm.sampling.candidates import Candidates
from edgellm.sampling.constraint import TokenConstraint, allowed_ids
from edgellm.sampling.drawing import Chances, build_draw, chances_of, draw_after
from edgellm.sampling.penalties import Change, SamplingContext, TokenPieces, last_n
from edgellm.sampling.pieces import Mask
from edgellm.sampling.temperature import most_probable
from edgellm.sampling.truncation import UniformNumbers

Logits = npt.NDArray[np.float32]  # (n_vocab,)
Chosen = TypeVar("Chosen")
Processor = Callable[[npt.NDArray[np.int32], Logits], Logits]  # (ids so far, logits) -> logits
NO_TOKENS = np.empty(0, np.int32)


EDIT_STAGES = (*penalties.STAGES, *dry.STAGES)
SELECT_STAGES = (*truncation.STAGES, *temperature.STAGES)
PLAIN = {"top_k", "top_p", "min_p", "temperature"}  # stages that a device has, too


class Sampler:
    """One generation's way from logits to tokens. `seed`: the one in use, a new one where the options give none. `redrawable`:
    whether tokens may be drawn in another way of the same distribution, as no seed promises the same ones again."""

    def __init__(
        self,
        options: SamplingOptions,
        *,
        n_vocab: int,
        context: int,
        end_tokens: Collection[int] = (),
        vocabulary: TokenPieces | None = None,
        processors: Sequence[Processor] = (),
        suppressed: Collection[int] = (),
        constraint: TokenConstraint | None = None,
    ) -> None:
        self.seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
        self._uniform = UniformNumbers(self.seed)
        self._greedy = options.temperature <= 0
        self.redrawable = options.seed is None and not self._greedy and not options.mirostat and options.adaptive_target < 0
        self._processors = _checked(processors)
        around = SamplingContext(n_vocab, context, end_tokens, vocabulary, suppressed)
        edits = [stage for stage in EDIT_STAGES if stage.active(options, around)]
        self._edits = [stage.build(options, around) for stage in edits]
        lookback = max(last_n(options.repeat_last_n, around), last_n(options.dry_last_n, around))
        self._lookback = lookback if any(stage.looks_back for stage in edits) else 0
        self._constraint = constraint
        self._prepared = False
        self._mask: Mask | None = None
        truncating = options.mirostat == 0
        stages = [stage for stage in SELECT_STAGES if stage.active(options) and (truncating or stage.scales)]
        if self._greedy:  # stages after the last that can drop the best change nothing
            losing = [k for k, stage in enumerate(stages) if not stage.keeps_best]
            stages = stages[: losing[-1] + 1] if losing else []
        self._selects = [stage.build(options, self._uniform) for stage in stages]
        # Greedy decoding where some tokens are made less likely, none more: the best of all is rarely one of them.
        self._lowered = frozenset({*options.logit_bias, *suppressed, *(end_tokens if options.ignore_eos else ())})
        self._takes_best = (
            self._greedy
            and not (self._selects or self._processors or constraint is not None or self._lookback)
            and all(bias <= 0 for bias in options.logit_bias.values())
        )
        self._draw = build_draw(options, n_vocab, self._uniform)
        plain = {stage.name for stage in stages} <= PLAIN and not (self._processors or self._lookback or options.mirostat)
        plain = plain and constraint is None and options.adaptive_target < 0 and options.min_keep <= 1
        self._choice: TokenChoice | None = None
        if plain:
            biases = dict(options.logit_bias) | dict.fromkeys((*suppressed, *(end_tokens if options.ignore_eos else ())), -math.inf)
            cuts = max(options.top_k, 0), options.top_p, options.min_p
            self._choice = TokenChoice(max(options.temperature, 0), *cuts, 0, biases)

    @property
    def complete(self) -> bool:
        """True if the constraint lets nothing but the end follow."""
        return self._constraint is not None and self._constraint.complete

    def choice(self) -> TokenChoice | None:
        """How the next token is most likely chosen, where that takes logits and one number alone."""
        if self._choice is None or self._greedy:
            return self._choice
        return replace(self._choice, uniform=self._uniform.peek())

    def prepare(self) -> None:
        """Compute what the next draw needs beside logits: to be called while the step that brings them is computed."""
        if self._constraint is not None and not self._prepared:
            self._mask, self._prepared = self._constraint.mask(), True

    def accept(self, token: int) -> None:
        """`token` is part of the answer."""
        if self._constraint is not None:
            self._constraint.accept(token)
            self._prepared = False

    def rollback(self, n: int) -> None:
        """The last `n` tokens are no part of the answer after all."""
        if self._constraint is not None:
            self._constraint.rollback(n)
            self._prepared = False

    def sample(self, logits: Logits, history: array[int]) -> int:
        """The next token after `history` (all ids so far) from `logits` (n_vocab,), which are as they were when it returns.

        Raises NumericError where logits are NaN or infinite, or where no token is left.
        """
        if self._takes_best:
            at = int(logits.argmax())  # of NaN and numbers, NaN is the greatest
            if at not in self._lowered:  # others only become less likely, so it stays the best
                if not math.isfinite(peak := float(logits[at])):
                    raise _no_peak(peak)
                return at
        return self._chosen(logits, history, self._drawn)

    def sample_after(self, logits: Logits, history: array[int], guess: int, chances: Chances) -> int:
        """As `sample`, and as often as possible `guess`, which was drawn from `chances`; only where `redrawable`."""
        return self._chosen(
            logits, history, lambda edited: draw_after(self._candidates(edited), guess, chances, len(logits), self._uniform)
        )

    def chances(self, logits: Logits, history: array[int]) -> tuple[int, Chances]:
        """A token, and the distribution that it is drawn from; only where `redrawable`."""

        def choose(edited: Logits) -> tuple[int, Chances]:
            candidates = self._candidates(edited)
            return self._draw(candidates), chances_of(candidates)

        return self._chosen(logits, history, choose)

    def _chosen(self, logits: Logits, history: array[int], choose: Callable[[Logits], Chosen]) -> Chosen:
        """The logits that `choose` reads: the same array where few of them change, which then get back what they were."""
        self.prepare()
        edited, changes = logits, list[Change]()
        if self._processors or (self._edits and not logits.flags.writeable):
            edited = self._processed(logits, history)
        try:
            changes = self._edit(edited, history)
            return choose(edited)
        finally:
            if edited is logits:
                for ids, before in reversed(changes):
                    logits[ids] = before

    def _drawn(self, logits: Logits) -> int:
        candidates = self._candidates(logits)
        return most_probable(candidates) if self._greedy else self._draw(candidates)

    def _candidates(self, logits: Logits) -> Candidates:
        """The candidates that the next token is drawn from."""
        if not math.isfinite(peak := float(logits.max())):
            raise _no_peak(peak)
        candidates = Candidates(None, logits, False)
        if self._mask is not None:
            candidates = candidates.take(allowed_ids(self._mask, len(logits)))
            if not math.isfinite(peak := float(candidates.logits.max(initial=-math.inf))):
                raise _no_peak(peak)
        for select in self._selects:
            candidates = select(candidates)
        return candidates

    def _processed(self, logits: Logits, history: array[int]) -> Logits:
        """A copy, changed by the user's processors."""
        edited = logits.copy()
        ids = np.array(history, np.int32) if self._processors else NO_TOKENS
        for processor in self._processors:
            result = np.asarray(processor(ids, edited), np.float32)
            if result.shape != edited.shape:
                raise OptionError(f"a processor returned logits of shape {result.shape}; return {edited.shape}.")
            if result is not edited:  # it may be the processor's own, or read-only
                np.copyto(edited, result)
        return edited

    def _edit(self, logits: Logits, history: array[int]) -> list[Change]:
        """Change logits in place."""
        if not self._edits:
            return []
        latest = np.array(history[max(0, len(history) - self._lookback) :], np.int32) if self._lookback else NO_TOKENS
        return [edit(logits, latest) for edit in self._edits]


def _checked(processors: Sequence[Processor]) -> tuple[Processor, ...]:
    found = processors if isinstance(processors, Sequence) else (processors,)
    for processor in found:
        if not callable(processor):
            raise OptionError(f"processors has {shown(processor)}, not a function; give functions (ids, logits) -> logits.")
    return tuple(found)


def _no_peak(peak: float) -> NumericError:
    """The error where the greatest logit is not finite."""
    if peak == -math.inf:
        return NumericError("no token is left: every logit is -inf; allow a token in logit_bias or in your processors.")
    return NumericError(f"the model produced NaN or Inf logits ({peak}); its file may be damaged: fetch it again.")
