"""Numbers as people read and write them. Parsers take `500B`, `10k`, `6s`, `1/6 Hz`, `10%` or
`1MB/s`, and return one number in one fixed unit, or say what they found and what is allowed.
`write_*` gives such a text back exactly; `*_text` rounds to what a reader needs: 12.3 ms, 98.3 %.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import floor
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from pubstorm.errors import without_credentials

Number = int | float
Slope = Literal["per_h", "share_per_h", "bytes_per_h", "us_per_h", "s_per_h"]
Unit = Literal["", "share", "bytes", "per_s", "bytes_per_s", "us", "s", Slope]
"""Unit of a figure or of a sample; shares are from 0 to 1. Slopes are those an hour."""
SLOPES: Mapping[str, Slope] = {
    "": "per_h",
    "share": "share_per_h",
    "bytes": "bytes_per_h",
    "per_s": "per_h",
    "bytes_per_s": "bytes_per_h",
    "us": "us_per_h",
    "s": "s_per_h",
}
"""Units of slopes, by the units of readings."""
MILLISECOND_NS, SECOND_NS = 10**6, 10**9
THIN_SPACE = "\u202f"
NOTHING = "–"
"""Mark of a missing value in tables."""


class UnfitError(ValueError):
    """A value that cannot be taken: what was found, what is allowed, and perhaps a hint."""

    def __init__(self, found: object, allowed: str, hint: str | None = None) -> None:
        super().__init__(f"found {describe(found)}, allowed {allowed}")
        self.allowed = allowed
        self.hint = hint


@dataclass(frozen=True, slots=True)
class QuantityField:
    """Marks a field as a quantity: `Annotated[int, Quantity(duration_ns)]`, with its bounds.

    `low`, `high` and `step` are in the parser's unit; `low` itself is allowed unless `above_low`,
    and a `step` other than 0 allows its multiples only.
    """

    parse: Callable[[object], Number]
    low: Number = 0
    high: Number = float("inf")
    above_low: bool = False
    step: Number = 0

    @property
    def kind(self) -> Notation:
        """Notation of the quantity."""
        return KINDS[self.parse]

    def read(self, value: object) -> Number:
        """The number for `value`, within the bounds."""
        number = self.parse(value)
        if number < self.low or number > self.high or (self.above_low and number == self.low):
            raise UnfitError(value, f"is {self.bounds()}")
        if self.step and number % self.step:
            raise UnfitError(value, f"is a whole number of {self.kind.write(self.step)}")
        return number

    def bounds(self) -> str:
        """The bounds in words, in the units that people write."""
        written = self.kind.write
        low = f"more than {written(self.low)}" if self.above_low else f"{written(self.low)} or more"
        if self.high == float("inf"):
            return low
        if self.above_low:
            return f"{low} and at most {written(self.high)}"
        return f"{written(self.low)} to {written(self.high)}"

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        kind = self.kind
        return {"title": kind.name, "type": list(kind.json_types), "examples": list(kind.examples)}


def count(value: object) -> int:
    """A whole number: `1000`, `2_000`, `10k`, `1.5M`."""
    number, unit = _split(value, COUNT, COUNT_FACTORS)
    return _whole(number * COUNT_FACTORS[unit], value, COUNT)


def size_bytes(value: object) -> int:
    """A size in bytes: `500B`, `10kB`, `1MiB`."""
    number, unit = _split(value, SIZE, SIZE_FACTORS)
    return _whole(number * SIZE_FACTORS[unit], value, SIZE)


def duration_ns(value: object) -> int:
    """A duration in nanoseconds: `500us`, `6s`, `1h30min`; a plain 0 is one too."""
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        return 0
    if not isinstance(value, str) or not _DURATION.fullmatch(value.strip()):
        raise UnfitError(value, DURATION.allowed, _duration_hint(value))
    parts = _DURATION_PART.findall(value)
    total = sum((_decimal(n, value, DURATION) * DURATION_FACTORS[u] for n, u in parts), Decimal(0))
    return int(_bounded(total, value, DURATION).to_integral_value())


def rate_per_s(value: object) -> float:
    """A rate in events a second: `10/s`, `30/min`, `1/6 Hz`."""
    text = value.strip() if isinstance(value, str) else ""
    hertz, per = _HERTZ.fullmatch(text), _PER.fullmatch(text)
    if hertz:
        over = _decimal(hertz[2] or "1", value, RATE)
        factor = COUNT_FACTORS[hertz[3] or ""]
        if over == 0:
            raise UnfitError(value, RATE.allowed)
        number = _decimal(hertz[1], value, RATE) / over * factor
    elif per:
        seconds = Decimal(DURATION_FACTORS[per[3]]) / DURATION_FACTORS["s"]
        number = _decimal(per[1], value, RATE) * COUNT_FACTORS[per[2] or ""] / seconds
    else:
        plain = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        raise UnfitError(value, RATE.allowed, f"write {value}/s" if plain else None)
    return float(_bounded(number, value, RATE))


def bits_per_s(value: object) -> int:
    """Parses the bandwidth of a link, in bits a second: `10Mbit/s`, `1MB/s`."""
    text = value.strip() if isinstance(value, str) else ""
    found = _BANDWIDTH.fullmatch(text)
    if found is None or found[2] not in BANDWIDTH_FACTORS:
        meant = _BANDWIDTH.fullmatch(f"{text}/s")
        hint = f"write {text}/s" if meant and meant[2] in BANDWIDTH_FACTORS else None
        raise UnfitError(value, BANDWIDTH.allowed, hint)
    number = _decimal(found[1], value, BANDWIDTH) * BANDWIDTH_FACTORS[found[2]]
    return _whole(_bounded(number, value, BANDWIDTH), value, BANDWIDTH)


def share(value: object) -> float:
    """A share: `10%` or `0.1`."""
    number, unit = _split(value, SHARE, SHARE_FACTORS)
    return float(number * SHARE_FACTORS[unit])


def factor(value: object) -> float:
    """A factor: `2`, `0.5` or `200%`."""
    number, unit = _split(value, FACTOR, SHARE_FACTORS)
    return float(number * SHARE_FACTORS[unit])


@dataclass(frozen=True, slots=True)
class PartOf:
    """A share of something that is counted, such as `50%` of the clients of a population."""

    share: float
    """From 0 to 1."""

    def __str__(self) -> str:
        return write_share(self.share)


def rounded(number: float) -> int:
    """The nearest whole number, up from the middle: 1% of 50 clients is one."""
    return floor(round(number, ROUNDING_DIGITS) + 0.5)


def shortened(value: float) -> float | int:
    """A value with as many digits as a plot shows."""
    short = float(f"{value:.{PLOTTED_DIGITS}g}")
    return int(short) if short.is_integer() else short


def describe(value: object) -> str:
    """A value as an error shows it: short, in the words of YAML."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            text = without_credentials(value)
            return repr(text if len(text) <= 60 else f"{text[:57]}...")
        case int() | float():
            return str(value) if abs(value) < 10**18 else f"{value:.3g}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "a mapping" if value else "an empty mapping"
        case _:
            return f"a value of type {type(value).__name__}"


def write_count(number: Number) -> str:
    """A count as people write it."""
    return f"{number:,.0f}".replace(",", "_") if number < 1e15 else f"{number:.3g}"


def write_bytes(number: Number) -> str:
    """A size as people write it."""
    return _in_whole(number, SIZE_FACTORS, ("MB", "kB", "B"))


def write_duration(number_ns: Number) -> str:
    """A duration as people write it, in the largest unit that leaves it whole."""
    if number_ns == 0:
        return "0s"
    for unit, factor in reversed(DURATION_FACTORS.items()):
        if unit not in {"d", "µs"} and number_ns >= factor and number_ns % factor == 0:
            return f"{number_ns / factor:.0f}{unit}"
    return f"{number_ns / DURATION_FACTORS['s']:.6g}s"


def write_rate(number_per_s: Number) -> str:
    """A rate as people write it."""
    if 0 < number_per_s < 1:
        period_s = 1 / number_per_s
        return f"1/{period_s:.6g} Hz" if period_s < 1e6 else f"1/{period_s:.0f} Hz"
    return f"{number_per_s:.6g}/s" if number_per_s < 1e6 else f"{number_per_s / 1e6:.6g}M/s"


def write_bits_per_s(number_per_s: Number) -> str:
    """Writes the bandwidth of a link in the largest unit that gives a whole number."""
    return f"{_in_whole(number_per_s, BANDWIDTH_FACTORS, ('Gbit', 'Mbit', 'kbit', 'bit'))}/s"


def _in_whole(number: Number, factors: Mapping[str, Decimal], units: tuple[str, ...]) -> str:
    """Returns a number in the first unit that gives a whole number, or in the last."""
    whole = (u for u in units if number >= factors[u] and number % int(factors[u]) == 0)
    unit = next(whole, units[-1])
    return f"{number / int(factors[unit]):.0f}{unit}"


def write_share(number: Number) -> str:
    """A share as people write it."""
    return f"{number * 100:.4g}%"


def count_text(value: float) -> str:
    """A count in groups of three: 12 345."""
    return f"{round(value):,}".replace(",", THIN_SPACE)


def duration_text(duration_us: float) -> str:
    """A duration of some microseconds with three digits and its unit: 950 µs, 12.3 ms, 5.01 s."""
    for factor, unit in ((1, "µs"), (1e3, "ms"), (1e6, "s")):
        if abs(duration_us) < 999.5 * factor or unit == "s":
            return f"{_three_digits(duration_us / factor)} {unit}"
    raise AssertionError("the last unit takes every duration")


def span_text(span_s: float) -> str:
    """A span of seconds as on a stop-watch: 12.3 s, 4:05, 1:02:03."""
    if span_s < 60:
        return f"{span_s:.1f} s"
    minutes, seconds = divmod(round(span_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def rate_text(rate_per_s: float) -> str:
    """A rate without its unit: 0.17, 12.5, 1 000."""
    return count_text(rate_per_s) if rate_per_s >= 100 else _three_digits(rate_per_s)


def share_text(share: float) -> str:
    """A share in percent: 0.02 %, 98.3 %."""
    percent = round(100 * share, 6)
    return f"{percent:.0f} %" if percent == round(percent) else f"{_three_digits(percent)} %"


def bytes_text(size: float) -> str:
    """A size with its unit: 500 B, 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 999.5:
            return f"{_three_digits(size)} {unit}"
        size /= 1000
    return f"{_three_digits(size)} TB"


def value_text(value: float, unit: str) -> str:
    """A value in a unit of samples, such as `us` or `bytes`, with the unit that fits."""
    return _BY_UNIT[unit](value)


def counted(value: int, singular: str, plural: str | None = None) -> str:
    """A count with its noun: 1 client, 12 clients."""
    return f"{count_text(value)} {singular if value == 1 else plural or singular + 's'}"


def _split(value: object, kind: Notation, factors: dict[str, Decimal]) -> tuple[Decimal, str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and "" in factors:
        return _bounded(Decimal(str(value)), value, kind), ""
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in factors:
        raise UnfitError(value, kind.allowed, _unit_hint(value, found, factors))
    return _bounded(_decimal(found[1], value, kind), value, kind), found[2]


def _decimal(digits: str, value: object, kind: Notation) -> Decimal:
    if len(digits) > LONGEST_NUMBER_CHARS:
        raise UnfitError(value, f"{kind.allowed}, of {LONGEST_NUMBER_CHARS} characters at most")
    return Decimal(digits.replace("_", ""))


def _bounded(number: Decimal, value: object, kind: Notation) -> Decimal:
    """Keeps absurd exponents from becoming integers of a billion digits."""
    if not number.is_finite() or number.adjusted() > LARGEST_EXPONENT:
        raise UnfitError(value, kind.allowed)
    return number


def _whole(number: Decimal, value: object, kind: Notation) -> int:
    if number != number.to_integral_value():
        raise UnfitError(value, f"{kind.allowed}, and whole")
    return int(number)


def _unit_hint(
    value: object, found: re.Match[str] | None, factors: dict[str, Decimal]
) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"write {value}B" if "B" in factors else None
    if found is None:
        return None
    alike = [unit for unit in factors if unit.lower() == found[2].lower()]
    return f"write {found[1]}{alike[0]}" if alike else None


def _duration_hint(value: object) -> str | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"write {value}s or {value}ms"
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    number, unit = found[1], found[2].lower()
    if unit in {"sec", "secs", "seconds"}:
        return f"write {number}s"
    return {"": f"write {number}s or {number}ms", "m": f"write {number}min or {number}ms"}.get(unit)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude == 0 or magnitude >= 99.95:
        return count_text(value)
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.095 else f"{value:.1g}"


@dataclass(frozen=True, slots=True)
class Notation:
    """Notation of one kind of quantity."""

    name: str
    examples: tuple[str | int | float, ...]
    json_types: tuple[str, ...]
    write: Callable[[Number], str]

    @property
    def allowed(self) -> str:
        """The values that are allowed, in words."""
        *others, last = map(str, self.examples)
        return f"is a {self.name} such as {', '.join(others)} or {last}"


LONGEST_NUMBER_CHARS = 40
PLOTTED_DIGITS = 5
ROUNDING_DIGITS = 6
"""A share in percent is no binary fraction, and half of one is to be half."""
LARGEST_EXPONENT = 24

COUNT_FACTORS = {"": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9)}
SIZE_FACTORS = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "KiB": Decimal(2**10),
    "MiB": Decimal(2**20),
    "GiB": Decimal(2**30),
}
SHARE_FACTORS = {"": Decimal(1), "%": Decimal("0.01")}
BANDWIDTH_FACTORS = {
    "bit": Decimal(1),
    "kbit": Decimal(10**3),
    "Mbit": Decimal(10**6),
    "Gbit": Decimal(10**9),
    **{unit: 8 * factor for unit, factor in SIZE_FACTORS.items()},
}
DURATION_FACTORS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 24 * 3600 * 10**9,
}

COUNT = Notation("count", (1000, "10k", "1.5M"), ("integer", "string"), write_count)
SIZE = Notation("size", ("500B", "10kB", "1MiB"), ("string",), write_bytes)
DURATION = Notation(
    "duration", ("500us", "10ms", "6s", "1h30min"), ("string", "integer"), write_duration
)
RATE = Notation("rate", ("10/s", "30/min", "1/6 Hz"), ("string",), write_rate)
BANDWIDTH = Notation("bandwidth", ("10Mbit/s", "500kbit/s", "1MB/s"), ("string",), write_bits_per_s)
SHARE = Notation("share", ("10%", 0.1), ("string", "number"), write_share)
FACTOR = Notation("factor", (2, 0.5, "200%"), ("number", "string"), str)
KINDS: dict[Callable[[Any], Number], Notation] = {
    count: COUNT,
    size_bytes: SIZE,
    duration_ns: DURATION,
    rate_per_s: RATE,
    bits_per_s: BANDWIDTH,
    share: SHARE,
    factor: FACTOR,
}

_NUMBER = r"[+-]?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*([^\W\d_]*|%)", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|min|s|h|d)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern}\s*)+", re.ASCII)
_HERTZ = re.compile(rf"({_NUMBER})(?:\s*/\s*({_NUMBER}))?\s*([kM]?)Hz", re.ASCII)
_BANDWIDTH = re.compile(rf"({_NUMBER})\s*([a-zA-Z]+)\s*/\s*s", re.ASCII)
_PER = re.compile(rf"({_NUMBER})\s*([kM]?)\s*/\s*(ns|us|ms|s|min|h|d)", re.ASCII)
_BY_UNIT: Mapping[str, Callable[[float], str]] = {
    "": lambda value: count_text(value) if value == round(value) else _three_digits(value),
    "share": share_text,
    "bytes": bytes_text,
    "per_s": lambda value: f"{rate_text(value)}/s",
    "bytes_per_s": lambda value: f"{bytes_text(value)}/s",
    "us": duration_text,
    "s": span_text,
    "per_h": lambda value: f"{_signed(rate_text, value)}/h",
    "share_per_h": lambda value: f"{_signed(share_text, value)}/h",
    "bytes_per_h": lambda value: f"{_signed(bytes_text, value)}/h",
    "us_per_h": lambda value: f"{_signed(duration_text, value)}/h",
    "s_per_h": lambda value: f"{_signed(span_text, value)}/h",
}


def _signed(text: Callable[[float], str], value: float) -> str:
    """Returns a value as a text that is made of its size."""
    return f"{'-' if value < 0 else ''}{text(abs(value))}"
