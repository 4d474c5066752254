"""Lines over time in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubstorm.web.watch import LiveHistory


def line_of(history: LiveHistory, key: str) -> dict[int, float]:
    flat = history.whole()[key]
    return {int(step): value for step, value in zip(flat[::2], flat[1::2], strict=True)}


def test_an_interval_belongs_to_the_step_in_which_it_ends() -> None:
    history = LiveHistory()
    for at_s in (0.4, 1.0, 1.001, 2.0):
        history.add("load", "max", at_s, at_s)
    assert line_of(history, "load") == {0: 1.0, 1: 2.0}


def test_sources_are_added_up_and_instants_averaged() -> None:
    history = LiveHistory()
    for at_s, value in ((0.5, 1.0), (0.5, 2.0), (1.0, 5.0), (1.0, 6.0), (2.0, 7.0)):
        history.add("load", "sum", at_s, value)
    assert line_of(history, "load") == {0: 7.0, 1: 7.0}


def test_only_steps_that_changed_are_news() -> None:
    history = LiveHistory()
    history.add("load", "sum", 1.0, 3.0)
    assert history.changes() == {"load": [0, 3.0]}
    assert history.changes() == {}
    history.add("load", "sum", 2.0, 4.0)
    assert history.changes() == {"load": [1, 4.0]}


@given(st.sets(st.floats(0.01, 5000), min_size=1, max_size=60), st.integers(2, 40))
def test_steps_get_wider_and_not_more(instants: set[float], steps_max: int) -> None:
    history = LiveHistory(steps_max)
    for at_s in sorted(instants):
        history.add("largest", "max", at_s, at_s)
        history.add("constant", "sum", at_s, 3.0)
    largest, constant = line_of(history, "largest"), line_of(history, "constant")
    assert max(largest) < steps_max
    assert max(largest.values()) == float(f"{max(instants):.5g}")
    assert set(constant.values()) == {3.0}
    assert history.width_s <= max(1.0, 2 * max(instants) / (steps_max - 1))
