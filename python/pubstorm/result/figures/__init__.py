"""Reads figures: the value of an expression in a result. Thresholds, tables and stop rules use
them."""

from __future__ import annotations

from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import RunMetric
from pubstorm.result import Measured
from pubstorm.result.figures import of_monitors, of_populations, of_run
from pubstorm.result.figures.of_populations import distribution
from pubstorm.result.figures.reading import Found, Missing

__all__ = ["Found", "Missing", "distribution", "evaluate", "nothing_behind"]


def evaluate(measured: Measured, expression: Expression) -> Found | Missing:
    """Returns the value of an expression in a result."""
    subject, figure = expression.subject, expression.figure
    if isinstance(figure, RunMetric):
        (owner,) = figure.of
        return _READERS[owner](measured, figure, expression)
    is_population = subject in measured.populations or subject in measured.wholes
    if "population" in figure.of and (subject is None or is_population):
        return of_populations.read(measured, figure, expression)
    is_publisher = any(subject in {p.name, p.population} for p in measured.publishers)
    if subject is None or (is_population and not is_publisher):
        return Missing(f"populations have no metric {expression.metric}")
    if is_publisher and figure.of == {"publisher"}:
        return of_monitors.read_publisher(measured, figure, expression)
    return of_monitors.read(measured, expression)


def nothing_behind(measured: Measured, expression: Expression) -> str | None:
    """Returns why a condition on an expression is about nothing; None if it is about something."""
    basis = expression.figure.basis
    return None if basis is None else of_populations.nothing_behind(measured, basis, expression)


_READERS = {
    "run": of_run.read,
    "fault": of_run.read_fault,
    "phase": of_run.read_phase,
}
