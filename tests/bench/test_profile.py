"""`profile`: a real step of a conversation, whose parts add up to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pace import slowness
from test_cpu_backend import TOKENS, logits, ready
from tiny_models import tiny_model

from edgellm.backends.base import StepTimes
from edgellm.backends.cpu.profile import WAITS, WAKES, Clock
from edgellm.engine.conversation import Conversation
from edgellm.memory.sequence import Sequence

OWN_KINDS = {WAITS, WAKES}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["llama", "qwen35"])
def test_a_profiled_step_is_a_real_one(tmp_path: Path, name: str, threads: int) -> None:
    """States and keys are written once: what follows has the bits that it has without a profile."""
    with ready(tiny_model(tmp_path / "m.gguf", name), threads=threads) as (executable, _):
        plain = logits(executable, TOKENS)
        state, sequence, found = executable.new_state(), Sequence(executable.layout), list[StepTimes]()
        for first, end in ((0, 8), (8, 9), (9, 10), (10, 17)):
            part = np.array(TOKENS[first:end], np.int32)
            found.append(executable.profile(Conversation(sequence, state).step(part, np.zeros(1, np.int32))))
            sequence.extend(part)
        rest = np.array(TOKENS[17:], np.int32)
        step = Conversation(sequence, state).step(rest, np.arange(len(rest), dtype=np.int32))
        assert np.array_equal(executable.submit(step).wait()["logits"], plain[17:])
        for mode, times in (("batch", found[0]), ("decode", found[1])):
            records = [executable._plan.records[number].kernel for number in executable._plan.chosen(mode)]
            calls = {kind.kind: kind.calls for kind in times.kinds if kind.kind not in OWN_KINDS}
            assert calls == {kernel: records.count(kernel) for kernel in records}
            assert {kind.kind for kind in times.kinds} >= OWN_KINDS and all(kind.seconds >= 0 for kind in times.kinds)
        left = min(times.seconds * (1 - times.coverage) for times in found)  # the way from Python into the walk and back
        assert 0 <= left < 50e-6 * slowness() or left < 0.03 * min(times.seconds for times in found)


def test_parts_are_of_the_clock_that_python_reads(tmp_path: Path) -> None:
    with ready(tiny_model(tmp_path / "m.gguf"), threads=1) as (executable, _):
        batch = Conversation.empty(executable).step(np.array([1], np.int32), np.zeros(1, np.int32))
        executable.profile(batch)
        clock = executable._timed["decode"][1]
        assert isinstance(clock, Clock)
        assert clock.tick_seconds() == pytest.approx(clock.tick_seconds(), rel=0.01) and clock.ticks() < clock.ticks()
