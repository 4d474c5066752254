"""Thresholds: one line of a scenario such as `device.latency.p99 < 100ms`, parsed into a
condition on the stored result. It names the metrics of a population; it does not judge them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, cast

from pubstorm.units import UnfitError, count, duration_ns

Operator = Literal["<", "<=", "==", "!=", ">=", ">"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on a population's metric.

    `metric` is the path under `populations.<population>` of the result and `value` is in the
    unit of that result: microseconds where `unit` is `us`, plain where it is empty.
    """

    population: str
    metric: tuple[str, ...]
    op: Operator
    value: float
    unit: Literal["", "us"]
    source: str


def parse_threshold(source: str) -> Threshold:
    """Parses a line; whether the population exists is the scenario's to say."""
    found = _LINE.fullmatch(source.strip())
    if found is None:
        raise UnfitError(
            source, "is POPULATION.METRIC OP VALUE", "for example: device.latency.p99 < 100ms"
        )
    population, name, op, text = found.groups()
    if op not in OPERATORS:
        raise UnfitError(op, f"are the operators {', '.join(OPERATORS)}")
    metric = METRICS.get(name)
    if metric is None:
        raise UnfitError(name, "are the metrics of the reference", metric_hint(name))
    unit: Literal["", "us"] = "us" if metric[0].endswith("_us") else ""
    value = _latency_us(text) if unit else _number(text)
    return Threshold(population, metric, cast("Operator", op), value, unit, source.strip())


def metric_hint(name: str) -> str:
    """What a wrong metric might have meant, or what there is."""
    close = get_close_matches(name, METRICS, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    times = ", ".join((*LATENCIES, "connect_time"))
    return f"there are {', '.join(COUNTERS)}; {times} with .{', .'.join(STATISTICS)}"


def population_hint(name: str, populations: Collection[str]) -> str:
    """What a wrong population might have meant, or what there is."""
    close = get_close_matches(name, populations, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(populations)}"


def _latency_us(text: str) -> float:
    try:
        return duration_ns(text) / 1000
    except UnfitError as unfit:
        hint = unfit.hint or "latencies need a unit, for example 100ms"
        raise UnfitError(text, "is a duration such as 500us or 100ms", hint) from None


def _number(text: str) -> float:
    if text.endswith("%"):
        raise UnfitError(text, "is a count such as 0 or 10k")
    try:
        return float(count(text))
    except UnfitError:
        raise UnfitError(text, "is a count such as 0 or 10k") from None


OPERATORS: tuple[Operator, ...] = ("<", "<=", "==", "!=", ">=", ">")
STATISTICS = ("mean", "min", "p50", "p90", "p99", "p999", "max")
COUNTERS = (
    "connect_attempts",
    "connected",
    "connect_failed",
    "disconnected",
    "subscribed",
    "subscribe_failed",
    "sent",
    "acked",
    "resent",
    "abandoned",
    "skipped",
    "expected",
    "received",
    "lost",
    "duplicate",
    "reordered",
    "stale",
    "retained",
    "foreign",
    "packets_sent",
    "packets_received",
    "bytes_sent",
    "bytes_received",
)
LATENCIES = ("latency", "ack_latency")


def _metrics() -> dict[str, tuple[str, ...]]:
    metrics: dict[str, tuple[str, ...]] = {}
    for counter in COUNTERS:
        metrics[counter] = metrics[f"{counter}_total"] = (f"{counter}_total",)
    metrics["connected"] = metrics["connected_max"] = ("connected_max",)
    for latency in LATENCIES:
        for statistic in STATISTICS:
            for clock in ("intended", "actual"):
                metrics[f"{latency}.{clock}.{statistic}"] = (f"{latency}_us", clock, statistic)
            metrics[f"{latency}.{statistic}"] = (f"{latency}_us", "intended", statistic)
    for statistic in STATISTICS:
        metrics[f"connect_time.{statistic}"] = ("connect_time_us", statistic)
    return metrics


METRICS = _metrics()

_LINE = re.compile(r"([A-Za-z][\w-]*)\.([\w.]+)\s*([<>=!]+)\s*(\S(?:.*\S)?)", re.ASCII)
