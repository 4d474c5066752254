"""Figures of populations: counters, states, rates, quotients and latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from pubstorm.quantities import UnfitError, counted
from pubstorm.result import Latency, Measured, Peak, PopulationResult
from pubstorm.result.figures.metric import (
    LATENCY_STATISTICS,
    MONITOR_STATISTICS,
    NOTHING_MEASURED,
    Asked,
    Found,
    Metric,
    Missing,
    SpanKind,
    number_at,
    part_of,
    place_of,
    readings,
)

NO_ACKS = "messages of QoS 0 are not acknowledged"


@dataclass(frozen=True, slots=True)
class Divisor:
    """Denominator of a quotient. A stage or phase that does not keep it uses that of the run."""

    path: tuple[str, ...]
    """Place in a population's result."""
    meaning: str
    """Meaning of the quotient."""
    nothing: str
    """Reason why there is no quotient if the denominator is zero."""
    among: tuple[str, ...] = ()
    """Counters of which a population needs one above zero to be included; empty includes all."""


@dataclass(frozen=True)
class PopulationMetric(Metric):
    """A figure of populations."""

    path: tuple[str, ...] = ()
    """Place in a population's result, before the statistic."""
    over_all: Literal["sum", "worst"] = "sum"
    """Combination of all populations."""
    spans: frozenset[SpanKind] = frozenset()
    """Kinds of spans that keep the figure."""
    over_time: bool = False
    """True if its readings can be asked for too, with the statistics of monitors."""
    divisor: Divisor | None = None
    """Denominator of a ratio; None for other figures."""
    of_acks: bool = False
    """True if only populations with acknowledged messages have the figure."""
    basis: tuple[str, ...] = ()
    """Counters of which one must be above zero for a threshold to pass: `lost == 0` says nothing
    without expected deliveries. Stages and phases need only counters that they keep."""

    def check(self, asked: Asked) -> None:
        """Raises UnfitError unless the figure has the statistic."""
        statistic = asked.statistic
        if not self.over_time:
            super().check(asked)
        elif statistic is not None and statistic not in MONITOR_STATISTICS:
            words = f"are {asked.metric} alone, or .{', .'.join(MONITOR_STATISTICS)}"
            raise UnfitError(statistic, words)

    def read(self, measured: Measured, asked: Asked) -> Found | Missing:
        """Returns the subject's value; without a subject the sum over all, or the worst."""
        silent = _without_acks(measured) if self.of_acks else frozenset[str]()
        if self.over_time and asked.statistic is not None:
            return _of_readings(measured, asked, silent)
        found = _places(measured, asked)
        if found is None:
            return Missing(f"{asked.span} was not played")
        places = {name: place for name, place in found.items() if name not in silent}
        if found and not places:
            return Missing(NO_ACKS)
        if self.divisor is not None:
            return self._quotient(measured, self.divisor, places)
        path = self.path if asked.statistic is None else (*self.path, asked.statistic)
        values = [v for place in places.values() if (v := number_at(place, path)) is not None]
        if not values:
            return Missing(NOTHING_MEASURED)
        bound = max(_bound_at(place, self.path) for place in places.values())
        worst = min if asked.statistic in LEAST_IS_WORST else max
        value = sum(values) if self.over_all == "sum" else worst(values)
        return Found(value, self.unit or "", bound)

    def _quotient(
        self, measured: Measured, divisor: Divisor, places: Mapping[str, object]
    ) -> Found | Missing:
        """Returns the figure by its divisor, each the sum over the places."""
        every = {**measured.wholes, **measured.populations}
        above = below = 0.0
        for name, place in places.items():
            population = every[name]
            if divisor.among and not any(getattr(population, c) for c in divisor.among):
                continue
            own = number_at(place, divisor.path)
            above += number_at(place, self.path) or 0.0
            below += (number_at(population, divisor.path) if own is None else own) or 0.0
        return Found(above / below, self.unit or "") if below else Missing(divisor.nothing)

    def nothing_behind(self, measured: Measured, asked: Asked) -> str | None:
        """Returns why a condition on the figure is about nothing; None if it is about something."""
        parts = _places(measured, asked)
        if parts is None or not self.basis:
            return None
        found = [getattr(part, name, None) for part in parts.values() for name in self.basis]
        # The clients of a stage may have connected in an earlier one.
        may_be_earlier = asked.span is not None and self.basis == _ATTEMPTS
        is_unknown = may_be_earlier or all(count is None for count in found)
        if any(found) or (found and is_unknown):
            return None
        return _why_nothing(measured, asked, self.basis, parts)


def _without_acks(measured: Measured) -> frozenset[str]:
    """Returns the populations whose messages are not acknowledged."""
    every = {**measured.wholes, **measured.populations}
    return frozenset(name for name, population in every.items() if not population.acknowledged)


def _of_readings(measured: Measured, asked: Asked, silent: frozenset[str]) -> Found | Missing:
    """Returns a statistic of the readings of a rate: the subject's, or the sum over all. The
    largest rate of all populations is that of one instant."""
    subject, statistic = asked.subject, asked.statistic or "mean"
    peak = getattr(measured.peaks, asked.metric, Peak())
    if subject is None and asked.span is None and statistic == "max" and peak.at_s is not None:
        return Found(peak.value, "per_s")
    names = (set(measured.populations) if subject is None else {subject}) - silent
    if not names:
        return Missing(NO_ACKS)
    watched = [w for w in measured.monitors if w.source in names and w.metric == asked.metric]
    values = readings(watched, statistic, asked.span)
    return Found(sum(values), "per_s") if values else Missing(NOTHING_MEASURED)


def _places(measured: Measured, asked: Asked) -> dict[str, object] | None:
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
    measured: Measured, asked: Asked, basis: tuple[str, ...], parts: Mapping[str, object]
) -> str:
    subject, span = asked.subject, asked.span
    where = "" if span is None else f" in {span}"
    whose = "" if subject is None else f" of {subject}"
    if basis in (_CLIENTS, _ATTEMPTS):
        return f"no client{whose} was to connect{where}: no stage connects it"
    if basis == _FILTERS:
        return f"no filter{whose} was sent to a broker{where}"
    if basis == _REMOVALS:
        return f"no broker answered an UNSUBSCRIBE{whose}{where}: only flapping clients send some"
    if basis == _ANSWERS:
        return f"no request{whose} was sent{where}: only publications with request: true send some"
    if basis == _MESSAGES:
        return f"no message{whose} was scheduled{where}"
    to = "" if subject is None else f" to {subject}"
    if "wills_expected_total" in basis or "wills_received_total" in basis:
        return f"no will{to} was expected or received{where}"
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
        did = "unsubscribed" if population.unsubscribed_total else "joined or left"
        return f"clients of {subject} {did} while messages were sent"
    if measured.fleet.failures:
        return "what clients of failed agents were to receive is not known"
    return f"no publication matches the filters of {subject or 'any population'}"


def _subscribes_to_nothing(population: PopulationResult) -> bool:
    filters = population.subscribed_total + population.subscribe_failed_total
    return population.version != "zmtp-3.1" and population.ready_max > 0 and not filters


def _is_excluded(measured: Measured, population: PopulationResult, name: str) -> bool:
    """Returns True if every publish stage excluded deliveries from loss."""
    stages = [stage for stage in measured.stages if stage.kind == "publish"]
    return population.lives or all(name in stage.excluded for stage in stages)


_DELIVERIES = ("expected_total", "received_total")
_MESSAGES = ("sent_total", "skipped_total")
_ATTEMPTS = ("connect_attempts_total",)
_FILTERS = ("subscribed_total", "subscribe_failed_total")
_REMOVALS = ("unsubscribed_total", "unsubscribe_failed_total")
_CLIENTS = ("asked",)
_EXPECTED = ("expected_total",)
_ANSWERS = ("answers_expected_total",)
_WILLS = ("wills_expected_total",)
_STAGES: frozenset[SpanKind] = frozenset({"stage"})
_EVERYWHERE: frozenset[SpanKind] = frozenset({"stage", "phase"})

COUNTERS: Mapping[str, tuple[tuple[str, ...], frozenset[SpanKind]]] = {
    "connect_attempts": ((), frozenset()),
    "connect_failed": (_ATTEMPTS, _STAGES),
    "disconnected": (_ATTEMPTS, _STAGES),
    "subscribed": ((), frozenset()),
    "subscribe_failed": (_FILTERS, frozenset()),
    "unsubscribed": ((), _STAGES),
    "unsubscribe_failed": (_REMOVALS, _STAGES),
    "sent": ((), _STAGES),
    "acked": ((), _STAGES),
    "rejected": (_MESSAGES, frozenset()),
    "left": ((), _STAGES),
    "stalled": (_DELIVERIES, _STAGES),
    "resent": (_MESSAGES, frozenset()),
    "abandoned": (_MESSAGES, frozenset()),
    "skipped": (_MESSAGES, _STAGES),
    "requests": ((), _STAGES),
    "answered": ((), _STAGES),
    "unanswered": (_ANSWERS, _STAGES),
    "answers_expected": ((), _STAGES),
    "answers_duplicate": (_ANSWERS, _STAGES),
    "answers_late": (_ANSWERS, _STAGES),
    "answers_of_others": ((), frozenset()),
    "answers": ((), _STAGES),
    "answers_dropped": ((), _STAGES),
    "expected": ((), _STAGES),
    "received": ((), _STAGES),
    "lost": (_EXPECTED, _STAGES),
    "duplicate": (_DELIVERIES, _STAGES),
    "copies": (_DELIVERIES, _STAGES),
    "reordered": (_DELIVERIES, _STAGES),
    "stale": (_DELIVERIES, _STAGES),
    "receive_maximum_waits": ((), frozenset()),
    "wills_expected": ((), _STAGES),
    "wills_received": ((), _STAGES),
    "wills_lost": (_WILLS, _STAGES),
    "expired": ((), _STAGES),
    "expired_received": (("received_total",), _STAGES),
    "retained": ((), frozenset()),
    "retained_as_published": ((), frozenset()),
    "expiry_reduced": ((), frozenset()),
    "server_keep_alives": ((), frozenset()),
    "foreign": ((), frozenset()),
    "packets_sent": ((), frozenset()),
    "packets_received": ((), frozenset()),
    "bytes_sent": ((), frozenset()),
    "bytes_received": ((), frozenset()),
}
"""Basis and spans of each counter."""
STATES = (
    "clients",
    "connected",
    "ready_max",
    "never_ready",
    "offline",
    "in_flight_max",
    "in_flight",
    "backlog",
)
RATES = ("sent_per_s", "acked_per_s", "received_per_s")
BYTE_RATES = ("bytes_sent_per_s", "bytes_received_per_s")
QUOTIENTS = ("loss", "sent_each_per_s", "received_each_per_s")
LATENCIES = ("latency", "ack_latency")
CLIENT_LOSS_STATISTICS = ("mean", "p50", "p90", "p99", "max")
GROUP_SHARE_STATISTICS = ("fairness", "min", "p50", "max")
LEAST_IS_WORST = ("fairness", "min")
"""Statistics of which the smallest is the worst of several populations."""
SHOWN_METRICS = (
    *COUNTERS,
    *STATES,
    *RATES,
    *BYTE_RATES,
    *QUOTIENTS,
    "client_loss",
    "group_share",
    *LATENCIES,
    "round_trip",
    "will_latency",
    "connect_time",
    "receive_maximum_wait",
    "subscribe_time",
    "unsubscribe_time",
)
"""Each figure of populations once, though some have several names."""


def _metrics() -> dict[str, PopulationMetric]:
    metrics: dict[str, PopulationMetric] = {}
    for name, (basis, spans) in COUNTERS.items():
        path, of_acks = (f"{name}_total",), name == "acked"
        metric = PopulationMetric("", path=path, spans=spans, of_acks=of_acks, basis=basis)
        metrics[name] = metrics[f"{name}_total"] = metric
    for name in STATES:
        metrics[name] = PopulationMetric("", path=(name,))
    metrics["never_ready"] = PopulationMetric("", path=("never_ready",), basis=_CLIENTS)
    for name in ("connected", "offline"):
        metrics[name] = metrics[f"{name}_max"] = PopulationMetric("", path=(f"{name}_max",))
    for name in RATES:
        metrics[name] = PopulationMetric(
            "per_s",
            path=("rates", name),
            spans=_EVERYWHERE,
            over_time=True,
            of_acks=name == "acked_per_s",
        )
    for name in BYTE_RATES:
        metrics[name] = PopulationMetric("bytes_per_s", path=("rates", name), spans=_EVERYWHERE)
    metrics["loss"] = PopulationMetric(
        "share", path=("lost_total",), spans=_STAGES, divisor=_OF_EXPECTED, basis=_EXPECTED
    )
    metrics["client_loss"] = PopulationMetric(
        "share", "", CLIENT_LOSS_STATISTICS, ("client_loss",), "worst", _STAGES, basis=_EXPECTED
    )
    metrics["group_share"] = PopulationMetric(
        "share", "", GROUP_SHARE_STATISTICS, ("group_share",), "worst", _STAGES, basis=_DELIVERIES
    )
    for name, rate, divisor in (
        ("sent_each_per_s", "sent_per_s", _SENDERS),
        ("received_each_per_s", "received_per_s", _RECEIVERS),
    ):
        metrics[name] = PopulationMetric(
            "per_s", path=("rates", rate), spans=_EVERYWHERE, divisor=divisor
        )
    for name in LATENCIES:
        basis = ("received_total",) if name == "latency" else ()
        for clock, spans in (("intended", _EVERYWHERE), ("actual", _STAGES)):
            metrics[f"{name}.{clock}"] = _time((f"{name}_us", clock), spans, basis)
        metrics[name] = metrics[f"{name}.intended"]
    metrics["round_trip"] = _time(("round_trip_us",), _STAGES, ("answered_total",))
    metrics["will_latency"] = _time(("will_latency_us",), _STAGES, ("wills_received_total",))
    for name in ("subscribe_time", "unsubscribe_time"):
        metrics[name] = _time((f"{name}_us",), _STAGES, _REMOVALS)
    for name in ("connect_time", "receive_maximum_wait"):
        metrics[name] = _time((f"{name}_us",), frozenset(), ())
    return metrics


def _time(
    path: tuple[str, ...], spans: frozenset[SpanKind], basis: tuple[str, ...]
) -> PopulationMetric:
    return PopulationMetric("us", "", LATENCY_STATISTICS, path, "worst", spans, basis=basis)


_OF_EXPECTED = Divisor(
    ("expected_total",),
    "Lost deliveries, as a share of the expected deliveries.",
    "no delivery was expected",
)
_SENDERS = Divisor(
    ("ready_max",),
    "Messages that each client sent: the rate by the most clients that were ready at once.",
    "no client was ready",
    among=("sent_total", "skipped_total"),
)
_RECEIVERS = Divisor(
    ("ready_max",),
    "Messages that each client received: the rate by the most clients that were ready at once.",
    "no client was ready",
    among=("expected_total", "received_total"),
)
POPULATION_METRICS: Mapping[str, PopulationMetric] = _metrics()
