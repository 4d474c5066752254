"""Timeouts of silent agents."""

from __future__ import annotations

from pubstorm.fleet.timeouts import Timeouts, Watchdog

BEATS = Timeouts(silence_s=10, beat_s=1, lost_s=3.5)


def waited(watchdog: Watchdog, seconds: float) -> None:
    """Looks at a silent agent for so long."""
    for _ in range(round(seconds * 10)):
        watchdog.wait(0.1, 0.1)


def greeted(timeouts: Timeouts) -> Watchdog:
    watchdog = Watchdog(timeouts)
    watchdog.on_line(is_report=True)
    return watchdog


def test_one_that_says_nothing_at_all_is_silent() -> None:
    watchdog = Watchdog(BEATS)
    waited(watchdog, 29)
    assert watchdog.complaint(stopping=False) is None
    waited(watchdog, 1.1)
    assert watchdog.complaint(stopping=False) == ("silent", "said nothing for 30 s")


def test_one_that_answers_no_beat_is_lost_even_while_it_stops() -> None:
    for stopping in (False, True):
        watchdog = greeted(BEATS)
        waited(watchdog, 3.4)
        assert watchdog.complaint(stopping=stopping) is None
        waited(watchdog, 0.2)
        assert watchdog.complaint(stopping=stopping) == ("lost", "has not answered for 3.5 s")


def test_a_snapshot_begins_every_limit_anew() -> None:
    watchdog = greeted(BEATS)
    for _ in range(10):
        waited(watchdog, 3)
        watchdog.on_line(is_report=True)
    assert watchdog.complaint(stopping=False) is None


def test_without_beats_no_agent_is_lost() -> None:
    watchdog = greeted(Timeouts(silence_s=10))
    waited(watchdog, 9)
    assert watchdog.complaint(stopping=False) is None
    waited(watchdog, 1.1)
    assert watchdog.complaint(stopping=False) is not None
    assert watchdog.complaint(stopping=True) is None


def test_time_without_a_listener_is_no_silence_of_agents() -> None:
    watchdog = greeted(BEATS)
    watchdog.wait(60, 0.5)
    assert watchdog.complaint(stopping=False) is None


def test_looks_are_short_and_end_with_the_next_limit() -> None:
    watchdog = greeted(BEATS)
    assert watchdog.look_s(stopping=False) == 0.5
    waited(watchdog, 3.4)
    assert 0 < watchdog.look_s(stopping=False) < 0.2
    waited(watchdog, 3.4)
    assert watchdog.look_s(stopping=False) == 0
    assert greeted(Timeouts()).look_s(stopping=True) == 0.5
