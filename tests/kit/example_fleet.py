"""The parts of a run by hand that large runs have: shares, two nodes, a ramp and a tear-down, with
Redis beside them."""

from __future__ import annotations

from typing import Any

from pubstorm.contract import split_member
from pubstorm.contract.reasons import Reason
from pubstorm.result import (
    Measured,
    MemoryModel,
    Peak,
    Peaks,
    Problem,
    Sampler,
    StageResult,
    StalledSubscriber,
    Statistics,
    TargetResult,
    Watched,
)
from pubstorm.result.summary import SamplerKind
from tests.kit import made


def fleet_parts() -> dict[str, Any]:
    """Fields of measurements, but for their stages."""
    return {
        "samplers": (
            sampler("device", "connect", (), (100_014, 100_018)),
            sampler("device", "pub", (0,), (1_999_959, 2_000_000)),
            sampler("device/short", "pub", (0,), (20_000, 20_000)),
            sampler("device/qos1", "pub", (1,), (5, 10)),
            sampler("mobile", "subscribe", (), (1000, 1000)),
            sampler("mobile", "sub", (0, 1), (999, None)),
        ),
        "problems": (
            Problem(
                kind="connections failed",
                count=41,
                of=2_000_000,
                text="41 of 2 000 000 connection attempts failed",
                reasons={Reason.CONNECT_REFUSED: 30, Reason.CONNECT_TIMEOUT: 11},
                populations={"device": 40, "mobile": 1},
            ),
            Problem(kind="duplicates", count=2, text="2 came", populations={"mobile": 2}),
        ),
        "stalls": (
            StalledSubscriber(
                population="device",
                number=17,
                stage="publish",
                since_s=12,
                until_s=None,
                due=34,
                lasted=True,
            ),
            StalledSubscriber(
                population="device",
                number=4,
                stage="publish",
                since_s=12.2,
                until_s=14,
                due=9,
                lasted=False,
            ),
        ),
        "balance": (target(0, 62_100), target(1, 37_900)),
        "memory": (
            MemoryModel(
                subject="node-0",
                group="node",
                base_bytes=45e6,
                bytes_per_connection=9_870.5,
                r_squared=0.99871,
                points=14,
            ),
            MemoryModel(subject="host", points=2, problem="memory did not grow with connections"),
        ),
        "monitors": (
            seen("node-0", "cpu", 0.05, 0.3, 0.12),
            seen("node-0", "rss_bytes", 1.0e9, 0.9e9, 1.1e9),
            seen("node-1", "cpu", 0.06, 0.28, 0.11),
            seen("redis", "cpu", 0.004, 0.2, 0.001),
            seen("redis", "rss_bytes", 1.35e9, 1.35e9, 1.35e9),
            seen("host", "cpu", 0.4, 0.7, 0.4),
        ),
        "peaks": Peaks(
            connected=100_000,
            received_per_s=Peak(value=4_012.5, at_s=14.0),
            received_by_qos={"0": Peak(value=26_000, at_s=300)},
        ),
    }


def fleet_stages(measured: Measured) -> tuple[StageResult, ...]:
    """A ramp, a load and a tear-down, made of the stages of a plain run."""
    connect, publish = measured.stages
    device = connect.populations["device"].model_copy(update={"connected_total": 99_753})
    ramp = {
        "connected": 100_000,
        "connects_per_s": 9_876.5,
        "duration_s": 10.1,
        "populations": {**connect.populations, "device": device},
    }
    leave = {
        "name": "disconnect",
        "kind": "disconnect",
        "start_s": 20.9,
        "duration_s": 4.0,
        "disconnects_per_s": 24_999.0,
    }
    return (
        connect.model_copy(update=ramp),
        publish.model_copy(update={"connected": 99_996}),
        connect.model_copy(update=leave),
    )


def sampler(
    subject: str, kind: SamplerKind, qos: tuple[int, ...], counts: tuple[int, int | None]
) -> Sampler:
    """A sampler with times, where it has any."""
    is_answered = (kind, qos) not in {("pub", (0,)), ("subscribe", ())}
    values: dict[str, Any] = {"mean_us": 812.5, "max_us": 41_200.0} if is_answered else {}
    values |= {"mean_from_send_us": 790.25} if qos and is_answered else {}
    return Sampler(subject=subject, kind=kind, qos=qos, count=counts[0], of=counts[1], **values)


def target(number: int, connected: int) -> TargetResult:
    """A node of two that should have half of 100 000 connections each."""
    return TargetResult(
        name=f"node-{number}",
        group="node",
        connected_max=connected,
        connected_total=connected + 7,
        connect_failed_total=4 * number,
        share=connected / 100_000,
        planned_share=0.5,
    )


def seen(source: str, metric: str, *means: float) -> Watched:
    """Readings by their means: under load, in the ramp and in the tear-down."""
    parts = [Statistics(count=9, mean=mean, max=1.5 * mean) for mean in means]
    return Watched(
        source=source,
        kind=made.source(source).kind,
        group=split_member(source)[0],
        metric=metric,
        whole=parts[0],
        load=parts[0],
        spans=dict(zip(("connect", "disconnect"), parts[1:], strict=True)),
    )
