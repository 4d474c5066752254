"""Reads figures of populations: counters, states, rates, quotients and latencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.metrics.counters import FILTERS
from pubstorm.metrics.expressions import Expression, share_of
from pubstorm.metrics.metric import Basis, Divisor, Metric
from pubstorm.quantities import counted
from pubstorm.result import Latency, Measured, Peak, PopulationResult
from pubstorm.result.figures.reading import (
    NOTHING_MEASURED,
    Found,
    Missing,
    joined,
    number_at,
    part_of,
    place_of,
)
from pubstorm.result.monitors import readings

NO_ACKS = "messages of QoS 0 are not acknowledged"
NOT_KEPT = "{0} is not stored there: the scenario must name it, as in the threshold {1} < 100ms"
"""Stages and phases keep the usual percentiles, and those that the scenario names."""


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
    numbers = (_number(measured, metric, asked, *place) for place in places.items())
    value = joined(metric, numbers, asked.statistic or "")
    if value is None:
        counted_there = any(_distribution(place, metric) for place in places.values())
        words = NOT_KEPT.format(asked.statistic, asked)
        return Missing(words if counted_there else NOTHING_MEASURED)
    bound = max(_bound_at(place, metric.path) for place in places.values())
    return Found(value, metric.unit or "", bound)


def _number(
    measured: Measured, metric: Metric, asked: Expression, name: str, place: object
) -> float | None:
    """Returns a figure of one place; a percentile that the place does not have is read from the
    stored distribution."""
    statistic = asked.statistic or ""
    kept = number_at(place, (*metric.path, *filter(None, (statistic,))))
    latency, share = _distribution(place, metric), share_of(statistic)
    if kept is not None or latency is None or share is None or asked.span is not None:
        return kept
    histogram = histogram_of(measured, metric, name)
    if histogram is None:
        return None
    found = Latency.of(histogram, latency.bound_us, {statistic: share})
    return found.percentiles.get(statistic)


def _distribution(place: object, metric: Metric) -> Latency | None:
    """Returns the distribution of a metric in a place; None if it is empty, or there is none."""
    found = reduce(part_of, metric.path, place)
    return found if isinstance(found, Latency) and found.count else None


def histogram_of(measured: Measured, metric: Metric, name: str) -> Histogram | None:
    """Returns the stored distribution of a metric of a population in the whole run; None if there
    is none."""
    field, *clock = metric.path
    population = {**measured.wholes, **measured.populations}.get(name)
    if field == "latency_us":
        tally = HistogramSum()
        for each in _into(measured, name, clock[0]):
            tally.add(each)
        found: Histogram | None = tally.value()
    elif population is None:
        found = None
    elif field == "ack_latency_us":
        found = getattr(population.ack_histogram_ns, clock[0])
    else:
        found = population.time_histograms_ns.get(field)
    return found if found is not None and found.count else None


def distribution(measured: Measured, asked: Expression) -> Histogram | None:
    """Returns the stored distribution that a figure of the whole run is read from; without a
    subject, that of the worst population. None if there is none."""
    metric, statistic = asked.figure, asked.statistic or ""
    share = share_of("p99.9" if statistic == "p999" else statistic)
    if metric.kind != "histogram" or asked.span is not None or share is None:
        return None
    names = measured.populations if asked.subject is None else (asked.subject,)
    found = [histogram_of(measured, metric, name) for name in names]
    known = [histogram for histogram in found if histogram is not None]
    return max(known, key=lambda histogram: histogram.quantile_ns(share), default=None)


def _into(measured: Measured, name: str, clock: str) -> Iterator[Histogram]:
    """Yields the distributions of the flows to a population, of all shares of one."""
    for flow in measured.flows:
        if name in {flow.to, flow.to.partition("/")[0]}:
            yield getattr(flow.histogram_ns, clock)


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
    if measured.fleet.failures:
        return "what clients of failed agents were to receive is not known"
    return f"no publication matches the filters of {subject or 'any population'}"


def _subscribes_to_nothing(population: PopulationResult) -> bool:
    filters = any(getattr(population, counter) for counter in FILTERS.counters)
    return population.version != "zmtp-3.1" and population.ready_max > 0 and not filters


def _is_excluded(measured: Measured, population: PopulationResult, name: str) -> bool:
    """Returns True if every publish stage excluded deliveries from loss."""
    stages = [stage for stage in measured.stages if stage.kind == "publish"]
    return population.lives or all(name in stage.excluded for stage in stages)
