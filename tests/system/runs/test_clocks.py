"""Runs whose agents have clocks that are wrong on purpose. With a reference clock their numbers are
those of agents with one clock, within the bound that they state; without it they are absurd."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pubstorm.fleet.reference import ReferenceClock
from pubstorm.host.binaries import engine_path
from pubstorm.report import load_result
from pubstorm.result import Measured
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run

Play = Callable[..., tuple[int, dict[str, Any]]]
Started = Callable[..., Any]
HOUR_NS = 3600 * 10**9
TENTH_NS = 10**8
FAST_PPB, SLOW_PPB = 100_000, -100_000
PLAUSIBLE_US = 50_000
"""More than any delivery takes here, and less than the clocks are wrong by."""
SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
fleet: {agents: 2}
populations:
  device:
    clients: 20
    publications: [{topic: "up/{n}", rate: 20/s, qos: 1}]
  backend:
    clients: 2
    subscriptions: [{topic: "up/#", qos: 1}]
stages: [connect, publish: 3s, disconnect]
"""
SENT = 20 * 20 * 3
COUNTS = {"received_total": 2 * SENT, "expected_total": 2 * SENT, "lost_total": 0}


def skewed(folder: Path, skews: Mapping[int, str], words: tuple[str, ...] = ()) -> Path:
    """An engine whose shards read their clocks wrongly, and are started with more words."""
    program = folder / "pubstorm-engine"
    cases = (
        f'{agent}/2) PUBSTORM_CLOCK_SKEW={skew} exec "{engine_path()}" "$@" {" ".join(words)} ;;\n'
        for agent, skew in skews.items()
    )
    program.write_text(
        f'#!/bin/sh\ncase "$2" in\n{"".join(cases)}*) exec "{engine_path()}" "$@" ;;\nesac\n'
    )
    program.chmod(0o755)
    return program


@contextlib.asynccontextmanager
async def followed(folder: Path, skews: Mapping[int, str]) -> AsyncIterator[dict[str, str]]:
    """A reference clock, and the environment of a run whose engines with wrong clocks follow it."""
    clock = ReferenceClock(engine_path(), folder / "reference.log")
    await clock.start("127.0.0.1")
    try:
        program = skewed(folder, skews, clock.words)
        yield {**clock.environment, "PUBSTORM_ENGINE": str(program)}
    finally:
        await clock.close()


def played(run: Play, folder: Path, skews: Mapping[int, str], *words: str) -> Any:
    """A run beside a reference clock: its exit code and result."""

    async def play() -> Any:
        async with followed(folder, skews) as environment:
            return await asyncio.to_thread(run, SCENARIO, *words, environment=environment)

    return asyncio.run(play())


@pytest.mark.parametrize(
    "skews",
    [
        {1: f"{TENTH_NS}"},
        {0: f"{HOUR_NS},{FAST_PPB}", 1: f"{-HOUR_NS},{SLOW_PPB}"},
    ],
    ids=["one of two", "hours and drifting"],
)
def test_agents_with_wrong_clocks_report_the_same_as_agents_with_one_clock(
    skews: Mapping[int, str], run: Play, tmp_path: Path
) -> None:
    code, result = played(run, tmp_path, skews)
    assert code == 0, result["verdict"]
    assert result["populations"]["device"]["sent_total"] == SENT
    backend = result["populations"]["backend"]
    assert {name: backend[name] for name in COUNTS} == COUNTS
    bound_us = result["fleet"]["clock_bound_us"]
    assert 0 < bound_us < PLAUSIBLE_US
    for clock in ("intended", "actual"):
        latency = backend["latency_us"][clock]
        assert latency["bound_us"] == bound_us
        # Acknowledgements take one clock, and a host without processors delays them as well.
        slowest_us = result["populations"]["device"]["ack_latency_us"][clock]["max"]
        assert latency["p50"] <= slowest_us + bound_us
        earliest_ns = result["flows"][0]["histogram_ns"][clock]["negative_min_ns"]
        assert -earliest_ns / 1000 <= bound_us
        assert result["populations"]["device"]["ack_latency_us"][clock]["bound_us"] == 0
    for agent in result["fleet"]["agents"]:
        skew = skews.get(agent["agent"])
        assert (agent["clock"] is None) == (skew is None)
        if skew is not None:
            check_clock(agent["clock"], skew)


def check_clock(clock: Mapping[str, float], skew: str) -> None:
    """Checks that an agent reports the error of its clock, within its bound."""
    offset_ns, _, drift_ppb = skew.partition(",")
    # With the drift an offset is that of its last report, some seconds after the start.
    drifted_us = abs(int(drift_ppb or 0)) / 1e9 * 60e6
    assert clock["offset_us"] == pytest.approx(
        -int(offset_ns) / 1000, abs=clock["bound_us"] + drifted_us
    )
    assert clock["exchanges_total"] > 0
    assert clock["round_trip_us"] > 0


def test_without_a_reference_the_same_clocks_give_absurd_times(run: Play, tmp_path: Path) -> None:
    program = skewed(tmp_path, {1: f"{TENTH_NS}"})
    code, result = run(SCENARIO, environment={"PUBSTORM_ENGINE": str(program)})
    verdict, backend = result["verdict"], result["populations"]["backend"]
    assert code == 3
    assert (verdict["status"], verdict["limited_by"]) == ("invalid", "generator")
    assert "seem to have come before they were sent, by up to" in verdict["evidence"][0]
    assert backend["latency_us"]["actual"]["negative_total"] > SENT // 4
    assert backend["latency_us"]["actual"]["max"] > PLAUSIBLE_US
    assert backend["received_total"] == COUNTS["received_total"]


def test_a_threshold_that_the_bound_leaves_open_makes_the_run_invalid(
    run: Play, tmp_path: Path
) -> None:
    limit = "thresholds=[backend.latency.p50 < 10s]"
    code, _ = played(run, tmp_path, {1: f"{-2 * HOUR_NS}"}, "--set", limit)
    assert code == 0
    measured = load_result(tmp_path / "run-0")
    found_us = measured.populations["backend"].latency_us.intended.p50
    assert status(measured, f"backend.latency.p50 < {found_us}us") == "invalid"
    assert status(measured, "backend.latency.p50 > 10s") == "fail"


def status(measured: Measured, threshold: str) -> str:
    return str(evaluate_run(measured, [parse_threshold(threshold)]).status)


def test_a_lost_reference_is_reported_and_the_run_continues(start: Started, tmp_path: Path) -> None:
    scenario = SCENARIO.replace("publish: 3s", "hold: 1s, publish: 6s")

    async def play() -> Any:
        async with followed(tmp_path, {1: f"{HOUR_NS}"}) as environment:
            run = start(scenario, environment=environment)
            await asyncio.to_thread(run.wait_for, "publish")
        await asyncio.to_thread(run.finish)
        return run.result()

    result = asyncio.run(play())
    agent = result["fleet"]["agents"][1]
    assert agent["clock"]["unanswered_s"] >= 3
    assert any(
        fact.startswith("agent 1 had no answer of the reference clock for ")
        for fact in result["verdict"]["evidence"]
    )
    backend = result["populations"]["backend"]
    assert backend["received_total"] == backend["expected_total"] == 2 * 20 * 20 * 6
