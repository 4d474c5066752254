"""The registry of figures, and the expressions that ask for them:
`[SUBJECT.]METRIC[.STATISTIC][@SPAN]`, such as `device.latency.p99`, `broker.cpu.max` or
`device.acked_per_s@steady`. Thresholds, tables, stop rules and the reference use both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pubstorm.quantities import UnfitError
from pubstorm.result import Measured
from pubstorm.result.figures.metric import (
    LATENCY_STATISTICS,
    MONITOR_STATISTICS,
    Asked,
    Found,
    Metric,
    Missing,
    metric_hint,
    split_percentile,
)
from pubstorm.result.figures.of_faults import BACK_STATISTICS, FAULT_METRICS, FaultMetric
from pubstorm.result.figures.of_monitors import BRIDGE_METRICS, PUBLISHER_METRICS, monitor_metric
from pubstorm.result.figures.of_phases import PHASE_METRICS, PhaseMetric
from pubstorm.result.figures.of_populations import (
    GROUP_SHARE_STATISTICS,
    POPULATION_METRICS,
    SHOWN_METRICS,
    PopulationMetric,
)
from pubstorm.result.figures.of_run import RUN_METRICS, RunMetric
from pubstorm.result.samples import Unit

__all__ = [
    "Expression",
    "Found",
    "Missing",
    "check_population_metric",
    "evaluate",
    "nothing_behind",
    "parse_expression",
]

METRICS: Mapping[str, Metric] = {
    **POPULATION_METRICS,
    **FAULT_METRICS,
    **PHASE_METRICS,
    **RUN_METRICS,
}
"""Figures that need no subject, or only that of a population."""


@dataclass(frozen=True, slots=True)
class Expression(Asked):
    """A figure of a result, as a scenario asks for it."""

    def __str__(self) -> str:
        subject = "" if self.subject is None else f"{self.subject}."
        statistic = "" if self.statistic is None else f".{self.statistic}"
        span = "" if self.span is None else f"@{self.span}"
        return f"{subject}{self.metric}{statistic}{span}"

    @property
    def figure(self) -> Metric:
        """The figure of the registry. A name that is unknown there is one of monitors."""
        known = METRICS.get(self.metric)
        needs_none = isinstance(known, FaultMetric | PhaseMetric)
        if known is not None and (self.subject is None or not needs_none):
            return known
        if self.subject is not None and self.metric in PUBLISHER_METRICS:
            return PUBLISHER_METRICS[self.metric]
        return monitor_metric(self.metric, self.statistic)

    @property
    def unit(self) -> Unit | None:
        """Unit of the value; None if only the result defines it."""
        is_growth = self.statistic == "rate" and not isinstance(self.figure, RunMetric)
        return monitor_metric(self.metric, "rate").unit if is_growth else self.figure.unit

    @property
    def is_of_fault(self) -> bool:
        """True for a figure of faults."""
        return isinstance(self.figure, FaultMetric)

    @property
    def is_of_phase(self) -> bool:
        """True for a figure of phases."""
        return isinstance(self.figure, PhaseMetric)

    @property
    def is_of_run(self) -> bool:
        """True for a figure of the run as a whole."""
        return isinstance(self.figure, RunMetric)


def parse_expression(source: str) -> Expression:
    """Parses an expression. The scenario checks that subject and span exist."""
    found = _EXPRESSION.fullmatch(source.strip())
    if found is None:
        hint = "for example device.latency.p99, broker.cpu.max or device.acked_per_s@steady"
        raise UnfitError(source, "is [SUBJECT.]METRIC[.STATISTIC][@SPAN]", hint)
    body, span = found["body"], found["span"]
    metric, statistic = _split_statistic(body)
    if metric in METRICS:
        return _checked(Expression(None, metric, statistic, span))
    parts = _SUBJECT.fullmatch(body)
    if parts is None:
        hint = metric_hint(metric, METRICS, SHOWN_METRICS)
        raise UnfitError(body, "are the metrics of the reference, or SUBJECT.METRIC", hint)
    name = parts["name"]
    metric, statistic = _split_statistic(parts["metric"])
    if name in POPULATION_METRICS and metric not in {*POPULATION_METRICS, *BRIDGE_METRICS}:
        return _checked(Expression(None, name, parts["metric"], span))
    return _checked(Expression(name, metric, statistic, span))


def _checked(expression: Expression) -> Expression:
    is_bridge = expression.subject is not None and expression.metric in BRIDGE_METRICS
    if not is_bridge:
        expression.figure.check(expression)
    return expression


def evaluate(measured: Measured, expression: Expression) -> Found | Missing:
    """Returns the value of an expression in a result."""
    subject, figure = expression.subject, expression.figure
    if isinstance(figure, RunMetric | FaultMetric | PhaseMetric):
        return figure.read(measured, expression)
    is_population = subject in measured.populations or subject in measured.wholes
    if isinstance(figure, PopulationMetric) and (subject is None or is_population):
        return figure.read(measured, expression)
    is_publisher = any(subject in {p.name, p.population} for p in measured.publishers)
    if subject is None or (is_population and not is_publisher):
        return Missing(f"populations have no metric {expression.metric}")
    if is_publisher and expression.metric in PUBLISHER_METRICS:
        return figure.read(measured, expression)
    return monitor_metric(expression.metric, expression.statistic).read(measured, expression)


def nothing_behind(measured: Measured, expression: Expression) -> str | None:
    """Returns why a condition on an expression is about nothing; None if it is about something."""
    figure = expression.figure
    if not isinstance(figure, PopulationMetric):
        return None
    return figure.nothing_behind(measured, expression)


def check_population_metric(expression: Expression) -> None:
    """Raises UnfitError unless populations have the figure, with that statistic."""
    if expression.metric not in POPULATION_METRICS:
        metric, _, statistic = expression.metric.rpartition(".")
        if metric in POPULATION_METRICS:
            POPULATION_METRICS[metric].check(Expression(None, metric, statistic))
        hint = metric_hint(expression.metric, POPULATION_METRICS, SHOWN_METRICS)
        raise UnfitError(expression.metric, "are the metrics of the reference", hint)
    expression.figure.check(expression)


def _split_statistic(body: str) -> tuple[str, str | None]:
    """Returns the metric and its statistic, if it ends with one outside labels."""
    labels_end = body.rfind("}") + 1
    found = split_percentile(body[labels_end:])
    if found is not None:
        return body[:labels_end] + found[0], found[1]
    metric, dot, statistic = body[labels_end:].rpartition(".")
    if dot and body[:labels_end] + metric and statistic in _STATISTICS:
        return body[:labels_end] + metric, statistic
    return body, None


_STATISTICS = frozenset(
    (*LATENCY_STATISTICS, *MONITOR_STATISTICS, *BACK_STATISTICS, *GROUP_SHARE_STATISTICS)
)
_EXPRESSION = re.compile(r"(?P<body>[^@\s](?:[^@{]|\{[^}]*\})*?)(?:@(?P<span>\S(?:.*\S)?))?")
_SUBJECT = re.compile(r"(?P<name>[A-Za-z][\w-]*(?:/[A-Za-z][\w-]*)?)\.(?P<metric>.+)", re.ASCII)
