"""Runs that lose one of their engines in a publish stage, to a signal that nothing survives: what
becomes of them, in exact numbers."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kit.starved import passes
from tests.system.runs.underway import end_stage

RunMaker = Callable[..., Any]
SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
fleet: {agents: 3, on_agent_failure: POLICY}
snapshot_interval: 200ms
# Messages that are due as a command ends a stage are skipped.
thresholds: [skipped < 50]
populations:
  all:
    clients: 2
    subscriptions: [{topic: "up/#", qos: 1}]
  device:
    clients: 30
    subscriptions: ["down/{n}"]
    publications: [{topic: "up/{n}", rate: 10/s, qos: 1}, {topic: "down/{n}", rate: 2/s}]
stages:
  - connect: {rate: 100/s}
  - publish: {name: first, for: FIRST}
  - publish: {name: second, for: 1s}
  - disconnect: {}
"""
EXCLUDED = ("--set", "drain=1s")
"""Without a replacement, all deliveries are excluded from loss: each drain lasts its whole time,
and no figure depends on it."""


def play(start: RunMaker, policy: str, first: str) -> tuple[int, Any]:
    """Plays it and kills agent 1, with 10 devices and one of the subscribers to all, in the first
    publish stage; exit code and run."""
    scenario = SCENARIO.replace("POLICY", policy).replace("FIRST", first)
    run = start(scenario, *EXCLUDED if policy == "continue" else ())
    run.wait_for("p99", after=" first ")
    (engine,) = (pid for pid in run.children() if "1/3" in psutil.Process(pid).cmdline())
    os.kill(engine, signal.SIGKILL)
    if policy == "continue":
        run.wait_for(f"(pid {engine})")
        end_stage(run.directory)
    return run.finish(), run


def connected(directory: Path, population: str) -> list[int]:
    """The clients of a population that were connected, one sample after the other."""
    with (directory / "samples.csv").open() as samples:
        found = [row for row in csv.DictReader(samples) if row["source"] == population]
    return [int(row["value"]) for row in found if row["metric"] == "connected"]


def counts(stage: dict[str, Any], population: str) -> list[int]:
    """Sent, expected, duplicate and stale messages of a population in a stage."""
    names = ("sent", "expected", "duplicate", "stale")
    return [stage["populations"][population][f"{name}_total"] for name in names]


def lacking(stage: dict[str, Any], population: str) -> int:
    """Expected deliveries of a population in a stage, less the received ones."""
    there = stage["populations"][population]
    return int(there["expected_total"] - there["received_total"])


def flows(result: dict[str, Any]) -> list[tuple[int, int]]:
    """Lost and surplus deliveries of each flow."""
    return [(flow["lost_total"], flow["surplus_total"]) for flow in result["flows"]]


def test_a_run_goes_on_without_the_clients_of_a_lost_engine(start: RunMaker) -> None:
    code, run = play(start, "continue", "10min")
    result = run.result()
    assert passes(code, result), result["verdict"]
    (loss,) = result["fleet"]["failures"]
    assert (loss["agent"], loss["clients"], loss["rejoined_after_s"]) == (1, 11, None)
    _, first, second, _ = result["stages"]
    assert [first["connected"], second["connected"]] == [21, 21]
    assert first["excluded"] == second["excluded"] == ["all", "device"]
    # 20 devices are left, and one subscriber that receives from all of them.
    assert counts(second, "device")[0] == 240
    lack = {name: [lacking(stage, name) for stage in (first, second)] for name in ("all", "device")}
    assert lack == {"all": [0, 0], "device": [0, 0]}
    assert flows(result) == [(0, 0), (0, 0)]
    seen = connected(run.directory, "device")
    assert 30 not in seen[seen.index(20, seen.index(30)) :]


@pytest.mark.slow("an agent is killed, replaced, and its clients have to be back")
def test_another_engine_plays_the_clients_of_a_lost_one(start: RunMaker) -> None:
    code, run = play(start, "replace", "6s")
    result = run.result()
    assert passes(code, result), result["verdict"]
    (loss,) = result["fleet"]["failures"]
    assert loss["replaced_on"] == ""
    assert loss["rejoined_after_s"] > 0
    assert [agent["ending"] for agent in result["fleet"]["agents"]] == ["bye"] * 3
    _, first, second, _ = result["stages"]
    assert [first["connected"], second["connected"]] == [32, 32]
    assert (first["excluded"], second["excluded"]) == (["all", "device"], [])
    # Messages scheduled while no agent played the shard are not sent, and do not count as skipped.
    sent = first["populations"]["device"]["sent_total"]
    assert 30 * 12 * 6 - 10 * 12 * 6 <= sent < 30 * 12 * 6
    assert result["populations"]["device"]["skipped_total"] == 0
    assert counts(second, "all") == [0, 600, 0, 0]
    assert counts(second, "device") == [360, 60, 0, 0]
    # A delivery before its receiver has entered the second stage counts to the first.
    assert [lacking(first, name) + lacking(second, name) for name in ("all", "device")] == [0, 0]
    assert flows(result) == [(0, 0), (0, 0)]
    seen = connected(run.directory, "device")
    lost = seen.index(20, seen.index(30))
    assert 30 in seen[lost:]
