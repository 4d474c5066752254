"""The limit of closed loops: the window, the sockets, or the broker that takes their messages. Pure
functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable

from pubstorm.quantity import count_text, duration_text
from pubstorm.result import LimitedBy, Measured
from pubstorm.verdict.findings import Finding, of_publishers
from pubstorm.verdict.watched_findings import processes_at_limit

MIN_WINDOW_USE = 0.9
"""Share of a closed loop's windows in use from which the window sets the limit."""
QUEUEING_FACTOR = 10
"""Ratio of the median round trip to the shortest from which messages have queued."""
FULL_SHARE = 0.9
"""Share of the processors that a broker can use from which the broker, and not the window, limits a
closed loop. The broker has idle moments while every window waits for its round trip."""


def _closed_loops(measured: Measured) -> Iterable[Finding]:
    """A closed loop always has a limit: its window, or what takes its messages."""
    published, full = of_publishers(measured), list(processes_at_limit(measured, FULL_SHARE))
    for name, population in measured.populations.items():
        if not population.closed_loop or not population.sent_total or name in published:
            continue
        window, trips = population.closed_loop_window, population.ack_latency_us.actual
        room = population.ready_max * window if window else 0
        if not window or population.in_flight_max < MIN_WINDOW_USE * room:
            yield Finding(f"{name}: the closed loop sent what the sockets took", LimitedBy.BROKER)
            continue
        text = (
            f"{name}: the closed loop kept {count_text(population.in_flight_max)} of "
            f"{count_text(room)} places in its windows of {count_text(window)} in use, and a round "
            f"trip took {duration_text(trips.p50)} at p50, {duration_text(trips.min)} at least"
        )
        if full:
            yield Finding(f"{text}: the broker had no more to give: {full[0]}", LimitedBy.BROKER)
        elif trips.p50 > QUEUEING_FACTOR * trips.min:
            yield Finding(f"{text}: messages queued at the broker", LimitedBy.BROKER)
        else:
            what = "round trips were measured, not what the broker carries"
            if measured.bridges:
                what += "; they end at the broker of the publishers, before any bridge"
            yield Finding(f"{text}: {what}", LimitedBy.WINDOW)


CLOSED_LOOP_RULES = (_closed_loops,)
