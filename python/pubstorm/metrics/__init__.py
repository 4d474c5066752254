"""The registry of metrics. Expressions, thresholds, charts and the reference derive from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from pubstorm.metrics.metric import Metric, Owner, ReportColumn
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
