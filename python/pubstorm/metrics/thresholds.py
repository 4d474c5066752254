"""Thresholds: a line such as `device.latency.p99 < 100ms`, parsed into expression, operator and
value. Values of each unit have a parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pubstorm.metrics.expressions import Expression, parse_expression
from pubstorm.quantities import UnfitError, Unit, count, duration_ns, rate_per_s, share, size_bytes

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


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Form of the values of a unit."""

    name: str
    """Name of the kind."""
    examples: tuple[str, ...]
    """Some values, as they are written."""
    parse: Callable[[str], float]
    """Reads one, or raises UnfitError."""


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


def _read(text: str, allowed: str, *parsers: Callable[[str], float], hint: str = "") -> float:
    """Returns the value of the first parser that fits."""
    closest = None
    for parse in parsers:
        try:
            return float(parse(text))
        except UnfitError as unfit:
            closest = closest or unfit.hint
    raise UnfitError(text, allowed, closest or hint or None)


def _count(text: str) -> float:
    return _read(text, "is a count such as 0 or 10k", count)


def _share(text: str) -> float:
    return _read(text, "is a share such as 80% or 0.8", share)


def _bytes(text: str) -> float:
    return _read(text, "is a size such as 500MB", size_bytes, hint="sizes need a unit: 500MB")


def _rate(text: str) -> float:
    return _read(text, "is a rate such as 490/s", rate_per_s, count)


def _byte_rate(text: str) -> float:
    allowed = "is a rate of bytes such as 10MB/s"
    if not text.endswith("/s"):
        raise UnfitError(text, allowed)
    return _read(text.removesuffix("/s"), allowed, size_bytes)


def _us(text: str) -> float:
    allowed, hint = "is a duration such as 500us or 100ms", "latencies need a unit: 100ms"
    return _read(text, allowed, duration_ns, hint=hint) / 1000


def _seconds(text: str) -> float:
    return _read(text, "is a duration such as 100ms or 5s", duration_ns) / 1e9


def _slope(unit: str, example: str) -> ValueKind:
    """Returns the form of the values of a slope: those of a unit, an hour."""
    allowed = f"is a slope such as {example}"

    def parse(text: str) -> float:
        value, _, time = text.rpartition("/")
        if not value or time.strip() not in HOURS:
            raise UnfitError(text, allowed)
        return VALUES[cast("Unit", unit)].parse(value.strip()) / HOURS[time.strip()]

    return ValueKind("a slope", (example,), parse)


HOURS: Mapping[str, float] = {"h": 1.0, "d": 24.0}
"""Times of slopes, in hours."""
VALUES: Mapping[Unit, ValueKind] = {
    "": ValueKind("a count", ("0", "10k"), _count),
    "share": ValueKind("a share", ("80%", "0.8"), _share),
    "bytes": ValueKind("a size", ("500MB",), _bytes),
    "per_s": ValueKind("a rate", ("490/s", "490"), _rate),
    "bytes_per_s": ValueKind("a rate of bytes", ("10MB/s",), _byte_rate),
    "us": ValueKind("a duration", ("500us", "100ms"), _us),
    "s": ValueKind("a duration", ("5s",), _seconds),
    "per_h": _slope("", "10/h"),
    "share_per_h": _slope("share", "1%/h"),
    "bytes_per_h": _slope("bytes", "1MB/h"),
    "us_per_h": _slope("us", "1ms/h"),
    "s_per_h": _slope("s", "1s/h"),
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
