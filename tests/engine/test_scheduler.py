"""The rows of a step: limits hold, no request starves, decoding and the foreground come first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgellm.engine.scheduler import BACKGROUND_ROWS, PIECE, Candidate, StepLimits, plan

WIDE = StepLimits(256, 32, 32, 128)
flags = st.booleans()
candidates = st.lists(
    st.builds(Candidate, st.sampled_from([1, 1, 2, 16, 300]), flags, flags, flags, st.integers(0, 9)), min_size=1, max_size=12
)
row_seconds = st.sampled_from([0.0, 1e-5, 0.001, 0.1, 10.0])
limits = st.builds(StepLimits, st.integers(1, 64), st.integers(1, 8), st.integers(1, 8), st.integers(1, 64), row_seconds).map(
    lambda limit: limit._replace(prompt_rows=min(limit.prompt_rows, limit.rows))
)


@given(candidates, limits)
def test_a_step_keeps_its_limits_and_is_never_empty(candidates: list[Candidate], limits: StepLimits) -> None:
    step = plan(candidates, limits)
    assert step and len({index for index, _ in step}) == len(step) <= limits.segments
    assert sum(n for _, n in step) <= limits.rows and all(1 <= n <= candidates[index].rows for index, n in step)
    assert sum(n if candidates[index].every_row else n == candidates[index].rows for index, n in step) <= limits.outputs


@given(candidates, limits)
def test_nobody_starves_among_equals(candidates: list[Candidate], limits: StepLimits) -> None:
    """All in the foreground, all awaited: everybody has been in a step after a while, although nobody ever ends."""
    state = [candidate._replace(foreground=True, awaited=True, last_step=0) for candidate in candidates]
    seen = set()
    for step in range(1, 2 * len(candidates) + 3):
        for index, _ in plan(state, limits):
            seen.add(index)
            state[index] = state[index]._replace(last_step=step)
    prompts = {index for index, candidate in enumerate(state) if candidate.rows > 1}
    assert seen >= set(range(len(candidates))) - prompts and (not prompts or min(prompts) in seen), "one prompt after another"


def test_all_that_decode_go_together() -> None:
    assert plan([Candidate(1)] * 16, WIDE) == [(index, 1) for index in range(16)]


def test_a_prompt_alone_takes_what_the_pace_allows() -> None:
    assert plan([Candidate(300)], WIDE) == [(0, 128)] and plan([Candidate(7), Candidate(300)], WIDE) == [(0, 7), (1, 121)]


def test_prompts_go_in_pieces_beside_decoding() -> None:
    assert plan([Candidate(300), Candidate(1), Candidate(300)], WIDE) == [(1, 1), (0, PIECE)]


def test_pieces_take_as_long_as_a_reader_hardly_notices() -> None:
    def rows(decoding: int, prompts: int, row_seconds: float) -> int:
        step = plan([*[Candidate(1)] * decoding, *[Candidate(1000)] * prompts], WIDE._replace(row_seconds=row_seconds))
        return sum(n for index, n in step if index >= decoding)

    assert rows(4, 1, 0.002) == 46, "0.1 s"
    assert rows(4, 8, 0.002) == 96 and rows(1, 9, 0.002) == 124, "more that wait for their first token; 0.25 s at most"
    assert rows(4, 1, 1.0) == PIECE and rows(1, 1, 1e-6) == WIDE.prompt_rows


def test_short_prompts_do_not_wait_for_a_long_one() -> None:
    assert plan([Candidate(9000), Candidate(30), Candidate(20)], WIDE) == [(0, 78), (2, 20), (1, 30)]
    assert plan([Candidate(9000), Candidate(4000), Candidate(300)], WIDE) == [(0, 64), (2, 64)], "half is for the oldest"
    assert plan([Candidate(300), Candidate(299)], WIDE) == [(0, 128)], "equals one after another"
    assert plan([Candidate(1), Candidate(300), Candidate(12)], WIDE) == [(0, 1), (1, 8), (2, 8)]


def test_the_background_rides_along() -> None:
    behind = [Candidate(1, foreground=False, last_step=n) for n in range(8)]
    assert plan([Candidate(1), *behind], WIDE) == [(0, 1), *((1 + n, 1) for n in range(BACKGROUND_ROWS))], "a few beside decoding"
    assert plan([Candidate(300), *behind], WIDE) == [(0, 120), *((1 + n, 1) for n in range(8))], "all beside a prompt"
    assert plan([Candidate(1), Candidate(300, foreground=False)], WIDE) == [(0, 1), (1, BACKGROUND_ROWS)]
    assert plan([*behind, Candidate(300, foreground=False)], WIDE)[-1] == (8, 120)
    slow = WIDE._replace(row_seconds=0.002)
    assert plan([Candidate(300, foreground=False)], slow) == [(0, 50)], "the foreground soon has its turn"


def test_what_nobody_waits_for_only_fills_up() -> None:
    eager, asked = Candidate(1, awaited=False), Candidate(1, last_step=9)
    assert plan([eager, asked], WIDE) == [(1, 1), (0, 1)] and plan([eager, asked], WIDE._replace(segments=1)) == [(1, 1)]


def test_one_segment_at_a_time_is_shared_by_turns() -> None:
    narrow = WIDE._replace(segments=1)
    assert plan([Candidate(1, last_step=5), Candidate(300, last_step=4)], narrow) == [(1, 128)]
    assert plan([Candidate(1, last_step=5), Candidate(300, last_step=6)], narrow) == [(0, 1)]
    assert plan([Candidate(1, last_step=5), Candidate(1, last_step=4)], narrow) == [(1, 1)]
