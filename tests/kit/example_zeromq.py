"""Measurements of a run against a publisher of ZeroMQ, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from pubstorm.contract import split_member
from pubstorm.result import (
    FlowResult,
    Latency,
    PopulationResult,
    PublisherResult,
    Rates,
    Statistics,
    Watched,
)
from tests.kit import made
from tests.kit.measured import DELIVERIES


def publisher(**changes: Any) -> PublisherResult:
    values: dict[str, Any] = {
        "name": "feed",
        "population": "feed",
        "kind": "libzmq",
        "library": "libzmq 4.3.5",
        "pid": 4712,
        "address": "127.0.0.1:40001",
        "high_water_mark": 1000,
        "sent_total": 10_000,
        "lateness_us": Latency(count=10_000, mean=20, min=1, p50=15, p90=40, p99=90, max=400),
        "busy_share": 0.4,
    }
    return PublisherResult(**{**values, **changes})


def feed(**changes: Any) -> PopulationResult:
    values: dict[str, Any] = {
        "clients": 1,
        "connected_max": 1,
        "ready_max": 1,
        "version": "zmtp-3.1",
        "player": "libzmq",
        "sent_total": 10_000,
        "rates": Rates(sent_per_s=1000, bytes_sent_per_s=32_000),
    }
    return PopulationResult(**{**values, **changes})


def subscriber(**changes: Any) -> PopulationResult:
    values: dict[str, Any] = {
        "clients": 10,
        "connected_max": 10,
        "ready_max": 10,
        "version": "zmtp-3.1",
        "connect_attempts_total": 10,
        "connected_total": 10,
        "subscribed_total": 10,
        "expected_total": 100_000,
        "received_total": 100_000,
        "rates": Rates(received_per_s=10_000, bytes_received_per_s=340_000),
        "latency_us": DELIVERIES.latency_us(),
    }
    return PopulationResult(**{**values, **changes})


def drops(lost: int, to: str = "subscriber") -> FlowResult:
    return FlowResult(
        source="feed",
        to=to,
        expected_total=100_000,
        received_total=100_000 - lost,
        lost_total=lost,
        surplus_total=0,
        latency_us=DELIVERIES.latency_us(),
        histogram_ns=DELIVERIES,
    )


def constant(source: str, metric: str, value: float) -> Watched:
    """A figure that was the same all the time."""
    steady = Statistics(count=9, first=value, last=value, min=value, mean=value, max=value)
    group, _ = split_member(source)
    kind = made.source(source).kind
    if kind == "population":
        kind = "publisher"
    return Watched(source=source, kind=kind, group=group, metric=metric, whole=steady, load=steady)


def zeromq(**changes: Any) -> dict[str, Any]:
    """Fields of a good run; `publisher`, `feed`, `subscriber` and `lost` change those parts."""
    lost = changes.pop("lost", 0)
    counts = {"lost_total": lost, "received_total": 100_000 - lost}
    return {
        "populations": {
            "feed": feed(**changes.pop("feed", {})),
            "subscriber": subscriber(**counts, **changes.pop("subscriber", {})),
        },
        "flows": (drops(lost),),
        "publishers": (publisher(**changes.pop("publisher", {})),),
        "stages": (),
        "fleet": {"lateness_us": Latency()},
        **changes,
    }
