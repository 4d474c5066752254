"""Timeouts of silent agents."""

from __future__ import annotations

import pytest

from pubstorm.fleet.incarnation import Timeouts, Watchdog

BEATS = Timeouts(silence_s=10, beat_s=1, lost_s=3.5)
NO_BEATS = Timeouts(silence_s=10)


def waited(watchdog: Watchdog, seconds: float) -> None:
    """Looks at a silent agent for so long."""
    for _ in range(round(seconds * 10)):
        watchdog.wait(0.1, 0.1)


def greeted(timeouts: Timeouts) -> Watchdog:
    watchdog = Watchdog(timeouts)
    watchdog.on_line(is_report=True)
    return watchdog


@pytest.mark.parametrize(
    ("start", "seconds", "stop_s", "complaint"),
    [
        (Watchdog(BEATS), 30, None, ("silent", "said nothing for 30 s")),
        (greeted(BEATS), 3.5, None, ("lost", "has not answered for 3.5 s")),
        (greeted(BEATS), 3.5, 50, ("lost", "has not answered for 3.5 s")),
        (greeted(NO_BEATS), 10, None, ("silent", "sent no snapshot for 10 s")),
        (greeted(NO_BEATS), 10, 50, None),
        (greeted(NO_BEATS), 50, 50, ("silent", "did not stop in time and was killed")),
    ],
)
def test_silence_is_complained_of_at_its_limit(
    start: Watchdog, seconds: float, stop_s: float | None, complaint: tuple[str, str] | None
) -> None:
    if stop_s is not None:
        start.stop(stop_s)
    waited(start, seconds - 0.2)
    assert start.complaint() is None
    waited(start, 0.3)
    assert start.complaint() == complaint


def test_a_snapshot_begins_every_limit_anew() -> None:
    watchdog = greeted(BEATS)
    for _ in range(10):
        waited(watchdog, 3)
        watchdog.on_line(is_report=True)
    assert watchdog.complaint() is None


def test_time_without_a_listener_is_no_silence_of_agents() -> None:
    watchdog = greeted(BEATS)
    watchdog.wait(60, 0.5)
    assert watchdog.complaint() is None


def test_looks_are_short_and_end_with_the_next_limit() -> None:
    watchdog = greeted(BEATS)
    assert watchdog.look_s() == 0.5
    waited(watchdog, 3.4)
    assert 0 < watchdog.look_s() < 0.2
    waited(watchdog, 3.4)
    assert watchdog.look_s() == 0
    assert greeted(Timeouts()).look_s() == 0.5
