"""The expressions that ask for figures: `[SUBJECT.]METRIC[.STATISTIC][@SPAN]`, such as
`device.latency.p99`, `broker.cpu.max` or `device.acked_per_s@steady`. Statistics are fixed names
and percentiles such as `p95` and `p99.99`. A threshold is an expression with an operator and a
value, such as `device.latency.p99 < 100ms`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from pubstorm.contract import HOST_OF
from pubstorm.errors import meant
from pubstorm.metrics import FIGURES, METRICS, OF_POPULATIONS, SHOWN
from pubstorm.metrics.metric import (
    LATENCY_STATISTICS,
    READING_STATISTICS,
    Metric,
    RunMetric,
)
from pubstorm.metrics.monitors import KNOWN, OF_BRIDGES, OF_PUBLISHERS, SYS_PREFIX, reading_of
from pubstorm.quantities import UnfitError, Unit, count, duration_ns, rate_per_s, share, size_bytes

ANY_PERCENTILE = "any percentile between p0 and p100 such as .p95 or .p99.99"
SHOWN_MAX = 12
"""Metrics that a hint lists."""
_PUBLISHERS = {metric.name: metric for metric in OF_PUBLISHERS}
_BRIDGES = {metric.name for metric in OF_BRIDGES}


@dataclass(frozen=True, slots=True)
class Expression:
    """A figure of a result, as a scenario asks for it."""

    subject: str | None
    """A population or a share of one, a monitor's source or its group, or with `.host` the hosts
    of these; None: all populations."""
    metric: str
    statistic: str | None = None
    span: str | None = None
    """A stage, phase or fault; None: the whole run, for monitors its time under load."""

    def __str__(self) -> str:
        subject = "" if self.subject is None else f"{self.subject}."
        statistic = "" if self.statistic is None else f".{self.statistic}"
        span = "" if self.span is None else f"@{self.span}"
        return f"{subject}{self.metric}{statistic}{span}"

    @property
    def figure(self) -> Metric:
        """The metric of the registry. A name that is unknown there is one of monitors."""
        known = FIGURES.get(self.metric)
        if known is not None and (self.subject is None or known.of.isdisjoint({"phase", "fault"})):
            return known
        if self.subject is not None and self.metric in _PUBLISHERS:
            return _PUBLISHERS[self.metric]
        return reading_of(self.metric)

    @property
    def unit(self) -> Unit | None:
        """Unit of the value; None if only the result defines it."""
        figure = self.figure
        if isinstance(figure, RunMetric):
            return figure.unit
        match self.statistic:
            case "rate":
                return reading_of(self.metric).growth.unit
            case "slope":
                return figure.slope.unit
        return figure.unit

    def wants(self, subject: Literal["broker", "memory"]) -> bool:
        """Returns True for a figure of the run that has subjects of this kind."""
        return isinstance(self.figure, RunMetric) and self.figure.subject == subject

    @property
    def is_of_fault(self) -> bool:
        """True for a figure of faults."""
        return "fault" in self.figure.of

    @property
    def is_of_phase(self) -> bool:
        """True for a figure of phases."""
        return "phase" in self.figure.of

    @property
    def is_of_run(self) -> bool:
        """True for a figure of the run as a whole."""
        return "run" in self.figure.of


def parse_expression(source: str) -> Expression:
    """Parses an expression. The scenario checks that subject and span exist."""
    found = _EXPRESSION.fullmatch(source.strip())
    if found is None:
        hint = "for example device.latency.p99, broker.cpu.max or device.acked_per_s@steady"
        raise UnfitError(source, "is [SUBJECT.]METRIC[.STATISTIC][@SPAN]", hint)
    body, span = found["body"], found["span"]
    metric, statistic = _split_statistic(body)
    if metric in FIGURES:
        return _checked(Expression(None, metric, statistic, span))
    parts = _SUBJECT.fullmatch(body)
    if parts is None:
        hint = _metric_hint(metric, FIGURES, SHOWN)
        raise UnfitError(body, "are the metrics of the reference, or SUBJECT.METRIC", hint)
    name = parts["name"]
    metric, statistic = _split_statistic(parts["metric"])
    if name in OF_POPULATIONS and metric not in {*OF_POPULATIONS, *_BRIDGES}:
        return _checked(Expression(None, name, parts["metric"], span))
    return _checked(Expression(name, metric, statistic, span))


def _checked(expression: Expression) -> Expression:
    is_bridge = expression.subject is not None and expression.metric in _BRIDGES
    if not is_bridge:
        _check_form(expression)
    return expression


def _check_form(expression: Expression) -> None:
    """Raises UnfitError unless an expression has what its metric needs, and no more. The statistics
    of readings depend on their source."""
    figure, metric, statistic = expression.figure, expression.metric, expression.statistic
    if isinstance(figure, RunMetric):
        _check_span(expression, figure)
        _check_statistic(metric, statistic, figure.statistics)
        _check_subject(expression, figure)
    elif figure.has_readings:
        if statistic is not None and statistic not in READING_STATISTICS:
            words = f"are {metric} alone, or .{', .'.join(READING_STATISTICS)}"
            raise UnfitError(statistic, words)
    elif figure.at:
        _check_statistic(metric, statistic, figure.statistics)


def _check_span(expression: Expression, figure: RunMetric) -> None:
    """Raises UnfitError for a figure of faults or phases without one."""
    name = expression.metric
    if expression.span is not None:
        return
    if figure.span == "fault":
        hint = "for example clients_back.most@kill cloud"
        raise UnfitError(name, f"is {name}@FAULT, the name of a fault", hint)
    if figure.span == "phase":
        words = f"is {name}@PHASE, the name of a fault, change or publish stage"
        raise UnfitError(name, words, f"for example {name}@kill cloud")


def _check_subject(expression: Expression, figure: RunMetric) -> None:
    name, subject, span = expression.metric, expression.subject, expression.span
    if figure.subject == "memory" and subject is None:
        hint = f"for example broker.{name} or host.{name}"
        raise UnfitError(name, f"is SUBJECT.{name}", hint)
    if figure.subject == "none" and subject is not None:
        raise UnfitError(subject, f"is {name} without a subject")
    if figure.span == "stage" and span is None:
        raise UnfitError(name, f"is {name}@STAGE", f"for example {name}@connect")
    if figure.span == "none" and span is not None:
        raise UnfitError(span, f"is {name} without a span")


def _check_statistic(metric: str, statistic: str | None, allowed: tuple[str, ...]) -> None:
    if statistic in allowed or (statistic is None and not allowed):
        return
    has_percentiles = allowed == LATENCY_STATISTICS
    if has_percentiles and statistic is not None and share_of(statistic) is not None:
        return
    if not allowed:
        raise UnfitError(statistic, f"is {metric} alone: it is one number")
    found = metric if statistic is None else f"{metric}.{statistic}"
    example = "p99" if "p99" in allowed else allowed[0]
    others = f" and {ANY_PERCENTILE}" if has_percentiles else ""
    words = f"are {metric}.{', .'.join(allowed)}{others}"
    raise UnfitError(found, words, f"for example {metric}.{example}")


def check_population_metric(expression: Expression) -> None:
    """Raises UnfitError unless populations have the figure, with that statistic."""
    if expression.metric not in OF_POPULATIONS:
        metric, _, statistic = expression.metric.rpartition(".")
        if metric in OF_POPULATIONS:
            _check_form(Expression(None, metric, statistic))
        hint = _metric_hint(expression.metric, OF_POPULATIONS, SHOWN)
        raise UnfitError(expression.metric, "are the metrics of the reference", hint)
    _check_form(expression)


def check_reading(expression: Expression, known: Sequence[str] | None) -> None:
    """Raises UnfitError unless a source has the metric and the statistic. `known` are its metrics,
    beside those of `$SYS`; None if only the run defines them."""
    metric, statistic = expression.metric, expression.statistic
    if known is not None and metric in _PUBLISHERS and metric in known:
        return
    if known is not None and not metric.startswith(SYS_PREFIX):
        names = [name for name, each in KNOWN.items() if each.name in known]
        if metric not in names:
            hint = _metric_hint(metric, names, known)
            raise UnfitError(metric, "are the metrics of the reference", hint)
    if statistic is not None and statistic not in READING_STATISTICS:
        raise UnfitError(statistic, f"are {', '.join(READING_STATISTICS)}")


def _metric_hint(name: str, metrics: Collection[str], shown: Collection[str]) -> str:
    """Returns metrics that a wrong name may mean, or all that there are."""
    others = len(shown) - SHOWN_MAX
    more = f' and {others} more: the page "thresholds" of the reference has them'
    there = f"there are {', '.join([*shown][:SHOWN_MAX])}{more if others > 0 else ''}"
    return meant(name, metrics, there, least=0.7)


def percentiles_in(text: str) -> dict[str, float]:
    """Returns the shares, by name, of the percentiles that the text of a scenario names anywhere.
    Each step of a series has the whole text."""
    found = {name: share_of(name) for name in _PERCENTILES.findall(text)}
    return {name: share for name, share in found.items() if share is not None}


def is_percentile(statistic: str) -> bool:
    """Returns True for the name of a percentile."""
    return share_of(statistic) is not None


def _split_statistic(body: str) -> tuple[str, str | None]:
    """Returns the metric and its statistic, if it ends with one outside labels."""
    labels_end = body.rfind("}") + 1
    found = _ENDING.fullmatch(body[labels_end:])
    if found is not None and is_percentile(found[2]):
        return body[:labels_end] + found[1], found[2]
    metric, dot, statistic = body[labels_end:].rpartition(".")
    if dot and body[:labels_end] + metric and statistic in _STATISTICS:
        return body[:labels_end] + metric, statistic
    return body, None


def share_of(name: str) -> float | None:
    """Returns the share of a percentile's name, from 0 to 1; None if the name is not one."""
    found = _PERCENTILE.fullmatch(name)
    return (float(found[1]) / 100 if found else 0.0) or None


_STATISTICS = frozenset(READING_STATISTICS).union(*(metric.statistics for metric in METRICS))
_NUMBER = r"\d{1,2}(?:\.\d{1,4})?"
_PERCENTILE = re.compile(rf"p({_NUMBER})", re.ASCII)
_PERCENTILES = re.compile(rf"\.(p{_NUMBER})(?![\w.])", re.ASCII)
_ENDING = re.compile(rf"(.+)\.(p{_NUMBER})", re.ASCII)
_EXPRESSION = re.compile(r"(?P<body>[^@\s](?:[^@{]|\{[^}]*\})*?)(?:@(?P<span>\S(?:.*\S)?))?")
_NAME = r"[A-Za-z][\w-]*"
_SUBJECT = re.compile(
    rf"(?P<name>{_NAME}(?:/{_NAME}|{re.escape(HOST_OF)}(?=\.))?)\.(?P<metric>.+)", re.ASCII
)


Operator = Literal["<", "<=", "==", "!=", ">=", ">"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition: a metric compared with a value in that metric's unit, such as microseconds."""

    expression: Expression
    op: Operator
    value: float
    source: str
    is_part: bool = False
    """True if the value is a part of the clients or bridges that the figure counts, from 0 to 1."""
    is_default: bool = False
    """True if Pubstorm added the threshold, since the scenario has none about this figure."""
    may_be_about_nothing: bool = False
    """True if the threshold passes where the run had nothing to count."""

    @property
    def is_of_the_end(self) -> bool:
        """True for a threshold about the state after the last publish stage."""
        zero = self.expression.figure.zero
        return zero is not None and zero.is_of_last_stage

    @property
    def is_of_connects(self) -> bool:
        """True for a threshold about the clients that were reached so far. A stage that connects
        clients adds to them until its end."""
        figure = self.expression.figure
        return "never_ready" in (figure.name, figure.replaces)


HOURS: Mapping[str, float] = {"h": 1.0, "d": 24.0}
"""Times of slopes, in hours."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Form of the values of a unit."""

    name: str
    """Name of the kind."""
    examples: tuple[str, ...]
    """Some values, as they are written."""
    readers: tuple[Callable[[str], float], ...]
    """Functions that read a value or raise UnfitError; the first that fits counts."""
    divisor: float = 1.0
    """Number of the unit that the readers return, in one unit."""
    times: Mapping[str, float] | None = None
    """Divisors by the time after the last slash; None if a value has no such time."""
    hint: str = ""

    def parse(self, text: str) -> float:
        """Returns a value. Raises UnfitError if the text is none."""
        number, _, time = (text, "", "") if self.times is None else text.rpartition("/")
        per, closest = (self.times or {"": 1.0}).get(time.strip()), None
        for read in self.readers if number and per else ():
            try:
                return float(read(number.strip())) / self.divisor / (per or 1.0)
            except UnfitError as unfit:
                closest = closest or unfit.hint
        allowed = f"is {self.name} such as {' or '.join(self.examples)}"
        raise UnfitError(text, allowed, closest or self.hint or None)


def parse_threshold(source: str) -> Threshold:
    """Parses a line; whether subject, metric and span exist is the scenario's to say."""
    found = _LINE.fullmatch(source.strip())
    if found is None:
        raise UnfitError(
            source, "is METRIC OPERATOR VALUE", "for example: device.latency.p99 < 100ms"
        )
    written, op, text = found.groups()
    if op not in OPERATORS:
        raise UnfitError(op, f"are the operators {', '.join(OPERATORS)}")
    expression = parse_expression(written)
    is_part = expression.unit == "" and expression.figure.of_a_size and text.endswith("%")
    value = parse_value(text, "share" if is_part else expression.unit)
    return Threshold(expression, cast("Operator", op), value, source.strip(), is_part=is_part)


def parse_value(text: str, unit: Unit | None) -> float:
    """Returns a value in its unit. A unit of None accepts any base unit."""
    if unit is not None:
        return VALUES[unit].parse(text)
    for base in BASE_UNITS:
        try:
            return VALUES[base].parse(text)
        except UnfitError:
            continue
    raise UnfitError(text, "is a value such as 0, 10k, 80%, 500MB or 100ms")


VALUES: dict[Unit, ValueKind] = {
    "": ValueKind("a count", ("0", "10k"), (count,)),
    "share": ValueKind("a share", ("80%", "0.8"), (share,)),
    "bytes": ValueKind("a size", ("500MB",), (size_bytes,), hint="sizes need a unit: 500MB"),
    "per_s": ValueKind("a rate", ("490/s", "490"), (rate_per_s, count)),
    "bytes_per_s": ValueKind("a rate of bytes", ("10MB/s",), (size_bytes,), times={"s": 1.0}),
    "us": ValueKind(
        "a duration",
        ("500us", "100ms"),
        (duration_ns,),
        divisor=1e3,
        hint="latencies need a unit: 100ms",
    ),
    "s": ValueKind("a duration", ("100ms", "5s"), (duration_ns,), divisor=1e9),
}
SLOPES: Mapping[Unit, tuple[Unit, str]] = {
    "per_h": ("", "10/h"),
    "share_per_h": ("share", "1%/h"),
    "bytes_per_h": ("bytes", "1MB/h"),
    "us_per_h": ("us", "1ms/h"),
    "s_per_h": ("s", "1s/h"),
}
"""Unit of what grows, and an example, by the unit of the slope."""
VALUES |= {
    unit: ValueKind("a slope", (example,), (VALUES[of].parse,), times=HOURS)
    for unit, (of, example) in SLOPES.items()
}
"""Forms of values, by the unit of the metric."""
BASE_UNITS: tuple[Unit, ...] = (
    *("", "share", "bytes", "per_s", "bytes_per_s", "s"),
    *("per_h", "share_per_h", "bytes_per_h", "s_per_h"),
)
"""Units that a metric of unknown unit may have: those of Prometheus and of `$SYS`."""
OPERATORS: tuple[Operator, ...] = ("<", "<=", "==", "!=", ">=", ">")

# The value holds no operator, so the last one divides the line: labels and spans may hold others.
_LINE = re.compile(r"([^<>=!\s].*?)\s*([<>=!]+)\s*([^<>=!\s](?:[^<>=!]*[^<>=!\s])?)")
