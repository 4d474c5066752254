"""Builders of measurements for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pubstorm.contract import SourceKind, split_member
from pubstorm.contract.histogram import Histogram
from pubstorm.result import (
    AgentResult,
    Environment,
    FleetResult,
    FlowResult,
    HistogramPair,
    Latency,
    LatencyPair,
    Measured,
    Phase,
    PhaseStatus,
    PopulationResult,
    Rates,
    StagePopulation,
    StageResult,
    Statistics,
    ValidityLimits,
    Watched,
)
from tests.kit import made

MeasuredMaker = Callable[..., Measured]

ENVIRONMENT = Environment(
    host="box",
    kernel="Linux 6.1",
    machine="x86_64",
    cpu_model="Some CPU",
    cores=2,
    memory_bytes=24_000_000_000,
    python="3.11.7",
    pubstorm="0.1.0",
    engine="0.1.0",
    descriptors_soft=20000,
    descriptors_hard=20000,
    sysctls={"net.core.somaxconn": "4096"},
    git_commit=None,
    brokers=(),
)
DELIVERIES = HistogramPair(
    intended=Histogram.of([n * 10_000 for n in range(1, 1001)]),
    actual=Histogram.of([n * 9_000 for n in range(1, 1001)]),
)


def latency(count: int = 1000, p99: float = 200.0) -> Latency:
    return Latency(count=count, mean=60, min=1, p50=50, p90=120, p99=p99, p999=2 * p99, max=3 * p99)


def device(**changes: Any) -> PopulationResult:
    values: dict[str, Any] = {
        "clients": 100,
        "connected_max": 100,
        "ready_max": 100,
        "connect_attempts_total": 100,
        "connected_total": 100,
        "sent_total": 1000,
        "acked_total": 1000,
        "rates": Rates(sent_per_s=100, acked_per_s=100),
        "ack_latency_us": LatencyPair(intended=latency(), actual=latency(p99=150)),
        "connect_time_us": latency(100),
    }
    return PopulationResult(**{**values, **changes})


def backend(**changes: Any) -> PopulationResult:
    values: dict[str, Any] = {
        "clients": 1,
        "connected_max": 1,
        "ready_max": 1,
        "connect_attempts_total": 1,
        "connected_total": 1,
        "subscribed_total": 1,
        "expected_total": 1000,
        "received_total": 1000,
        "rates": Rates(received_per_s=100),
        "latency_us": DELIVERIES.latency_us(),
        "connect_time_us": latency(1),
    }
    return PopulationResult(**{**values, **changes})


def flow(**changes: Any) -> FlowResult:
    values: dict[str, Any] = {
        "source": "device",
        "to": "backend",
        "expected_total": 1000,
        "received_total": 1000,
        "lost_total": 0,
        "surplus_total": 0,
        "latency_us": DELIVERIES.latency_us(),
        "histogram_ns": DELIVERIES,
    }
    return FlowResult(**{**values, **changes})


def phase(**changes: Any) -> Phase:
    """A phase of 100 clients that held."""
    values: dict[str, Any] = {
        "stage": "publish",
        "name": "more",
        "start_s": 1,
        "duration_s": 9,
        "clients": 100,
        "due_per_s": 100,
        "sent_per_s": 100,
        "acked_per_s": 100,
        "received_per_s": 100,
        "queue_growth_per_s": 0,
        "status": PhaseStatus.HELD,
    }
    return Phase(**{**values, **changes})


def watched(
    name: str,
    metric: str,
    *values: float,
    spans: dict[str, float] | None = None,
    kind: SourceKind | None = None,
) -> Watched:
    """A figure whose readings are 0 before the load, and these under it. Those of a span are one
    value."""
    source = made.source(name)

    def of(*readings: float) -> Statistics:
        if not readings:
            return Statistics()
        first, last = readings[0], readings[-1]
        return Statistics(
            count=len(readings),
            first=first,
            last=last,
            min=min(readings),
            mean=sum(readings) / len(readings),
            max=max(readings),
            rate_per_s=(last - first) / max(len(readings) - 1, 1),
        )

    return Watched(
        source=name,
        kind=kind or source.kind,
        group=split_member(name)[0],
        metric=metric,
        whole=of(0, *values),
        load=of(*values),
        spans={name: of(value) for name, value in (spans or {}).items()},
    )


def stages() -> tuple[StageResult, ...]:
    still: dict[str, Any] = {
        f"{name}_total": 0
        for name in ("connect_failed", "disconnected", "acked", "skipped", "received", "expected")
    }
    connecting = StagePopulation(**still, connected_total=100, sent_total=0)
    publishing = StagePopulation(
        **still, connected_total=0, sent_total=1000, sent_per_s=100.0, acked_per_s=100.0
    )
    return (
        StageResult(
            name="connect",
            kind="connect",
            start_s=0.1,
            duration_s=0.5,
            steady_s=0,
            settled=True,
            populations={"device": connecting},
        ),
        StageResult(
            name="publish",
            kind="publish",
            start_s=0.7,
            duration_s=10.2,
            steady_s=10,
            settled=True,
            populations={"device": publishing},
        ),
    )


def fleet(**changes: Any) -> FleetResult:
    agent = AgentResult(
        agent=0,
        version="0.1.0",
        pid=4711,
        descriptors=20000,
        clients=101,
        snapshots=12,
        cpu_s=0.4,
        rss_max_bytes=3_500_000,
        busy_share=0.04,
        ending="bye",
    )
    values: dict[str, Any] = {
        "agents": (agent,),
        "lateness_us": latency(1000, p99=300),
        "load_intervals_total": 10,
    }
    return FleetResult(**{**values, **changes})


def measured_run(**changes: Any) -> Measured:
    """The measurements of a good run; `device`, `backend`, `flow` and `fleet` change those parts,
    any other name a field."""
    values: dict[str, Any] = {
        "name": "quickstart",
        "run_directory": "runs/20261121-120000-quickstart",
        "targets": ("127.0.0.1:1883",),
        "started": "2026-11-21T12:00:00+00:00",
        "ended": "2026-11-21T12:00:11+00:00",
        "duration_s": 10.9,
        "populations": {
            "device": device(**changes.pop("device", {})),
            "backend": backend(**changes.pop("backend", {})),
        },
        "flows": (flow(**changes.pop("flow", {})),),
        "stages": stages(),
        "fleet": fleet(**changes.pop("fleet", {})),
        "validity": ValidityLimits(lateness_p99_us=10_000, busy=0.9),
        "environment": ENVIRONMENT,
    }
    return Measured(**{**values, **changes})


@pytest.fixture
def measured() -> MeasuredMaker:
    """Makes the measurements of a good run."""
    return measured_run
