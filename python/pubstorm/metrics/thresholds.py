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
