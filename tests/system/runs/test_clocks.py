"""Runs whose agents have clocks that are wrong on purpose. With a reference clock their numbers are
those of agents with one clock, within the bound that they state; without it they are absurd."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.fleet.reference import ReferenceClock
from pubstorm.host.binaries import engine_path
from pubstorm.metrics.expressions import parse_threshold
from pubstorm.report import load_result
from pubstorm.result import Measured
from pubstorm.result.verdict import evaluate_run
from pubstorm.result.verdict.advice import UNANSWERED_S
from tests.kit.serving import until
from tests.system.runs.underway import end_stage

pytestmark = pytest.mark.xdist_group("clocks")

Play = Callable[..., tuple[int, dict[str, Any]]]
Started = Callable[..., Any]
HOUR_NS = 3600 * 10**9
SKEWS = {0: f"{HOUR_NS},{100_000}", 1: f"{-HOUR_NS},{-100_000}"}
"""Errors and drifts of the clocks of both agents."""
PLAUSIBLE_US = 60e6
"""More than any delivery takes here, and much less than the clocks are wrong by."""
UNANSWERED_NS = round((UNANSWERED_S + 1) * 1e9)
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
stages: [connect, publish: 1s, disconnect]
"""
SENT = 20 * 20
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


@pytest.fixture(scope="module")
def played(shared_run: Play, shared_folder: Path) -> tuple[dict[str, Any], Path]:
    """The result and folder of a run whose clocks are hours off, drift, and follow a reference."""

    async def play() -> Any:
        async with followed(shared_folder, SKEWS) as environment:
            return await asyncio.to_thread(shared_run, SCENARIO, environment=environment)

    code, result = asyncio.run(play())
    assert code == 0, result["verdict"]
    return result, Path(result["run_directory"])


def test_agents_with_wrong_clocks_report_the_same_as_agents_with_one_clock(
    played: tuple[dict[str, Any], Path],
) -> None:
    result, _ = played
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert device["sent_total"] == SENT
    assert {name: backend[name] for name in COUNTS} == COUNTS
    bound_us = result["fleet"]["clock_bound_us"]
    assert 0 < bound_us < PLAUSIBLE_US
    for clock in ("intended", "actual"):
        latency = backend["latency_us"][clock]
        assert latency["bound_us"] == bound_us
        # Acknowledgements take one clock, and a host without processors delays them as well.
        slowest_us = device["ack_latency_us"][clock]["max"]
        assert latency["p50"] <= slowest_us + bound_us
        earliest_ns = result["flows"][0]["histogram_ns"][clock]["negative_min_ns"]
        assert -earliest_ns / 1000 <= bound_us
        assert device["ack_latency_us"][clock]["bound_us"] == 0
    for agent in result["fleet"]["agents"]:
        check_clock(agent["clock"], SKEWS[agent["agent"]])


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


def test_a_threshold_that_the_bound_leaves_open_makes_the_run_invalid(
    played: tuple[dict[str, Any], Path],
) -> None:
    measured = load_result(played[1])
    found_us = measured.populations["backend"].latency_us.intended.p50
    assert status(measured, f"backend.latency.p50 < {found_us}us") == "invalid"
    assert status(measured, "backend.latency.p50 > 1h") == "fail"


def status(measured: Measured, threshold: str) -> str:
    return str(evaluate_run(measured, [parse_threshold(threshold)]).status)


def test_without_a_reference_such_clocks_give_absurd_times(run: Play, tmp_path: Path) -> None:
    program = skewed(tmp_path, {1: f"{HOUR_NS}"})
    code, result = run(SCENARIO, environment={"PUBSTORM_ENGINE": str(program)})
    verdict, backend = result["verdict"], result["populations"]["backend"]
    assert code == 3
    assert (verdict["status"], verdict["limited_by"]) == ("invalid", "generator")
    assert backend["latency_us"]["actual"]["negative_total"] > COUNTS["received_total"] // 8
    assert backend["latency_us"]["actual"]["max"] > PLAUSIBLE_US
    assert backend["received_total"] == COUNTS["received_total"]


def test_a_lost_reference_is_reported_and_the_run_continues(start: Started, tmp_path: Path) -> None:
    async def play() -> Any:
        async with followed(tmp_path, {1: f"{HOUR_NS}"}) as environment:
            run = start(SCENARIO.replace("publish: 1s", "publish: 1h"), environment=environment)
            await asyncio.to_thread(run.wait_for, "publish")
        lost_ns = time.monotonic_ns()
        await asyncio.to_thread(until, lambda: newest_ns(run.directory) > lost_ns + UNANSWERED_NS)
        end_stage(run.directory)
        await asyncio.to_thread(run.finish)
        return run.result()

    result = asyncio.run(play())
    right, wrong = (agent["clock"] for agent in result["fleet"]["agents"])
    assert right is None, "it has the clock of the controller"
    assert wrong["unanswered_s"] >= UNANSWERED_S
    assert any(fact.startswith("agent 1 had no answer") for fact in result["verdict"]["evidence"])
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert backend["received_total"] == backend["expected_total"] == 2 * device["sent_total"] > 0


def newest_ns(directory: Path) -> int:
    """The instant at which the newest snapshot of a run begins."""
    *lines, _ = (directory / SNAPSHOTS_FILE).read_text().split("\n")
    return Snapshot.model_validate_json(lines[-1]).from_ns
