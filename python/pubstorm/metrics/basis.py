"""The counts that a condition about a metric needs before it can pass: `lost == 0` says nothing if
no delivery was expected. Pure functions of measured values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pubstorm.metrics import POPULATION_METRICS, Expression
from pubstorm.quantity import counted
from pubstorm.result import Measured, Phase, PopulationResult, StageResult

DELIVERIES = ("expected_total", "received_total")
MESSAGES = ("sent_total", "skipped_total")
ATTEMPTS = ("connect_attempts_total",)
FILTERS = ("subscribed_total", "subscribe_failed_total")
CLIENTS = ("asked",)
BASES: Mapping[str, tuple[str, ...]] = {
    "lost": ("expected_total",),
    "loss": ("expected_total",),
    "duplicate": DELIVERIES,
    "reordered": DELIVERIES,
    "stale": DELIVERIES,
    "stalled": DELIVERIES,
    "latency": ("received_total",),
    "skipped": MESSAGES,
    "abandoned": MESSAGES,
    "resent": MESSAGES,
    "connect_failed": ATTEMPTS,
    "disconnected": ATTEMPTS,
    "subscribe_failed": FILTERS,
    "never_ready": CLIENTS,
}
"""By metric: counters of which one must be above 0. A counter that a stage or phase does not keep
is not asked for there."""


def nothing_behind(measured: Measured, expression: Expression) -> str | None:
    """The reason why a condition on an expression is about nothing; None if it is about
    something."""
    parts, basis = _parts(measured, expression), _basis(expression)
    if expression.metric not in POPULATION_METRICS or parts is None or not basis:
        return None
    found = [getattr(part, name, None) for part in parts.values() for name in basis]
    if any(found) or (found and all(count is None for count in found)):
        return None
    return _reason(measured, expression, parts)


def _basis(expression: Expression) -> tuple[str, ...]:
    metric = expression.metric.partition(".")[0].removesuffix("_total")
    return BASES.get(metric, ())


def _parts(measured: Measured, expression: Expression) -> Mapping[str, object] | None:
    """The counts of the populations of an expression in its span; None if that was not played."""
    subject, span = expression.subject, expression.span
    spans: Iterable[StageResult | Phase] = (*measured.stages, *measured.phases)
    place = measured if span is None else next((s for s in spans if s.name == span), None)
    if place is None:
        return None
    if subject is None:
        return dict(place.populations)
    every = {**place.wholes, **place.populations}
    return {subject: every[subject]} if subject in every else {}


def _reason(measured: Measured, expression: Expression, parts: Mapping[str, object]) -> str:
    subject, span, basis = expression.subject, expression.span, _basis(expression)
    where = "" if span is None else f" in {span}"
    whose = "" if subject is None else f" of {subject}"
    if basis in (CLIENTS, ATTEMPTS):
        return f"no client{whose} was to connect{where}: no stage connects it"
    if basis == FILTERS:
        return f"no filter{whose} was sent to a broker{where}"
    if basis == MESSAGES:
        return f"no message{whose} was scheduled{where}"
    to = "" if subject is None else f" to {subject}"
    expected = sum(getattr(part, "expected_total", 0) for part in parts.values())
    if expected:
        return f"none of {counted(expected, 'delivery', 'deliveries')}{to} came{where}"
    return f"no delivery{to} was expected{where}: {_why_no_delivery(measured, subject)}"


def _why_no_delivery(measured: Measured, subject: str | None) -> str:
    """The likeliest reason why nothing was due to a population, or to all of them."""
    if not any(population.sent_total for population in measured.populations.values()):
        return "no message was published"
    every = {**measured.wholes, **measured.populations}
    population = every.get(subject or "")
    if population is not None and not population.asked:
        return f"no stage connects {subject}"
    if population is not None and _subscribes_to_nothing(population):
        return f"{subject} subscribes to nothing"
    if population is not None and _unjudged(measured, population, subject or ""):
        return f"clients of {subject} joined or left while messages were sent"
    return f"no publication matches the filters of {subject or 'any population'}"


def _subscribes_to_nothing(population: PopulationResult) -> bool:
    filters = population.subscribed_total + population.subscribe_failed_total
    return population.version == "mqtt-3.1.1" and population.ready_max > 0 and not filters


def _unjudged(measured: Measured, population: PopulationResult, name: str) -> bool:
    """True if every publish stage excluded deliveries from loss."""
    stages = [stage for stage in measured.stages if stage.kind == "publish"]
    return population.lives or all(name in stage.unjudged for stage in stages)
