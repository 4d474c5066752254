"""The registry of metrics: for each its place in the agents' intervals, its names for other
programs, and its tag in the log of histograms. Expressions, thresholds, charts and the reference
derive from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal

from pubstorm.contract import Value
from pubstorm.contract.histogram import Histogram
from pubstorm.contract.snapshot import (
    AnswerCounters,
    Counters,
    EngineLoad,
    FlowCounters,
    FlowSnapshot,
    Gauges,
    PopulationSnapshot,
)
from pubstorm.contract.sums import AgentPart
from pubstorm.metrics.metric import Kind, Metric, Owner, ReportColumn
from pubstorm.metrics.monitors import OF_EMBEDDED, OF_PUBLISHERS, OF_SYS, READINGS
from pubstorm.metrics.populations import POPULATIONS
from pubstorm.metrics.run import OF_FAULTS, OF_PHASES, OF_RUN

__all__ = [
    "FIGURES",
    "METRICS",
    "OF_POPULATIONS",
    "SHOWN",
    "columns_of",
    "expressions_of",
    "names_of",
]

METRICS: tuple[Metric, ...] = (
    *POPULATIONS,
    *OF_FAULTS,
    *OF_PHASES,
    *OF_RUN,
    *READINGS,
    *OF_PUBLISHERS,
    *OF_SYS,
    *OF_EMBEDDED,
)
"""Every metric that has a name before the run. Brokers and servers of Prometheus have others."""


def _by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    return {name: metric for metric in metrics if metric.at for name in metric.names}


OF_POPULATIONS: Mapping[str, Metric] = _by_name(POPULATIONS)
"""The figures of populations, by each of their names."""
SHOWN = tuple(metric.name for metric in POPULATIONS if metric.at and "." not in metric.name)
"""Each figure of populations once."""
FIGURES: Mapping[str, Metric] = _by_name((*POPULATIONS, *OF_FAULTS, *OF_PHASES, *OF_RUN))
"""Figures that need no subject, or only that of a population."""


def names_of(*owners: Owner) -> tuple[str, ...]:
    """Returns the names of the metrics that one of some kinds of sources has."""
    known = (metric for metric in METRICS if not metric.is_pattern)
    return tuple(metric.name for metric in known if not metric.of.isdisjoint(owners))


def columns_of(table: str) -> tuple[tuple[Metric, ReportColumn], ...]:
    """Returns the columns of a table, or of a group of its columns, each with its metric."""
    return tuple(_COLUMNS[table])


def expressions_of(table: str) -> dict[str, str]:
    """Returns the columns of a table as expressions, by their heads."""
    return {
        head: ".".join(filter(None, (metric.name, statistic)))
        for metric, column in columns_of(table)
        for head, statistic in column.named(metric.name)
    }


_COLUMNS: defaultdict[str, list[tuple[Metric, ReportColumn]]] = defaultdict(list)
for _metric in METRICS:
    for _column in _metric.columns:
        _COLUMNS[_column.table].append((_metric, _column))
for _columns in _COLUMNS.values():
    _columns.sort(key=lambda each: each[1].place)


Part = Literal["population", "state", "flow", "agent", "engine"]
"""Part of an interval: counts or the state of a population, a flow, sums of an agent, or its own
load at the end."""
_PLACES: tuple[tuple[Part, str, type[Value]], ...] = (
    ("population", "counters.", Counters),
    ("population", "answers.", AnswerCounters),
    ("population", "", PopulationSnapshot),
    ("state", "", Gauges),
    ("flow", "counters.", FlowCounters),
    ("flow", "", FlowSnapshot),
)
_PLACES_OF_AGENTS: tuple[tuple[Part, str, type[Value]], ...] = (
    ("agent", "", AgentPart),
    ("engine", "", EngineLoad),
)


@dataclass(frozen=True)
class Reported:
    """A metric in the intervals of agents."""

    metric: Metric
    part: Part
    path: str
    """Place in the part."""

    @cached_property
    def name(self) -> str:
        """Name for other programs, by the conventions of Prometheus; the unit stands before
        `_total`."""
        name, own = self.metric.name, self.metric.export_name
        if self.metric.kind == "histogram":
            name = f"{name}_seconds"
        elif name.startswith("bytes_"):
            name = f"{name.removeprefix('bytes_')}_bytes_total"
        else:
            name = f"{name}_total"
        return f"pubstorm_{own or name}"

    @property
    def kind(self) -> Kind:
        """Kind for other programs, which the end of the name says."""
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith("_seconds") else "gauge"

    @cached_property
    def read(self) -> Callable[[Value], int | Histogram]:
        """Returns the metric of a part of an interval."""
        return attrgetter(self.path)


def _reported(metric: Metric) -> Reported:
    is_total = metric.kind == "counter" and not metric.interval
    field = metric.interval or (f"{metric.name}_total" if is_total else metric.name)
    places = _PLACES_OF_AGENTS if "agent" in metric.of else _PLACES
    part, before = next((p, before) for p, before, model in places if field in model.model_fields)
    return Reported(metric, part, f"{before}{field}")


EXPORTED: tuple[Reported, ...] = tuple(_reported(metric) for metric in METRICS if metric.export)
"""The metrics that other programs get."""
LOGGED: tuple[Reported, ...] = tuple(_reported(metric) for metric in METRICS if metric.tag)
"""The histograms of the log."""
