"""Latencies of which the generator made too much: a message that an agent sends late makes a fast
broker look slow. Beside such a figure stands the same one from the actual send."""

from __future__ import annotations

from dataclasses import replace

from pubstorm.metrics.expressions import Expression
from pubstorm.result import Measured
from pubstorm.result.figures import evaluate
from pubstorm.result.figures.reading import Found

GENERATOR_SHARE = 0.2
"""Share of a latency that the generator may make."""
GENERATOR_MIN_US = 1000.0
"""Lateness up to which the generator made none of it."""
INTENDED = {"latency": "latency.actual", "ack_latency": "ack_latency.actual"}
"""Latencies from the scheduled instant, with those from the actual send."""
ROUND_TRIP = "round_trip"
"""A time from the scheduled instant without a twin."""
UP_TO_P99 = frozenset({"mean", "min", "p50", "p90", "p95", "p99"})
"""Statistics whose lateness is at most the 99th percentile of that of all messages."""


def from_send_text(asked: Expression, sent: Found) -> str:
    """Returns the value from the actual send, in words."""
    least = "at least " if asked.metric == ROUND_TRIP else ""
    return f"{least}{sent} from the actual send"


def from_send(measured: Measured, asked: Expression) -> Found | None:
    """Returns the figure of an expression from the actual send, if the generator made more than
    `GENERATOR_SHARE` of it and more than `GENERATOR_MIN_US`; else None. For round trips it is the
    least that can be: the lateness of all messages is the most that the generator made."""
    metric = asked.metric.removesuffix(".intended")
    found = evaluate(measured, asked) if metric in {*INTENDED, ROUND_TRIP} else None
    late = measured.fleet.lateness_us
    if not isinstance(found, Found) or not late.count:
        return None
    most = late.p99 if asked.statistic in UP_TO_P99 else late.max
    if metric == ROUND_TRIP:
        actual = replace(found, value=max(found.value - most, 0.0))
    else:
        twin = evaluate(measured, replace(asked, metric=INTENDED[metric]))
        if not isinstance(twin, Found):
            return None
        actual = twin
    own = found.value - actual.value
    if measured.fleet.blocked_us.count or measured.publishers:
        # The wait for window, socket and connection is not the generator's, nor is a publisher's.
        own = min(own, most)
    return actual if own > max(GENERATOR_SHARE * found.value, GENERATOR_MIN_US) else None
