"""Figures of monitors over the whole run, its stages and its phases. `samples.csv` has the
readings."""

from __future__ import annotations

from collections.abc import Iterable
from operator import not_
from typing import Literal

from pydantic import Field

from pubstorm.contract.source import SourceKind
from pubstorm.contract.value import Number, Value
from pubstorm.metrics.metric import READING_STATISTICS
from pubstorm.quantities import span_text

ENOUGH_SHARE = 0.9
"""Share of a span that readings must cover for a figure over it."""
_FIELDS = {"rate": "rate_per_s", "slope": "slope_per_h"}
"""Fields of statistics whose name differs."""


def is_none(value: object) -> bool:
    """Returns True for None."""
    return value is None


class Statistics(Value):
    """Readings of a span, in short; zeros where there are none."""

    count: int = 0
    """Readings."""
    first: Number = 0.0
    """The first."""
    last: Number = 0.0
    """The last."""
    min: Number = 0.0
    """The smallest."""
    mean: Number = 0.0
    """Arithmetic mean."""
    max: Number = 0.0
    """The largest."""
    rate_per_s: Number | None = None
    """Growth of a count per second, from the first distinct reading to the last. A count that
    falls started again at zero. null: fewer than two distinct readings."""
    slope_per_h: Number | None = Field(default=None, exclude_if=is_none)
    """Slope of a line through the readings, in the unit of the readings an hour. Left out if too
    little was measured: less than an hour, or readings that depend on those before them."""
    slope_bound_per_h: Number = Field(default=0.0, exclude_if=not_)
    """Half the width of its confidence interval of 95 %. Left out if there is no slope."""
    unread_s: Number = Field(default=0.0, exclude_if=not_)
    """Time in the span for which readings were due and none came, in seconds. Left out if it is
    0."""
    span_s: Number = Field(default=0.0, exclude_if=not_)
    """Length of the span, in seconds. Left out if readings cover it."""

    @property
    def is_enough(self) -> bool:
        """True if readings cover enough of the span for a figure over it."""
        return self.unread_s <= (1 - ENOUGH_SHARE) * self.span_s

    @property
    def unread_text(self) -> str:
        """The time without readings, in words."""
        return f"not read for {span_text(self.unread_s)} of {span_text(self.span_s)}"

    def value(self, statistic: str) -> float | None:
        """Returns a statistic by its name in expressions; None if there are too few readings.
        Raises KeyError if there is no such statistic."""
        if statistic not in READING_STATISTICS:
            raise KeyError(statistic)
        if statistic == "increase":
            return self.last - self.first
        found: float | None = getattr(self, _FIELDS.get(statistic, statistic))
        return found


class Watched(Value):
    """One figure of one source."""

    source: str
    """Name of a broker (`broker-0`) or of many together (`boxes`), `host`, another host
    (`host-NAME`), `agent-0`, bridges, a source of the monitors, or for its rates a population."""
    kind: SourceKind
    """Kind of the source. A publisher under test can have the name of its population."""
    group: str
    """Subject of thresholds that several sources share; equal to `source` if there is none."""
    metric: str
    """Name, unit last."""
    whole: Statistics
    """Readings over the whole run."""
    load: Statistics
    """Readings over the publish stages, without their drains; equal to `whole` if there are
    none."""
    spans: dict[str, Statistics] = Field(default_factory=dict)
    """Readings over each stage and phase, by name."""

    def over(self, span: str | None) -> Statistics:
        """Returns the readings in a span; without one, those under load."""
        return self.load if span is None else self.spans.get(span, Statistics())


def readings(watched: Iterable[Watched], statistic: str, span: str | None) -> list[float]:
    """Returns a statistic of each monitor that has it in a span."""
    found = (each.over(span) for each in watched)
    values = (each.value(statistic) for each in found if each.count)
    return [value for value in values if value is not None]


class ObserverTraffic(Value):
    """A client that only watches, and is load for the broker too. Its traffic is in no other
    figure."""

    name: str
    """The source it reads for."""
    target: str
    """Address of its broker."""
    topics: tuple[str, ...]
    """Topic filters of its subscriptions."""
    received_total: int
    """Messages that it received."""
    received_bytes: int
    """Their payloads together, in bytes."""
    problem: str | None = None
    """Reason of its failure; null if it worked."""


class MonitorGap(Value):
    """A time in which the controller did not run: no monitor was read."""

    from_s: Number
    """Start, after that of the run."""
    to_s: Number
    """End, after the start of the run."""


class MonitorProblem(Value):
    """Something that could not be watched."""

    source: str
    """Name of the source of the monitor."""
    group: str = ""
    """Subject of thresholds that several sources share; empty if there is none."""
    at_s: Number
    """Time after the start of the run."""
    text: str
    """Description of the problem, with advice."""


class ProfiledSymbol(Value):
    """A function in the profile of a broker."""

    share: Number
    """Share of the samples that were in it."""
    command: str
    """The program."""
    module: str
    """File or kernel of the function."""
    symbol: str
    """Name of the function."""


class ProfileResult(Value):
    """The profile by `perf record`, or the reason why there is none."""

    broker: str
    """The profiled broker."""
    stage: str
    """Stage of the profile."""
    status: Literal["recorded", "missing"]
    """missing: perf is not there, not allowed, or found nothing."""
    text: str
    """Description of the profile, or of what is missing, with advice."""
    samples_total: int = 0
    """Samples taken."""
    symbols: tuple[ProfiledSymbol, ...] = ()
    """Functions with the largest shares, largest first."""
    folded_file: str | None = None
    """File of folded stacks in the run directory, one `a;b;c count` on each line."""


class StaleState(Value):
    """Stale state of a broker before the run, or state that the run left and removed."""

    target: str
    """The broker."""
    when: Literal["before", "after"]
    """Before the run, or after it."""
    what: Literal["retained", "sessions", "queued", "unknown"]
    """Retained messages that this run's clients would get or that its topics have; sessions of
    this run's client identifiers; messages queued for them; or it could not be looked for."""
    total: int
    """Number of them."""
    text: str
    """Description, with examples."""
