"""How numbers are written for people: durations with the unit that fits, counts in groups of three,
rates, shares and bytes. It knows nothing of what they measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

THIN_SPACE = "\u202f"
NOTHING = "–"
"""Where there is nothing to show."""


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


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if magnitude == 0 or magnitude >= 99.95:
        return count_text(value)
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 0.095 else f"{value:.1g}"


def _number(value: float) -> str:
    return count_text(value) if value == round(value) else _three_digits(value)


_BY_UNIT: Mapping[str, Callable[[float], str]] = {
    "": _number,
    "share": share_text,
    "bytes": bytes_text,
    "per_s": lambda value: f"{rate_text(value)}/s",
    "bytes_per_s": lambda value: f"{bytes_text(value)}/s",
    "us": duration_text,
    "s": span_text,
}
