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

RunMaker = Callable[..., Any]
SCENARIO = """
topology: {brokers: {main: {kind: embedded}}}
fleet: {agents: 3, on_agent_failure: POLICY}
snapshot_interval: 200ms
drain: 1s
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
  - publish: {name: first, for: 6s}
  - publish: {name: second, for: 3s}
  - disconnect: {}
"""


def play(start: RunMaker, policy: str) -> tuple[int, Any]:
    """Plays it and kills agent 1, with 10 devices and one of the subscribers to all, in the first
    publish stage; exit code and run."""
    run = start(SCENARIO.replace("POLICY", policy))
    run.wait_for("p99", after=" first ")
    (engine,) = (pid for pid in run.children() if "1/3" in psutil.Process(pid).cmdline())
    os.kill(engine, signal.SIGKILL)
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


def test_a_run_ends_with_the_first_engine_that_it_loses(start: RunMaker) -> None:
    code, run = play(start, "fail")
    verdict = run.result()["verdict"]
    assert (code, verdict["status"], verdict["limited_by"]) == (3, "invalid", "generator")
    assert "was killed by signal 9: it played 11 of 32 clients" in verdict["evidence"][0]


@pytest.mark.slow("an agent is killed, and the others continue for seconds")
def test_a_run_goes_on_without_the_clients_of_a_lost_engine(start: RunMaker) -> None:
    code, run = play(start, "continue")
    result = run.result()
    assert (code, result["verdict"]["status"]) == (0, "pass")
    (loss,) = result["fleet"]["failures"]
    assert (loss["agent"], loss["clients"], loss["rejoined_after_s"]) == (1, 11, None)
    facts = [fact for fact in result["verdict"]["evidence"] if "from then on" in fact]
    assert len(facts) == 1 and "its 11 of 32 clients were away from then on" in facts[0]
    _, first, second, _ = result["stages"]
    assert [first["connected"], second["connected"]] == [21, 21]
    assert first["excluded"] == second["excluded"] == ["all", "device"]
    # 20 devices are left, and one subscriber that receives from all of them.
    assert counts(second, "device")[0] == 720
    lack = {name: [lacking(stage, name) for stage in (first, second)] for name in ("all", "device")}
    assert lack == {"all": [0, 0], "device": [0, 0]}
    assert flows(result) == [(0, 0), (0, 0)]
    seen = connected(run.directory, "device")
    assert 30 not in seen[seen.index(20, seen.index(30)) :]


@pytest.mark.slow("an agent is killed, replaced, and its clients have to be back")
def test_another_engine_plays_the_clients_of_a_lost_one(start: RunMaker) -> None:
    code, run = play(start, "replace")
    result = run.result()
    assert (code, result["verdict"]["status"]) == (0, "pass")
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
    assert counts(second, "all") == [0, 1800, 0, 0]
    assert counts(second, "device") == [1080, 180, 0, 0]
    # What came before its receiver had entered the second stage counts to the first.
    assert [lacking(first, name) + lacking(second, name) for name in ("all", "device")] == [0, 0]
    assert flows(result) == [(0, 0), (0, 0)]
    seen = connected(run.directory, "device")
    lost = seen.index(20, seen.index(30))
    assert 30 in seen[lost:]


@pytest.mark.parametrize("policy", ["continue", "replace"])
def test_a_run_that_lost_an_engine_can_be_interrupted(start: RunMaker, policy: str) -> None:
    run = start(SCENARIO.replace("POLICY", policy))
    run.wait_for("p99", after=" first ")
    (engine,) = (pid for pid in run.children() if "1/3" in psutil.Process(pid).cmdline())
    os.kill(engine, signal.SIGKILL)
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 130
    assert run.result()["interrupted"]
