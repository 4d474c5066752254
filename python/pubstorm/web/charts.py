"""The charts of the live page: which samples each line shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pubstorm.metrics.monitors import unit_of
from pubstorm.report.plot import PALETTE
from pubstorm.report.timeline import SCALES
from pubstorm.result.samples import Sample, is_host
from pubstorm.web.history import Mode

SOURCES_MAX = 8
"""Populations or brokers that have lines of their own in a chart."""


@dataclass(frozen=True)
class Chart:
    """One plot of the page."""

    key: str
    title: str
    caption: str
    unit: str
    """Unit behind values."""
    log: bool = False


@dataclass(frozen=True)
class Pick:
    """Samples that become lines of a chart."""

    chart: str
    kind: str
    """Kind of source: population, agent, host or watched."""
    metric: str
    label: str
    """Name of the line, behind the name of the source if each has its own."""
    mode: Mode
    each: bool = False
    """True if each source has a line of its own."""


CHARTS = (
    Chart(
        "load",
        "Messages a second",
        "Scheduled, written by the clients, acknowledged by the broker and received by "
        "subscribers, all populations together.",
        "/s",
    ),
    Chart(
        "latency",
        "Latency",
        "From the scheduled instant of a message to its delivery, or to its acknowledgement if "
        "there are no receivers. The scale is logarithmic.",
        "ms",
        log=True,
    ),
    Chart("clients", "Clients", "Clients by state, all populations together.", ""),
    Chart(
        "behind",
        "Missing and waiting messages",
        "Missing: passed over in a stream and not "
        "filled so far. Backlog: scheduled and not yet sent.",
        "",
    ),
    Chart(
        "cpu", "CPU of brokers", "Of brokers and other watched processes; 100 % is one core.", "%"
    ),
    Chart("memory", "Memory of brokers", "Resident memory, as the kernel counts it.", "MB"),
    Chart(
        "busy",
        "Load of the generator",
        "Of the busiest agent, in % of one core, and of the controller's host, in % of all cores. "
        "Near 100 % the generator sets the limit, not the broker.",
        "%",
    ),
    Chart(
        "late",
        "Lateness of the generator",
        "99th percentile of the lateness of messages that "
        "only the agent held up, of the agent with the largest.",
        "ms",
    ),
)
PICKS = (
    Pick("load", "population", "sent_per_s", "sent", "sum"),
    Pick("load", "population", "due_per_s", "scheduled", "sum"),
    Pick("load", "population", "acked_per_s", "acked", "sum"),
    Pick("load", "population", "received_per_s", "received", "sum"),
    Pick("latency", "population", "latency_p50_us", "p50", "sum", each=True),
    Pick("latency", "population", "latency_p99_us", "p99", "max", each=True),
    Pick("clients", "population", "connected", "connected", "sum"),
    Pick("clients", "population", "ready", "ready", "sum"),
    Pick("clients", "population", "offline", "offline", "sum"),
    Pick("clients", "population", "stalled", "stalled", "sum"),
    Pick("behind", "population", "missing", "missing", "sum"),
    Pick("behind", "population", "in_flight", "in flight", "sum"),
    Pick("behind", "population", "backlog", "backlog", "sum"),
    Pick("cpu", "watched", "cpu", "", "sum", each=True),
    Pick("memory", "watched", "rss_bytes", "", "sum", each=True),
    Pick("busy", "agent", "busy", "busiest agent: busy", "max"),
    Pick("busy", "agent", "cpu", "busiest agent: CPU", "max"),
    Pick("busy", "host", "cpu", "host: CPU", "max"),
    Pick("late", "agent", "lateness_p99_us", "late p99", "max"),
)
"""Lines in the order of their colours."""
OF_PROCESSES = frozenset(pick.metric for pick in PICKS if pick.kind == "watched")


@dataclass(frozen=True)
class LineKey:
    """One line of the page."""

    pick: Pick
    source: str
    """Name of the source; empty if the line sums several up."""

    @property
    def label(self) -> str:
        """Name of the line."""
        return f"{self.source} {self.pick.label}".strip()


class Sorter:
    """Finds the line of each sample."""

    def __init__(self, populations: Collection[str], others: Collection[str] = ()) -> None:
        """`others` are sources that no chart shows, such as bridges."""
        self._populations = frozenset(populations)
        self._others = frozenset(others)
        self._found: dict[tuple[str, str], LineKey | None] = {}
        self._sources: dict[tuple[str, str], list[str]] = {}

    def line_of(self, sample: Sample) -> LineKey | None:
        """Returns the line that shows a sample; None if none does."""
        name = (sample.source, sample.metric)
        if name not in self._found:
            self._found[name] = self._line(*name)
        return self._found[name]

    def kind_of(self, source: str, metric: str) -> str:
        """Kind of a source. A publisher under test has the name of its population, and is watched
        as a process."""
        if source in self._populations:
            return "watched" if metric in OF_PROCESSES else "population"
        if is_host(source):
            return "host"
        if source in self._others or "/" in source:
            return "other"
        return "agent" if re.fullmatch(r"agent-\d+", source) else "watched"

    def _line(self, source: str, metric: str) -> LineKey | None:
        kind = self.kind_of(source, metric)
        picks = (p for p in PICKS if p.kind == kind and p.metric == metric)
        pick = next(picks, None)
        if pick is None:
            return None
        if not pick.each:
            return LineKey(pick, "")
        shown = self._sources.setdefault((pick.chart, pick.metric), [])
        if len(shown) >= SOURCES_MAX:
            return None
        shown.append(source)
        return LineKey(pick, source)


def scale_of(metric: str) -> float:
    """Factor from the unit of a metric to the one that its chart shows."""
    return SCALES.get(unit_of(metric), 1.0)


def coloured(keys: Collection[LineKey]) -> Iterator[tuple[LineKey, str]]:
    """Lines with their colours, chart by chart."""
    for chart in CHARTS:
        own = [key for key in keys if key.pick.chart == chart.key]
        own.sort(key=lambda key: (key.source, PICKS.index(key.pick)))
        for number, key in enumerate(own):
            yield key, PALETTE[number % len(PALETTE)]
