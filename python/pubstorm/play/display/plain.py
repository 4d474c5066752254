"""The display without a terminal: a line on stderr at an interval, as stdout is for data."""

from __future__ import annotations

import time
from pathlib import Path

from pubstorm.metrics import columns_of
from pubstorm.metrics.metric import Metric, ReportColumn
from pubstorm.output import warn
from pubstorm.play.barriers import Clock
from pubstorm.play.display import Live, Summary
from pubstorm.quantities import count_text, duration_text, rate_text, share_text, span_text


class PlainLive(Live):
    """Prints a summary at the start of each stage, and one after each interval."""

    def __init__(self, interval_ns: int, clock: Clock = time.monotonic_ns) -> None:
        self._interval_ns = interval_ns
        self._clock = clock
        self._next_ns = 0
        self._stage = 0

    def begin(self, name: str, _folder: Path) -> None:
        """Names the run."""
        self._next_ns = self._stage = 0
        warn(f"run {name}")

    def step(self, text: str) -> None:
        """Prints the line."""
        warn(text)

    def starting(self, text: str) -> None:
        """Prints the line if its time has come."""
        if self._is_time():
            warn(text)

    def show(self, summary: Summary) -> None:
        """Prints one line if its time has come, or if a stage begins."""
        is_new, self._stage = summary.time.number != self._stage, summary.time.number
        if self._is_time() or is_new:
            warn(line_of(summary, self.after_s))

    def note(self, text: str) -> None:
        """Prints the note."""
        warn(f"! {text}")

    def _is_time(self) -> bool:
        now_ns = self._clock()
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + self._interval_ns
        return True


def line_of(summary: Summary, after_s: float = 0.0) -> str:
    """A summary in one line. `after_s` is the time that further runs take."""
    parts = [
        f"{span_text(summary.elapsed_s)}",
        f"{summary.time.name} {share_text(round(summary.time.share, 2))}",
        *filter(None, (_text(*each, summary) for each in columns_of("live"))),
    ]
    parts += [f"{reason} {count_text(count)}" for reason, count in summary.outcomes.items()]
    parts.append(f"busy {share_text(round(summary.busy_share, 2))}")
    parts.append(summary.time.left_text(after_s))
    return "  ".join(parts)


def _text(metric: Metric, column: ReportColumn, summary: Summary) -> str:
    """Returns a figure of all populations together; empty if it is not worth the room."""
    populations = summary.populations
    if metric.kind == "histogram":
        latency = getattr(summary, metric.name)
        head, _ = column.named(metric.name)[-1]
        return f"{head} {duration_text(latency.p99)}" if latency.count else ""
    if not column.rank:
        return ""
    value = sum(each.figures.get(metric.name, 0) for each in populations)
    if metric.unit == "per_s":
        is_due = summary.publishes and column.when == "always"
        if not value and not is_due:
            return ""
        return f"{column.head.removesuffix('/s')} {rate_text(value)}/s"
    if metric.of_a_size:
        clients = sum(population.clients for population in populations)
        return f"{column.head} {count_text(value)}/{count_text(clients)}"
    return f"{column.head} {count_text(value)}" if value else ""
