"""What a metric expression is in a result: a value with its unit, or the reason why there is none.
It reads stored measurements and nothing else, and judges nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from pubstorm.metrics import (
    FAULT_METRICS,
    POPULATION_METRICS,
    PUBLISHER_METRICS,
    Divisor,
    Expression,
    Metric,
    full_names,
    unit_of_growth,
)
from pubstorm.metrics.of_run import RUN_METRICS
from pubstorm.quantity import value_text
from pubstorm.result import (
    Latency,
    Measured,
    Peak,
    Phase,
    PublisherResult,
    StageResult,
    Statistics,
    Watched,
)
from pubstorm.samples import Unit, unit_of

NOTHING_MEASURED = "nothing was measured"
NO_ACKS = "messages of QoS 0 are not acknowledged"
NO_GROWTH = "the source reported fewer than twice in that time, so there is no rate"


@dataclass(frozen=True, slots=True)
class Found:
    """The value of an expression."""

    value: float
    """In its unit."""
    unit: Unit
    """The unit; shares are from 0 to 1."""
    bound: float = 0.0
    """It is off by this much at most, since clocks of several hosts made it."""

    def __str__(self) -> str:
        shown = value_text(self.value, self.unit)
        return f"{shown} ± {value_text(self.bound, self.unit)}" if self.bound else shown


@dataclass(frozen=True, slots=True)
class Missing:
    """Why an expression has no value."""

    reason: str
    """In words."""


def evaluate(measured: Measured, expression: Expression) -> Found | Missing:
    """The value of an expression in a result."""
    subject = expression.subject
    if expression.is_of_run:
        return _of_run(measured, expression)
    if expression.is_of_fault:
        return _of_fault(measured, expression)
    is_population = subject in measured.populations or subject in measured.wholes
    if subject is None or (is_population and expression.metric in POPULATION_METRICS):
        return _of_populations(measured, expression)
    publishers = [p for p in measured.publishers if subject in {p.name, p.population}]
    if is_population and not publishers:
        return Missing(f"populations have no metric {expression.metric}")
    if publishers and expression.metric in PUBLISHER_METRICS:
        return _of_publishers(publishers, expression)
    return _of_monitors(measured, expression)


def _of_populations(measured: Measured, expression: Expression) -> Found | Missing:
    """The subject's value; without a subject the sum over all, or the worst one."""
    metric = POPULATION_METRICS.get(expression.metric)
    if metric is None:
        return Missing(f"populations have no metric {expression.metric}")
    silent = _without_acks(measured) if metric.of_acks else frozenset[str]()
    if metric.over_time and expression.statistic is not None:
        return _of_rates(measured, expression, silent)
    found = _places(measured, expression)
    if isinstance(found, Missing):
        return found
    places = {name: place for name, place in found.items() if name not in silent}
    if found and not places:
        return Missing(NO_ACKS)
    if metric.divisor is not None:
        return _quotient(measured, metric, metric.divisor, places)
    values = [
        value
        for place in places.values()
        if (value := _at(place, _path(metric, expression))) is not None
    ]
    if not values:
        return Missing(NOTHING_MEASURED)
    bound = max(_bound_at(place, metric.path) for place in places.values())
    return Found(sum(values) if metric.over_all == "sum" else max(values), metric.unit, bound)


def _quotient(
    measured: Measured, metric: Metric, divisor: Divisor, places: Mapping[str, object]
) -> Found | Missing:
    """A metric by its divisor, each the sum over the places."""
    every = {**measured.wholes, **measured.populations}
    above = below = 0.0
    for name, place in places.items():
        population = every[name]
        if divisor.among and not any(getattr(population, counter) for counter in divisor.among):
            continue
        own = _at(place, divisor.path)
        above += _at(place, metric.path) or 0.0
        below += (_at(population, divisor.path) if own is None else own) or 0.0
    return Found(above / below, metric.unit) if below else Missing(divisor.nothing)


def _of_publishers(
    publishers: Iterable[PublisherResult], expression: Expression
) -> Found | Missing:
    """The worst value of some publishers."""
    metric = PUBLISHER_METRICS[expression.metric]
    if expression.span is not None:
        return Missing(f"{expression.metric} of publishers is kept for the whole run only")
    found = (_at(publisher, _path(metric, expression)) for publisher in publishers)
    values = [value for value in found if value is not None]
    return Found(max(values), metric.unit) if values else Missing(NOTHING_MEASURED)


def _without_acks(measured: Measured) -> frozenset[str]:
    """Populations whose messages are not acknowledged."""
    every = {**measured.wholes, **measured.populations}
    return frozenset(name for name, population in every.items() if not population.acknowledged)


def _of_rates(
    measured: Measured, expression: Expression, silent: frozenset[str]
) -> Found | Missing:
    """What the readings of a rate over time come to: the subject's, or the sum over all. The
    largest of all together is that of one instant."""
    subject, statistic = expression.subject, expression.statistic or "mean"
    peak = getattr(measured.peaks, expression.metric, Peak())
    if subject is None and expression.span is None and statistic == "max" and peak.at_s is not None:
        return Found(peak.value, "per_s")
    asked = set(measured.populations) if subject is None else {subject}
    names = asked - silent
    if not names:
        return Missing(NO_ACKS)
    watched = [w for w in measured.monitors if w.source in names and w.metric == expression.metric]
    values = _statistics(watched, statistic, expression.span)
    return Found(sum(values), "per_s") if values else Missing(NOTHING_MEASURED)


def _places(measured: Measured, expression: Expression) -> dict[str, object] | Missing:
    """Where the measurements of the subject stand, or of each population where there is none: of
    the run, or of a stage or phase."""
    subject, span = expression.subject, expression.span
    spans: Iterable[StageResult | Phase] = (*measured.stages, *measured.phases)
    found = next((part for part in spans if part.name == span), None)
    place = measured if span is None else found
    if place is None:
        return Missing(f"{span} was not played")
    if subject is None:
        return dict(place.populations)
    every = {**place.wholes, **place.populations}
    return {subject: every[subject]} if subject in every else {}


def _path(metric: Metric, expression: Expression) -> tuple[str, ...]:
    """Where a metric stands, down to its statistic."""
    return metric.path if expression.statistic is None else (*metric.path, expression.statistic)


def _at(place: object, path: Iterable[str]) -> float | None:
    """A number in a place, by its path; None where nothing was measured."""
    found = place
    for step in path:
        if isinstance(found, Latency) and not found.count:
            return None
        found = _step(found, step)
    return float(found) if isinstance(found, int | float) else None


def _bound_at(place: object, path: Iterable[str]) -> float:
    """How far the latencies in a place are off at most; of what is none, nothing."""
    found = reduce(_step, path, place)
    return found.bound_us if isinstance(found, Latency) else 0.0


def _step(place: object, step: str) -> object:
    """A part of a place. Stages and phases are rates themselves, and phases keep one latency."""
    if isinstance(place, Latency) and step in place.percentiles:
        return place.percentiles[step]
    return getattr(place, step, place if step in {"rates", "intended"} else None)


def _of_run(measured: Measured, expression: Expression) -> Found | Missing:
    """A metric of the run as a whole."""
    unit = RUN_METRICS[expression.metric].unit
    if expression.metric == "bytes_per_connection":
        found = _of_memory(measured, expression.subject or "")
    elif expression.metric == "balance":
        found = _of_balance(measured, expression.subject)
    else:
        found = _of_stages(measured, expression)
    return found if isinstance(found, Missing) else Found(found, unit)


def _of_memory(measured: Measured, subject: str) -> float | Missing:
    """The largest line of the subjects that a name means."""
    named = [m for m in measured.memory if subject in {m.subject, m.subject.rpartition("-")[0]}]
    slopes = [m.bytes_per_connection for m in named if m.bytes_per_connection is not None]
    if slopes:
        return max(slopes)
    problems = [model.problem for model in named if model.problem is not None]
    return Missing(f"{subject}: {problems[0]}" if problems else _unwatched(measured, subject))


def _of_balance(measured: Measured, group: str | None) -> float | Missing:
    """The worst of the names, or the one that is asked for."""
    shares: dict[str, list[float]] = {}
    for target in measured.balance:
        if group in {None, target.group}:
            shares.setdefault(target.group, []).append(target.share)
    if not any(map(sum, shares.values())):
        return Missing("no name has several targets that clients were connected to")
    return round(max(max(each) * len(each) for each in shares.values()), 4)


def _of_stages(measured: Measured, expression: Expression) -> float | Missing:
    """A figure of one stage, or of all of its kind together, by the time that they took."""
    metric, span = expression.metric, expression.span
    if span is not None:
        stage = next((stage for stage in measured.stages if stage.name == span), None)
        if stage is None:
            return Missing(f"{span} was not played")
        return float(getattr(stage, _STAGE_FIELDS.get(metric, metric)))
    kind, took = _KINDS[metric]
    stages = [stage for stage in measured.stages if stage.kind == kind]
    took_s = math.fsum(getattr(stage, took) for stage in stages)
    if not took_s:
        return Missing("nothing arrived" if stages else f"no {kind} stage was played")
    total = math.fsum(getattr(stage, metric) * getattr(stage, took) for stage in stages)
    return round(total / took_s, 2)


def _of_fault(measured: Measured, expression: Expression) -> Found | Missing:
    """What came of the fault that the span names. Where none was lost, none had to come back."""
    fault = next((f for f in measured.faults if f.name == expression.span), None)
    if fault is None:
        return Missing(f"{expression.span} did not happen")
    noun, _, what = expression.metric.partition("_")
    unit = FAULT_METRICS[expression.metric].unit
    if noun in {"clients", "bridges"}:
        if noun == "bridges" and all(bridge.up is None for bridge in measured.bridges):
            return Missing("no bridges were counted")
        found = fault.clients if noun == "clients" else fault.bridges
        if found is None:
            return Found(0.0, unit)
        if what == "lost":
            return Found(float(found.before - found.lowest), unit)
        back_s: float | None = getattr(found, f"{expression.statistic}_s")
        words = f"{noun} were not back before stage {fault.stage} ended"
        return Missing(words) if back_s is None else Found(back_s, unit)
    if fault.backlog_peak is None:
        return Missing(NOTHING_MEASURED)
    if expression.metric == "backlog_peak":
        return Found(float(fault.backlog_peak), unit)
    if fault.drained_s is None:
        return Missing(f"what waited was not gone before stage {fault.stage} ended")
    return Found(fault.drained_s, unit)


def _of_monitors(measured: Measured, expression: Expression) -> Found | Missing:
    """The worst value of the sources that the subject means."""
    subject = expression.subject
    watched = [w for w in measured.monitors if subject in {w.source, w.group}]
    if not watched:
        return Missing(_unwatched(measured, subject or ""))
    names = full_names(expression.metric)
    metric = next((name for name in names if any(w.metric == name for w in watched)), None)
    if metric is None:
        return Missing(f"{subject} shows no {expression.metric}")
    statistic = expression.statistic or "mean"
    unit = unit_of_growth(metric) if statistic == "rate" else unit_of(metric)
    named = [w for w in watched if w.metric == metric]
    values = _statistics(named, statistic, expression.span)
    if values:
        return Found(max(values), unit)
    has_reading = any(_span(w, expression.span).count for w in named)
    return Missing(NO_GROWTH if has_reading else NOTHING_MEASURED)


def _statistics(watched: Iterable[Watched], statistic: str, span: str | None) -> list[float]:
    """A statistic of each source that has it in a span."""
    found = (_span(each, span) for each in watched)
    values = (STATISTICS[statistic](each) for each in found if each.count)
    return [value for value in values if value is not None]


def _span(watched: Watched, span: str | None) -> Statistics:
    return watched.load if span is None else watched.spans.get(span, Statistics())


def _unwatched(measured: Measured, subject: str) -> str:
    """Why a subject is not among the monitors, as far as they said so."""
    for problem in measured.monitor_problems:
        if subject in {problem.source, problem.source.rpartition("-")[0]}:
            return f"{subject} is not watched: {problem.text}"
    return f"{subject} is not watched"


_KINDS = {
    "arrivals_per_s": ("publish", "arrived_s"),
    "connects_per_s": ("connect", "duration_s"),
    "disconnects_per_s": ("disconnect", "duration_s"),
}
"""The kind of stages that a rate is of, and the time that it is over."""
_STAGE_FIELDS = {"connected_after": "connected", "took": "duration_s"}
"""What metrics of stages are called in a result, where that is something else."""
STATISTICS: dict[str, Callable[[Statistics], float | None]] = {
    "mean": lambda span: span.mean,
    "min": lambda span: span.min,
    "max": lambda span: span.max,
    "first": lambda span: span.first,
    "last": lambda span: span.last,
    "increase": lambda span: span.last - span.first,
    "rate": lambda span: span.rate_per_s,
}
