"""The declaration of a metric: everything about one figure, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from pubstorm.contract import SourceKind
from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer
from pubstorm.quantities import SLOPES, Unit

Owner = SourceKind | Literal["deliveries", "run", "phase", "fault"]
"""Something that has metrics: a kind of source, the deliveries of all populations together, the
run as a whole, its phases or its faults."""
Kind = Literal["counter", "gauge", "histogram", "derived"]
SpanKind = Literal["stage", "phase"]
View = Literal["page", "live", "sides", "runs"]
"""A report of a run, the live page, a comparison of two sides, or runs beside each other."""

LATENCY_STATISTICS = ("mean", "min", "p50", "p90", "p99", "p999", "max")
"""Statistics of durations. They have any other percentile too."""
READING_STATISTICS = ("mean", "min", "max", "first", "last", "increase", "rate", "slope")
"""Statistics of what has readings over time."""
LEAST_IS_WORST = ("fairness", "min")
"""Statistics of which the smallest is the worst of several populations."""
UNIT_SUFFIXES: tuple[Unit, ...] = ("bytes_per_s", "bytes", "per_s", "us", "s")
"""Units that names end with, those that end with another one first."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Counters of which one must be above zero for a threshold to pass: `lost == 0` says nothing
    without expected deliveries. Stages and phases need only counters that they keep."""

    counters: tuple[str, ...]
    """Fields of a population's result."""
    nothing: str = ""
    """Reason of a failure if all are zero, with the places `{of}` or `{to}` (a population) and
    `{where}` (a span); empty: the result has the reason why there was no delivery."""
    may_be_earlier: bool = False
    """True if a stage needs none: its clients may have connected in an earlier one."""
    needs_stamps: bool = False
    """True if only messages with a stamp show the figure."""


@dataclass(frozen=True, slots=True)
class Divisor:
    """Denominator of a quotient. A stage or phase that does not keep it uses that of the run."""

    field: str
    """Field of a population's result."""
    nothing: str
    """Reason why there is no quotient if the denominator is zero."""
    among: tuple[str, ...] = ()
    """Counters of which a population needs one above zero to be included; empty includes all."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Words and reasons of the failures that a metric counts."""

    place: int
    """Place among the problems of a result."""
    kind: str
    """Name of the problem."""
    words: str
    """Words after the numbers."""
    of: tuple[str, ...] = ()
    """Fields of a population's result whose sum is the number of all; empty if nothing counts
    them."""
    after: str = ""
    """Field that is above zero where the problem is possible; empty: it always is."""
    certain: frozenset[Reason] = frozenset()
    """Reasons of this problem only."""
    possible: frozenset[Reason] = frozenset()
    """Reasons of this and another problem."""
    answers: str | None = None
    """First word of the reason codes of MQTT 5 of this problem; None if it has none."""
    finding: Literal["refusal", "acknowledgement"] | None = None
    """Rule of a verdict that states it; None if it has a rule of its own, or none."""

    def names(self, reason: Reason | Answer) -> bool:
        """Returns True for a reason of this problem only."""
        if isinstance(reason, Reason):
            return reason in self.certain
        return reason.partition("_")[0] == self.answers


Doing = Literal["publishes", "receives", "awaits wills"]
"""A part that a population takes in a stage."""


@dataclass(frozen=True, slots=True)
class Zero:
    """A default threshold: the metric has to be 0. A stage with a fault of its own is left out."""

    place: int
    """Place among the default thresholds."""
    of: Literal[
        "clients",
        "receivers",
        "requesters",
        "responders",
        "rejectable",
        "acknowledged",
        "scheduled",
    ]
    """Populations that have the figure."""
    but: Literal["", "lossy", "leaving", "skipping"] = ""
    """Those of them whose figure is not 0 by design."""
    doing: Doing | None = "publishes"
    """Part that clients with the figure take in a stage; None: they have it in any case."""
    exempts_leavers: bool = False
    """True if the figure of clients that leave while messages are under way is not 0 by design."""
    is_of_last_stage: bool = False
    """True if the figure is about the last publish stage alone."""
    may_be_about_nothing: bool = False
    """True if the run decides whether there is anything to count."""
    replaced_with: str = ""
    """Another metric whose thresholds replace this default, too."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Words of a headline for a condition that was not met. The basis of the metric counts all."""

    noun: tuple[str, str]
    """Singular and plural of what is counted."""
    words: str
    """Words after the numbers and the subject."""
    preposition: Literal["of", "to"] = "of"
    """Word before the subject."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart over time."""

    view: View
    chart: str
    """Key of the chart in this view."""
    label: str = ""
    """Name of the line, after the name of its source; empty: the name of the metric, and on the
    live page that of the source alone."""
    statistic: str = ""
    """Statistic of a histogram, which samples have as a metric of their own."""
    joined: Literal["sum", "max"] = "sum"
    """Combination of the sources of one instant, where they share a line."""
    each: bool = False
    """True if each source has a line of its own on the live page."""
    growth: bool = False
    """True for a growing count, shown as growth a second."""
    band: bool = False
    """True if the area down to the previous line is filled."""
    place: int = 0
    """Place among the lines of a chart; lines of one place are in the order of the registry."""


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a table of a report, or several: one for each statistic."""

    table: str
    """Key of the table, or of a group of its columns."""
    head: str = ""
    """Head of the column; the beginning of the heads of several. Empty: the name of the metric, or
    that of its statistic."""
    statistics: tuple[str, ...] = ()
    """Statistics that are shown. Those of readings have their span first: `load.mean`."""
    when: Literal["always", "known", "any"] = "always"
    """Tables that have the column: all, those with a cell, or those with a cell that is not
    zero."""
    without_zero: bool = False
    """True if zeros are empty cells."""
    given: tuple[str, ...] = ()
    """Fields of a row of which one must not be zero; the cells of other rows are empty."""
    makes_rows: bool = False
    """True if the table has a row for each population in which the metric is not zero."""
    place: int = 0
    """Place among the columns; columns of one place are in the order of the registry."""
    rank: int = 0
    """Rank by use on a terminal, which leaves out the largest ones if not all fit; 0: it has no
    such column."""

    def named(self, metric: str) -> tuple[tuple[str, str], ...]:
        """Returns the heads of the columns of a metric, each with its statistic. The statistic of a
        metric without any is empty."""
        if len(self.statistics) > 1:
            return tuple((f"{self.head} {in_words(s)}".strip(), s) for s in self.statistics)
        (statistic,) = self.statistics or ("",)
        return ((self.head or in_words(statistic or metric), statistic),)


@dataclass(frozen=True, slots=True)
class Successes:
    """An action of clients that has a sampler: the metric counts its successes."""

    action: Literal["connect", "subscribe", "unsubscribe"]
    of: tuple[str, ...]
    """Fields of a population's result whose sum is the number of all attempts with an outcome."""
    times: str = ""
    """Field of a population's result with the response times; empty: there are none."""


def in_words(name: str) -> str:
    """Returns a name as the head of a column."""
    return name.replace("_", " ").replace("p999", "p99.9")


def page(chart: str, label: str = "", *, growth: bool = False, place: int = 0) -> Line:
    """Returns a line of a chart of a report."""
    return Line("page", chart, label, growth=growth, place=place)


def live(
    chart: str,
    label: str = "",
    joined: Literal["sum", "max"] = "sum",
    *,
    each: bool = False,
    place: int = 0,
) -> Line:
    """Returns a line of a chart of the live page."""
    return Line("live", chart, label, joined=joined, each=each, place=place)


def both(chart: str, label: str) -> tuple[Line, ...]:
    """Returns a line of two charts of one key: of a report, and of the live page, where all
    populations share it."""
    return page(chart, label), live(chart, label)


@dataclass(frozen=True)
class Metric:
    """One figure: of which sources, where it lies, and what it means."""

    name: str
    """Name in expressions and samples, unit last."""
    of: frozenset[Owner]
    """Kinds of sources that have the metric."""
    kind: Kind
    unit: Unit | None
    """None if only the result defines it."""
    words: str = ""
    """Meaning; empty if the field of the result at its place has it."""
    at: str = ""
    """Place in the result of what has it, before the statistic; empty for a metric that only has
    readings."""
    statistics: tuple[str, ...] = ()
    """Statistics of which an expression needs one; empty if the figure is one number."""
    aliases: tuple[str, ...] = ()
    """Other names."""
    spans: frozenset[SpanKind] = frozenset()
    """Kinds of spans that keep the figure."""
    basis: Basis | None = None
    """Counters behind a threshold; None: it needs none."""
    divisor: Divisor | None = None
    """Denominator of a ratio; None for other metrics."""
    over_all: Literal["sum", "worst"] = "sum"
    """Combination of all populations."""
    is_under_test: bool = False
    """True if samples of agents under test have it too. Monitors of their processes have others."""
    has_readings: bool = False
    """True if its readings can be asked for too, with the statistics of monitors."""
    of_acks: bool = False
    """True if only populations with acknowledged messages have the figure."""
    of_a_size: bool = False
    """True if it counts clients or bridges: a limit in percent is about all of them."""
    lines: tuple[Line, ...] = ()
    """Lines of its readings in charts."""
    columns: tuple[ReportColumn, ...] = ()
    """Columns of tables."""
    is_pattern: bool = False
    """True if the name is a pattern of names, of which only the run knows those that there are."""
    failures: Failures | None = None
    """The problem that it counts; None: it counts none."""
    zero: Zero | None = None
    """Its default threshold; None: it has none."""
    replaces: str = ""
    """Metric about the same, whose default threshold a threshold about this one replaces; empty: it
    replaces none but its own."""
    missed: Missed | None = None
    """Words for a condition on it that was not met; None: the condition stands for itself."""
    successes: Successes | None = None
    """The action whose successes it counts; None: it counts none."""
    oddity: str = ""
    """Deliveries that it counts, in words, where a verdict states them for each flow; empty: a
    verdict does not, or has a rule of its own."""
    fault_effect: str = ""
    """Participle of the deliveries that it counts, where a verdict states the effects of a fault;
    empty: a verdict does not."""
    excludes: str = ""
    """Past tense of an action of clients that excludes deliveries to them from loss meanwhile;
    empty: it excludes none."""
    interval: str = ""
    """Field of the intervals of agents; empty: the name, of counters `NAME_total`."""
    export: str = ""
    """Description for other programs; empty: they do not get it."""
    export_name: str = ""
    """Name for other programs, whose end says the kind; empty: by rule."""
    tag: str = ""
    """Tag in the log of histograms, with a place for the names of populations; empty: it is not in
    the log."""
    better: Literal["lower", "higher"] | None = None
    """Direction in which a comparison calls it better; None: neither."""

    @property
    def path(self) -> tuple[str, ...]:
        """Steps to its place."""
        return tuple(self.at.split("."))

    def sample(self, statistic: str = "") -> str:
        """Returns the name of the metric in samples, which have statistics as metrics."""
        return f"{self.name}_{statistic}_{self.unit}" if statistic else self.name

    @property
    def field(self) -> str:
        """Field of a population's result, of a counter or gauge."""
        return self.at or f"{self.name}_total"

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the metric."""
        return (self.name, *self.aliases)

    @property
    def growth(self) -> Metric:
        """Growth of the metric a second."""
        counts_bytes = self.unit == "bytes" or self.name.startswith("$SYS/bytes/")
        return replace(self, unit="bytes_per_s" if counts_bytes else "per_s")

    @property
    def slope(self) -> Metric:
        """Slope of the metric an hour."""
        return replace(self, unit=None if self.unit is None else SLOPES[self.unit])


class Further(TypedDict, total=False):
    """Fields of a metric that few have, as in the class."""

    aliases: tuple[str, ...]
    basis: Basis | None
    of_acks: bool
    of_a_size: bool
    is_under_test: bool
    lines: tuple[Line, ...]
    columns: tuple[ReportColumn, ...]
    failures: Failures
    zero: Zero
    replaces: str
    missed: Missed
    successes: Successes
    oddity: str
    fault_effect: str
    excludes: str
    interval: str
    export: str
    export_name: str
    tag: str
    better: Literal["lower", "higher"]


@dataclass(frozen=True)
class RunMetric(Metric):
    """A figure that no source has: of the run as a whole, of its phases, or of its faults."""

    subject: Literal["none", "broker", "memory"] = "none"
    """none; the name of brokers, if any; or, always, something whose memory was read."""
    span: Literal["none", "stage", "any stage", "phase", "fault"] = "none"
    """none; always a stage, a phase or a fault; or a stage, if any."""
    stage_kind: str = ""
    """Kind of the stages that have it."""
    weight: str = ""
    """Field of a stage: the time that its rate is over, by which the stages are weighted."""


def unit_at_end(name: str) -> Unit:
    """Returns the unit that a name ends with; names that begin with CPU are shares."""
    if name.startswith("cpu"):
        return "share"
    return next((unit for unit in UNIT_SUFFIXES if name.endswith(f"_{unit}")), "")
