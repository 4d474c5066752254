"""Reads figures of populations: counters, states, rates, quotients and latencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pubstorm.metrics.counters import FILTERS
from pubstorm.metrics.expressions import Expression
from pubstorm.metrics.metric import Basis, Divisor, Metric
from pubstorm.quantities import counted
from pubstorm.result import Latency, Measured, Peak, PopulationResult, PopulationSums
from pubstorm.result.figures.reading import (
    NOTHING_MEASURED,
    Found,
    Missing,
    number_at,
    part_of,
    place_of,
    together,
)
from pubstorm.result.monitors import readings

NO_ACKS = "messages of QoS 0 are not acknowledged"


def read(measured: Measured, metric: Metric, asked: Expression) -> Found | Missing:
    """Returns the subject's value; without a subject the sum over all, or the worst."""
    silent = _without_acks(measured) if metric.of_acks else frozenset[str]()
    if metric.has_readings and asked.statistic is not None:
        return _of_readings(measured, metric, asked, silent)
    found = _places(measured, asked)
    if found is None:
        return Missing(f"{asked.span} was not played")
    places = {name: place for name, place in found.items() if name not in silent}
    if found and not places:
        return Missing(NO_ACKS)
    if metric.divisor is not None:
        return _quotient(measured, metric, metric.divisor, places)
    value = together(metric, places.values(), asked.statistic or "")
    if value is None:
        return Missing(NOTHING_MEASURED)
    bound = max(_bound_at(place, metric.path) for place in places.values())
    return Found(value, metric.unit or "", bound)


def _quotient(
    measured: Measured, metric: Metric, divisor: Divisor, places: Mapping[str, object]
) -> Found | Missing:
    """Returns the figure by its divisor, each the sum over the places."""
    every = {**measured.wholes, **measured.populations}
    above = below = 0.0
    for name, place in places.items():
        population = every[name]
        if divisor.among and not any(getattr(population, c) for c in divisor.among):
            continue
        own = number_at(place, (divisor.field,))
        above += number_at(place, metric.path) or 0.0
        below += (number_at(population, (divisor.field,)) if own is None else own) or 0.0
    return Found(above / below, metric.unit or "") if below else Missing(divisor.nothing)


def nothing_behind(measured: Measured, basis: Basis, asked: Expression) -> str | None:
    """Returns why a condition on a figure is about nothing; None if it is about something."""
    parts = _places(measured, asked)
    if parts is None:
        return None
    if basis.needs_stamps and _carry_no_stamp(parts.values()):
        to = "" if asked.subject is None else f" to {asked.subject}"
        return f"messages{to} carry no stamp, which shows duplicates and order"
    found = [getattr(part, name, None) for part in parts.values() for name in basis.counters]
    may_be_earlier = asked.span is not None and basis.may_be_earlier
    is_unknown = may_be_earlier or all(count is None for count in found)
    if any(found) or (found and is_unknown):
        return None
    return _why_nothing(measured, asked, basis, parts)


def _without_acks(measured: Measured) -> frozenset[str]:
    """Returns the populations whose messages are not acknowledged."""
    every = {**measured.wholes, **measured.populations}
    return frozenset(name for name, population in every.items() if not population.acknowledged)


def _of_readings(
    measured: Measured, metric: Metric, asked: Expression, silent: frozenset[str]
) -> Found | Missing:
    """Returns a statistic of the readings of a rate: the subject's, or the sum over all. The
    largest rate of all populations is that of one instant."""
    subject, statistic = asked.subject, asked.statistic or "mean"
    peak = getattr(measured.peaks, metric.name, Peak())
    if subject is None and asked.span is None and statistic == "max" and peak.at_s is not None:
        return Found(peak.value, "per_s")
    names = (set(measured.populations) if subject is None else {subject}) - silent
    if not names:
        return Missing(NO_ACKS)
    watched = [w for w in measured.monitors if w.source in names and w.metric == metric.name]
    values = readings(watched, statistic, asked.span)
    return Found(sum(values), "per_s") if values else Missing(NOTHING_MEASURED)


def _places(measured: Measured, asked: Expression) -> dict[str, object] | None:
    """Returns the measurements of the subject in its span, or of each population without a subject;
    None if the span was not played."""
    place = place_of(measured, asked.span)
    if place is None or asked.subject is None:
        return None if place is None else dict(place.populations)
    every = {**place.wholes, **place.populations}
    return {asked.subject: every[asked.subject]} if asked.subject in every else {}


def _bound_at(place: object, path: tuple[str, ...]) -> float:
    """Returns the largest error of the latencies in a place; 0 for other figures."""
    found = reduce(part_of, path, place)
    return found.bound_us if isinstance(found, Latency) else 0.0


def _why_nothing(
    measured: Measured, asked: Expression, basis: Basis, parts: Mapping[str, object]
) -> str:
    subject, span = asked.subject, asked.span
    where = "" if span is None else f" in {span}"
    to = "" if subject is None else f" to {subject}"
    if basis.nothing:
        of = "" if subject is None else f" of {subject}"
        return basis.nothing.format(of=of, to=to, where=where)
    expected = sum(getattr(part, "expected_total", 0) for part in parts.values())
    if expected:
        return f"none of {counted(expected, 'delivery', 'deliveries')}{to} came{where}"
    return f"no delivery{to} was expected{where}: {_why_no_delivery(measured, subject)}"


def _why_no_delivery(measured: Measured, subject: str | None) -> str:
    """Returns the likeliest reason why no delivery to a population, or to any, was expected."""
    if not any(population.sent_total for population in measured.populations.values()):
        return "no message was published"
    every = {**measured.wholes, **measured.populations}
    population = every.get(subject or "")
    if population is not None and not population.asked:
        return f"no stage connects {subject}"
    if population is not None and _subscribes_to_nothing(population):
        return f"{subject} subscribes to nothing"
    if population is not None and population.expired_total:
        return f"messages for offline clients of {subject} may have expired"
    if population is not None and _is_excluded(measured, population, subject or ""):
        did = population.changed or "joined or left"
        return f"clients of {subject} {did} while messages were sent"
    if subject is not None and _came_late(measured, subject):
        return f"{subject} was connected after the load"
    if measured.fleet.failures:
        return "what clients of failed agents were to receive is not known"
    return f"no publication matches the filters of {subject or 'any population'}"


def _carry_no_stamp(parts: Iterable[object]) -> bool:
    """Returns True if places have deliveries of messages, and none that carries a stamp."""
    sums = [part for part in parts if isinstance(part, PopulationSums)]
    messages = sum(p.received_total - p.wills_received_total - p.answered_total for p in sums)
    return messages > 0 and not any(p.latency_us.intended.count for p in sums)


def _came_late(measured: Measured, name: str) -> bool:
    """Returns True if a population connected only after the last publish stage."""
    every = [{**stage.wholes, **stage.populations} for stage in measured.stages]
    published = [n for n, stage in enumerate(measured.stages) if stage.kind == "publish"]
    connected = [n for n, p in enumerate(every) if name in p and p[name].connect_attempts_total]
    return bool(published and connected) and connected[0] > published[-1]


def _subscribes_to_nothing(population: PopulationResult) -> bool:
    filters = any(getattr(population, counter) for counter in FILTERS.counters)
    return population.version != "zmtp-3.1" and population.ready_max > 0 and not filters


def _is_excluded(measured: Measured, population: PopulationResult, name: str) -> bool:
    """Returns True if every publish stage excluded deliveries from loss."""
    stages = [stage for stage in measured.stages if stage.kind == "publish"]
    return population.lives or all(name in stage.excluded for stage in stages)
