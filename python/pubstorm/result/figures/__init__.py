"""Reads figures: the value of an expression in a result, for thresholds, tables and stop rules.
Figures of populations are read here: counters, states, rates, quotients and latencies."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from pubstorm.contract.histogram import Histogram, HistogramSum
from pubstorm.metrics import OF_POPULATIONS, columns_of
from pubstorm.metrics.counters import FILTERS
from pubstorm.metrics.expressions import Expression, Threshold, share_of
from pubstorm.metrics.metric import LEAST_IS_WORST, Basis, Divisor, Metric, RunMetric
from pubstorm.quantities import counted
from pubstorm.result import (
    ClientLoss,
    GroupShare,
    Latency,
    Measured,
    Peak,
    Phase,
    PopulationResult,
    PopulationSums,
    StageResult,
    ThresholdOutcome,
)
from pubstorm.result.figures.of_monitors import (
    read_fault,
    read_monitors,
    read_phase,
    read_run,
    slope_of,
)
from pubstorm.result.interval import NOTHING_MEASURED, Found, Missing
from pubstorm.result.machinery import readings

__all__ = [
    "ROUND_TRIP",
    "Found",
    "Missing",
    "distribution",
    "evaluate",
    "evaluate_threshold",
    "from_send",
    "from_send_text",
    "in_results",
    "is_met_by",
    "nothing_behind",
    "number_at",
    "slowest_first",
    "together",
]

NO_ACKS = "messages of QoS 0 are not acknowledged"
NOT_KEPT = "{0} is not stored there: the scenario must name it, as in the threshold {1} < 100ms"
"""Results of earlier versions have only the usual percentiles of stages and phases, and those that
the scenario names."""
GENERATOR_SHARE = 0.2
"""Share of a latency that the generator may make."""
GENERATOR_MIN_US = 1000.0
"""Lateness up to which the generator made none of it."""
FROM_SEND = {
    name.removesuffix(".actual"): name for name in OF_POPULATIONS if name.endswith(".actual")
}
"""Latencies from the scheduled instant, with those from the actual send."""
ROUND_TRIP = "round_trip"
WITHOUT_TWIN = frozenset(metric.name for metric, _ in columns_of("curves"))
"""Times from the scheduled instant without a twin: each has a curve of its own."""
UP_TO_P99 = frozenset({"mean", "min", "p50", "p90", "p95", "p99"})
"""Statistics whose lateness is at most the 99th percentile of that of all messages."""


def evaluate(measured: Measured, expression: Expression) -> Found | Missing:
    """Returns the value of an expression in a result."""
    subject, figure = expression.subject, expression.figure
    if isinstance(figure, RunMetric):
        (owner,) = figure.of
        return _READERS[owner](measured, figure, expression)
    is_population = subject in measured.populations or subject in measured.wholes
    if "population" in figure.of and (subject is None or is_population):
        return _of_populations(measured, figure, expression)
    is_publisher = any(subject in {p.name, p.population} for p in measured.publishers)
    if subject is None or (is_population and not is_publisher):
        return Missing(f"populations have no metric {expression.metric}")
    if is_publisher and figure.of == {"publisher"}:
        return _of_publisher(measured, figure, expression)
    return read_monitors(measured, expression)


def nothing_behind(measured: Measured, expression: Expression) -> str | None:
    """Returns why a condition on an expression is about nothing; None if it is about something."""
    basis, parts = expression.figure.basis, _places(measured, expression)
    if basis is None or parts is None:
        return None
    if basis.needs_stamps and _carry_no_stamp(parts.values()):
        to = "" if expression.subject is None else f" to {expression.subject}"
        return (
            f"messages{to} carry no stamp (size of 32B or more, {{stamp}} in the payload, or a "
            "payload with version: 5), which shows latency, order and duplicates"
        )
    found = [getattr(part, name, None) for part in parts.values() for name in basis.counters]
    may_be_earlier = expression.span is not None and basis.may_be_earlier
    is_unknown = may_be_earlier or all(count is None for count in found)
    if any(found) or (found and is_unknown):
        return None
    return _why_nothing(measured, expression, basis, parts)


def evaluate_threshold(measured: Measured, threshold: Threshold) -> ThresholdOutcome:
    """Evaluates one threshold. A threshold about nothing passes only if it may be about nothing. An
    inexact value passes only if every value within the bound does. A latency that the generator
    made passes or fails only if the latency from the actual send does, too."""
    asked = threshold.expression
    found: Found | Missing | str = evaluate(measured, asked)
    if not threshold.may_be_about_nothing:
        found = nothing_behind(measured, asked) or found
    outcome = ThresholdOutcome(
        expression=threshold.source,
        figure=str(asked),
        metric=asked.metric,
        limit=threshold.value,
        found=None,
        passed=False,
        text=found.reason if isinstance(found, Missing) else str(found),
        default=threshold.is_default,
        # It may hold: the user, or a condition of the scenario, ended the run before.
        undecided=measured.interrupted or any(e.kind == "check" for e in measured.events),
    )
    if not isinstance(found, Found):
        return outcome
    passed, missed = _passes(threshold, found)
    inexact = "readings vary too much" if found.is_slope else "clocks are too inexact"
    doubt = "" if passed or missed else f": the {inexact} to decide"
    sent = from_send(measured, asked)
    if sent is not None:
        doubt = f", {from_send_text(asked, sent)}{doubt}"
        if (passed, missed) != _passes(threshold, sent):
            passed, missed = False, False
            doubt += ": the generator was too late to decide"
    return outcome.model_copy(
        update={
            "found": found.value,
            "unit": found.unit,
            "bound": found.bound,
            "passed": passed,
            "undecided": not passed and not missed,
            "from_send": None if sent is None else sent.value,
            "text": f"found {found}{doubt}",
        }
    )


def is_met_by(threshold: Threshold, value: float) -> bool:
    """Returns True if an exact value meets a threshold."""
    return _OPERATORS[threshold.op](value, threshold.value)


def _passes(threshold: Threshold, found: Found) -> tuple[bool, bool]:
    """Returns True if every value within the error passes, and True if none does."""
    fulfils, value = _OPERATORS[threshold.op], threshold.value
    if not found.bound:
        passed = fulfils(found.value, value)
        return passed, not passed
    low, high = found.ends
    answers = {fulfils(low, value), fulfils(high, value)}
    if low < value < high:
        # `==` and `!=` say the same of both ends, and another thing of the value between them.
        answers.add(fulfils(value, value))
    return answers == {True}, answers == {False}


def from_send(measured: Measured, asked: Expression) -> Found | None:
    """Returns the figure of an expression from the actual send, if the generator made more than
    `GENERATOR_SHARE` of it and more than `GENERATOR_MIN_US`; else None. Without a twin it is the
    least that can be: the lateness of all messages is the most that the generator made."""
    metric = asked.metric.removesuffix(".intended")
    found = evaluate(measured, asked) if metric in {*FROM_SEND, *WITHOUT_TWIN} else None
    late = measured.fleet.lateness_us
    if not isinstance(found, Found) or not late.count:
        return None
    most = late.p99 if asked.statistic in UP_TO_P99 else late.max
    if metric in WITHOUT_TWIN:
        actual = replace(found, value=max(found.value - most, 0.0))
    else:
        twin = evaluate(measured, replace(asked, metric=FROM_SEND[metric]))
        if not isinstance(twin, Found):
            return None
        actual = twin
    own = found.value - actual.value
    if measured.fleet.blocked_us.count or measured.publishers:
        # The wait for window, socket and connection is not the generator's, nor is a publisher's.
        own = min(own, most)
    return actual if own > max(GENERATOR_SHARE * found.value, GENERATOR_MIN_US) else None


def from_send_text(asked: Expression, sent: Found) -> str:
    """Returns the value from the actual send, in words."""
    least = "at least " if asked.metric in WITHOUT_TWIN else ""
    return f"{least}{sent} from the actual send"


def _of_populations(measured: Measured, metric: Metric, asked: Expression) -> Found | Missing:
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
    numbers = [_number(measured, metric, asked, *place) for place in places.items()]
    value = _joined(metric, numbers, asked.statistic or "")
    if value is None:
        counted_there = any(_distribution(place, metric) for place in places.values())
        words = NOT_KEPT.format(asked.statistic, asked)
        return Missing(words if counted_there else NOTHING_MEASURED)
    bound = max(_bound_at(place, metric.path) for place in places.values())
    return Found(value, metric.unit or "", bound)


def _number(
    measured: Measured, metric: Metric, asked: Expression, name: str, place: object
) -> float | None:
    """Returns a figure of one place; a percentile that the place does not have is read from its
    stored distribution."""
    statistic = asked.statistic or ""
    kept = number_at(place, (*metric.path, *filter(None, (statistic,))))
    latency, share = _distribution(place, metric), share_of(statistic)
    if kept is not None or latency is None or share is None:
        return kept
    histogram = _stored(measured, metric, name, place)
    if histogram is None:
        return None
    found = Latency.of(histogram, latency.bound_us, {statistic: share})
    return found.percentiles.get(statistic)


def _distribution(place: object, metric: Metric) -> Latency | None:
    """Returns the distribution of a metric in a place; None if it is empty, or there is none."""
    found = _place_at(place, metric.path)
    return found if isinstance(found, Latency) and found.count else None


def _stored(measured: Measured, metric: Metric, name: str, place: object) -> Histogram | None:
    """Returns the stored distribution of a metric of a population in a place: a stage, a phase, or
    the whole run. None if there is none."""
    field, *clock = metric.path
    found: Histogram | None = None
    if not isinstance(place, PopulationResult):
        histograms = getattr(place, "time_histograms_ns", {})
        found = histograms.get(metric.at)
    elif field == "latency_us":
        tally = HistogramSum()
        for each in _into(measured, name, clock[0]):
            tally.add(each)
        found = tally.value()
    elif field == "ack_latency_us":
        found = getattr(place.ack_histogram_ns, clock[0])
    else:
        found = place.time_histograms_ns.get(field)
    if found is None and metric is OF_POPULATIONS["live_latency"]:
        # Without queued deliveries it is that of all, and is not stored twice.
        return _stored(measured, OF_POPULATIONS["latency"], name, place)
    return found if found is not None and found.count else None


def distribution(measured: Measured, asked: Expression) -> Histogram | None:
    """Returns the stored distribution that a figure is read from; without a subject, that of the
    worst population. None if there is none."""
    metric, statistic = asked.figure, asked.statistic or ""
    share = share_of("p99.9" if statistic == "p999" else statistic)
    if not isinstance(metric, Metric) or metric.kind != "histogram":
        return None
    places = _places(measured, asked)
    if places is None or share is None:
        return None
    found = [_stored(measured, metric, name, place) for name, place in places.items()]
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
    is_sum = metric.over_all == "sum"
    if statistic == "slope":
        unit = metric.slope.unit or ""
        return slope_of(watched, asked.span, unit, is_sum=is_sum)
    values = readings(watched, statistic, asked.span)
    if not values:
        return Missing(NOTHING_MEASURED)
    unit = (metric.growth if statistic == "rate" else metric).unit or ""
    return Found(sum(values) if is_sum else max(values), unit)


def _places(measured: Measured, asked: Expression) -> dict[str, object] | None:
    """Returns the measurements of the subject in its span, or of each population without a subject;
    None if the span was not played."""
    place = _place_of(measured, asked.span)
    if place is None or asked.subject is None:
        return None if place is None else dict(place.populations)
    every = {**place.wholes, **place.populations}
    return {asked.subject: every[asked.subject]} if asked.subject in every else {}


def _bound_at(place: object, path: tuple[str, ...]) -> float:
    """Returns the largest error of the latencies in a place; 0 for other figures."""
    found = _place_at(place, path)
    return found.bound_us if isinstance(found, Latency) else 0.0


def _place_at(place: object, path: Iterable[str]) -> object:
    return reduce(_part_of, path, place)


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
    return population.can.answers_filters and population.ready_max > 0 and not filters


def _is_excluded(measured: Measured, population: PopulationResult, name: str) -> bool:
    """Returns True if every publish stage excluded deliveries from loss."""
    stages = [stage for stage in measured.stages if stage.kind == "publish"]
    return population.lives or all(name in stage.excluded for stage in stages)


def _of_publisher(measured: Measured, metric: Metric, asked: Expression) -> Found | Missing:
    """Returns the worst value of the publishers that the subject means."""
    if asked.span is not None:
        return Missing(f"{asked.metric} of publishers is kept for the whole run only")
    named = [p for p in measured.publishers if asked.subject in {p.name, p.population}]
    numbers = [_number(measured, metric, asked, p.name, p) for p in named]
    values = [value for value in numbers if value is not None]
    return Found(max(values), metric.unit or "") if values else Missing(NOTHING_MEASURED)


def number_at(place: object, path: Iterable[str]) -> float | None:
    """Returns a number in a place, by its path; None if nothing was measured."""
    found = place
    for step in path:
        if isinstance(found, Latency | ClientLoss | GroupShare) and not found.count:
            return None
        found = _part_of(found, step)
    return float(found) if isinstance(found, int | float) else None


def together(metric: Metric, places: Iterable[object], statistic: str = "") -> float | None:
    """Returns a figure of several places, such as populations: the sum, or the worst; None if
    nothing was measured."""
    path = (*metric.path, *filter(None, (statistic,)))
    return _joined(metric, (number_at(place, path) for place in places), statistic)


def _joined(metric: Metric, found: Iterable[float | None], statistic: str) -> float | None:
    """Returns the figures of several places as one; None if there is none."""
    values = [value for value in found if value is not None]
    if not values:
        return None
    worst = min if statistic in LEAST_IS_WORST else max
    return sum(values) if metric.over_all == "sum" else worst(values)


def slowest_first(
    metric: Metric, populations: Mapping[str, PopulationResult]
) -> list[tuple[str, Latency]]:
    """Returns the populations with durations of a metric, each with these, by their p99."""
    found = [(name, _place_at(each, metric.path)) for name, each in populations.items()]
    measured = [(name, each) for name, each in found if isinstance(each, Latency) and each.count]
    return sorted(measured, key=lambda each: (each[1].p99, each[0]), reverse=True)


def in_results(results: Iterable[Measured], expression: Expression) -> list[Found]:
    """Returns the values of an expression in several results; some may have none."""
    found = (evaluate(result, expression) for result in results)
    return [each for each in found if isinstance(each, Found)]


def _part_of(place: object, step: str) -> object:
    """Returns a part of a place. Stages and phases are rates; phases keep one latency."""
    if isinstance(place, Latency) and step in place.percentiles:
        return place.percentiles[step]
    return getattr(place, step, place if step in {"rates", "intended"} else None)


def _place_of(measured: Measured, span: str | None) -> Measured | StageResult | Phase | None:
    """Returns the run, or its stage or phase of a name; None if that was not played."""
    spans: Iterable[StageResult | Phase] = (*measured.stages, *measured.phases)
    return measured if span is None else next((s for s in spans if s.name == span), None)


_READERS = {
    "run": read_run,
    "fault": read_fault,
    "phase": read_phase,
}
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
