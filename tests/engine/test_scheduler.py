"""Which tasks a step carries: limits are never passed, nobody starves, decoding and the foreground come first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgellm.engine.scheduler import BACKGROUND_ROWS, PIECE, Limits, Wish, plan

WIDE = Limits(256, 32, 32, 128)
flags = st.booleans()
wishes = st.lists(
    st.builds(Wish, st.sampled_from([1, 1, 2, 16, 300]), flags, flags, flags, st.integers(0, 9)), min_size=1, max_size=12
)
limits = st.builds(Limits, st.integers(1, 64), st.integers(1, 8), st.integers(1, 8), st.integers(1, 64)).map(
    lambda limit: limit._replace(pace=min(limit.pace, limit.rows))
)


@given(wishes, limits)
def test_a_step_keeps_its_limits_and_is_never_empty(wishes: list[Wish], limits: Limits) -> None:
    step = plan(wishes, limits)
    assert step and len({index for index, _ in step}) == len(step) <= limits.segments
    assert sum(n for _, n in step) <= limits.rows and all(1 <= n <= wishes[index].rows for index, n in step)
    assert sum(n if wishes[index].every_row else n == wishes[index].rows for index, n in step) <= limits.outputs


@given(wishes, limits)
def test_nobody_starves_among_equals(wishes: list[Wish], limits: Limits) -> None:
    """All in the foreground, all wanted: everybody has been in a step after a while, although nobody ever ends."""
    served = [wish._replace(foreground=True, wanted=True, served=0) for wish in wishes]
    seen = set()
    for step in range(1, 2 * len(wishes) + 3):
        for index, _ in plan(served, limits):
            seen.add(index)
            served[index] = served[index]._replace(served=step)
    prompts = {index for index, wish in enumerate(served) if wish.rows > 1}
    assert seen >= set(range(len(wishes))) - prompts and (not prompts or min(prompts) in seen), "prompts come one after the other"


def test_all_that_decode_go_together() -> None:
    assert plan([Wish(1)] * 16, WIDE) == [(index, 1) for index in range(16)]


def test_a_prompt_alone_takes_what_the_pace_allows() -> None:
    assert plan([Wish(300)], WIDE) == [(0, 128)] and plan([Wish(7), Wish(300)], WIDE) == [(0, 7), (1, 121)]


def test_prompts_go_in_pieces_beside_decoding() -> None:
    assert plan([Wish(300), Wish(1), Wish(300)], WIDE) == [(1, 1), (0, PIECE)]


def test_the_background_rides_along() -> None:
    behind = [Wish(1, foreground=False, served=n) for n in range(8)]
    assert plan([Wish(1), *behind], WIDE) == [(0, 1), *((1 + n, 1) for n in range(BACKGROUND_ROWS))], "a few beside decoding"
    assert plan([Wish(300), *behind], WIDE) == [(0, 120), *((1 + n, 1) for n in range(8))], "all beside a prompt"
    assert plan([Wish(1), Wish(300, foreground=False)], WIDE) == [(0, 1), (1, BACKGROUND_ROWS)]
    assert plan([*behind, Wish(300, foreground=False)], WIDE)[-1] == (8, 120)


def test_what_nobody_waits_for_only_fills_up() -> None:
    eager, asked = Wish(1, wanted=False), Wish(1, served=9)
    assert plan([eager, asked], WIDE) == [(1, 1), (0, 1)] and plan([eager, asked], WIDE._replace(segments=1)) == [(1, 1)]


def test_one_segment_at_a_time_is_shared_by_turns() -> None:
    narrow = WIDE._replace(segments=1)
    assert plan([Wish(1, served=5), Wish(300, served=4)], narrow) == [(1, 128)]
    assert plan([Wish(1, served=5), Wish(300, served=6)], narrow) == [(0, 1)]
    assert plan([Wish(1, served=5), Wish(1, served=4)], narrow) == [(1, 1)]
