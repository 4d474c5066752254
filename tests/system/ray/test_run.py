"""Runs of the command line on a Ray cluster of one node: what is shown, and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install pubstorm[ray]")

from tests.kit.runs import ANY_SPEED, EACH_SECOND, Run, end_all
from tests.system.ray.conftest import Node

pytestmark = pytest.mark.xdist_group("ray")

SCENARIO = """
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 40
    subscriptions: [{topic: "t/{n}", qos: 1}]
    publications: [{topic: "t/{n}", rate: 20/s, qos: 1}]
stages:
  - connect: {}
  - publish: SPAN
  - disconnect: {}
thresholds: [device.lost == 0]
"""
PROGRAM = """
import dataclasses, sys
from pubstorm.fleet import provision
from pubstorm.fleet.ray import site

timeouts_of = provision.timeouts_of

def patient(*words):
    return dataclasses.replace(timeouts_of(*words), silence_s=600, lost_s=60)

provision.timeouts_of, site.LEASE_S = patient, 60

from pubstorm.__main__ import main

main()
"""
"""`pubstorm`, for which no healthy agent of a busy host is lost."""
ON_STDERR = ("run", "!", " ", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
"""Beginnings of the lines that Pubstorm writes to stderr."""

Start = Callable[..., Run]


@pytest.fixture
def start(node: Node, tmp_path: Path) -> Iterator[Start]:
    """Starts a run of two agents on the node, which publishes for so long."""
    runs: list[Run] = []

    def make(span: str) -> Run:
        path, directory = tmp_path / "scenario.yaml", tmp_path / "run"
        path.write_text(SCENARIO.replace("SPAN", span))
        words = (sys.executable, "-c", PROGRAM, "run", str(path), "--out", str(directory))
        on = f"ray://{node.address}"
        place = ("--on", on, "--set", "fleet.spread=pack", "--set", "fleet.agents=2")
        process = subprocess.Popen(
            [*words, *place, *EACH_SECOND, *ANY_SPEED],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        runs.append(Run(process, directory))
        return runs[-1]

    yield make
    end_all(runs)


def test_a_run_is_like_one_of_this_host_and_ray_says_nothing(start: Start) -> None:
    run = start("1s")
    assert run.finish() == 0, run.stderr
    result = run.result()
    assert [agent["clients"] for agent in result["fleet"]["agents"]] == [20, 20]
    assert {agent["ending"] for agent in result["fleet"]["agents"]} == {"bye"}
    assert result["fleet"]["on"].startswith("ray")
    (flow,) = result["flows"]
    assert flow["received_total"] == flow["expected_total"] == 800
    assert "ray" not in run.stdout.replace(result["command"], "").lower()
    assert [line for line in run.said if line.strip() and not line.startswith(ON_STDERR)] == []


def test_sigterm_drains_it_and_keeps_what_was_measured(start: Start) -> None:
    """Ray has handlers of its own for it, in Python and natively."""
    run = start("10min")
    run.wait_for("sent 8", after="publish")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 130, run.stderr
    result = run.result()
    assert {agent["ending"] for agent in result["fleet"]["agents"]} == {"bye"}
    (flow,) = result["flows"]
    assert flow["received_total"] > 0
    assert flow["lost_total"] == 0
    assert "SIGTERM received at time" not in run.stderr
