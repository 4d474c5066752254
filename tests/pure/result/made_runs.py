"""Runs of the file of verdicts: a good run with changes that are written in YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pubstorm.contract import split_member
from pubstorm.contract.histogram import Histogram
from pubstorm.metrics.expressions import Threshold, parse_threshold
from pubstorm.result import HistogramPair, Measured, StageResult, Statistics, Verdict, Watched
from pubstorm.result.verdict import evaluate_run
from tests.kit import made
from tests.kit.example_zeromq import zeromq
from tests.kit.measured import DELIVERIES, MeasuredMaker, fleet

PROGRAM = {"version": "2", "host": "h", "port": 1, "pid": 1, "died": False}
RATES = dict.fromkeys(("sent_per_s", "acked_per_s", "received_per_s"), 650)
DEFAULTS: dict[str, dict[str, Any]] = {
    "brokers": {**PROGRAM, "kind": "mosquitto"},
    "services": {**PROGRAM, "kind": "redis"},
    "bridges": {"main": "cloud", "small": "boxes", "bridges": 9, "up": 9, "up_after_s": 1.0},
    "phases": {
        "stage": "publish",
        "name": "+1000",
        "start_s": 60,
        "duration_s": 90,
        "clients": 4000,
        "due_per_s": 667,
        "queue_growth_per_s": 17,
        **RATES,
    },
    "stalls": {
        "population": "backend",
        "stage": "publish",
        "since_s": 2.0,
        "until_s": None,
        "lasted": True,
        "due": 34,
    },
    "balance": {"group": "node", "planned_share": 0.5, "connect_failed_total": 0},
    "faults": {
        "stage": "publish",
        "name": "kill cloud",
        "kind": "kill",
        "victims": ["cloud-0"],
        "at_s": 2,
        "repaired_at_s": 7,
    },
    "stale_state": {"target": "127.0.0.1:1883", "when": "before", "what": "retained", "total": 575},
}
"""Fields of the parts that a run has several of, where the file has no others."""


def verdict_of(measured: MeasuredMaker, changes: dict[str, Any]) -> Verdict:
    """The verdict on the good run with these changes."""
    thresholds = conditions(changes.pop("thresholds", ())) + conditions(
        changes.pop("default_thresholds", ()), is_default=True
    )
    return evaluate_run(run_of(measured, changes), thresholds)


def conditions(lines: list[str] | tuple[()], *, is_default: bool = False) -> list[Threshold]:
    return [replace(parse_threshold(line), is_default=is_default) for line in lines]


def run_of(measured: MeasuredMaker, changes: dict[str, Any]) -> Measured:
    """The good run with these changes; `zeromq` is that of a publisher of ZeroMQ, and `publish`
    changes the publish stage."""
    for part, defaults in DEFAULTS.items():
        if part in changes:
            changes[part] = [{**defaults, **each} for each in changes[part]]
    if "monitors" in changes:
        changes["monitors"] = [
            watched(source, metric, value)
            for source, metrics in changes["monitors"].items()
            for metric, value in metrics.items()
        ]
    publishing = changes.pop("publish", {})
    if "clocks" in changes:
        changes |= far_apart(**changes.pop("clocks"))
    if "zeromq" in changes:
        changes = zeromq(**changes.pop("zeromq"), **changes)
    run = measured(**changes)
    stages = (
        StageResult.model_validate({**dict(stage), **publishing})
        if stage.kind == "publish"
        else stage
        for stage in run.stages
    )
    return run.model_copy(update={"stages": tuple(stages)})


def watched(source: str, metric: str, value: Any) -> Watched:
    """A figure that was the same all the time. A list is its first and last value, and a mapping
    has the values under `load` and in stages."""
    spans = value if isinstance(value, dict) else {"load": value}
    steady = {
        name: Statistics(count=9, first=first, last=last, min=last, mean=last, max=last)
        for name, each in spans.items()
        for first, last in [each if isinstance(each, list) else (0, each)]
    }
    load = steady.pop("load")
    kind = made.source(source).kind
    return Watched(
        source=source,
        kind="process" if kind == "population" else kind,
        group=split_member(source)[0],
        metric=metric,
        whole=load,
        load=load,
        spans=steady,
    )


def far_apart(
    bound_us: float, early_ns: int | None = None, unanswered_s: tuple[float, ...] = ()
) -> dict[str, Any]:
    """Deliveries by clocks of two hosts. Two of them come so much before they were sent, and the
    reference clock did not answer each agent for so long."""
    pair = DELIVERIES
    if early_ns is not None:
        durations = [early_ns, -1000, *(n * 10_000 for n in range(1, 1001))]
        pair = HistogramPair(intended=DELIVERIES.intended, actual=Histogram.of(durations))
    local = dict(fleet().agents[0])
    clock = {"offset_us": 0, "drift_ppm": 9, "bound_us": 50, "round_trip_us": 80}
    remote = [
        {
            **local,
            "agent": agent,
            "host": f"10.0.0.{2 + agent}",
            "clock": {**clock, "exchanges_total": 320, "unanswered_s": silent_s},
        }
        for agent, silent_s in enumerate(unanswered_s)
    ]
    return {
        "backend": {"latency_us": DELIVERIES.latency_us(bound_us)},
        "flow": {"histogram_ns": pair, "latency_us": pair.latency_us(bound_us)},
        "fleet": {"clock_bound_us": bound_us, "agents": [local, *remote]},
    }
