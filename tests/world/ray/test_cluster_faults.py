"""Hosts and agents that die or are cut off on a cluster, during runs of the command line.

Each run ends as its scenario says, with one ending for each agent. The run leaves no files and no
processes on any host."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.kit.runs import Run
from tests.world.ray.cluster import GONE_TIMEOUT_S, Cluster, Host, until_none

pytestmark = pytest.mark.xdist_group("heavy")

RunMaker = Callable[..., Run]

LOAD = """
target: {broker}
populations:
  device:
    clients: 60
    client_id: "{name}-device-{{n}}"
    publications: [{{topic: "{name}/{{n}}", rate: 10/s, qos: 1}}]
  backend:
    clients: 2
    client_id: "{name}-backend-{{n}}"
    subscriptions: [{{topic: "{name}/#", qos: 1}}]
stages:
  - connect
  - publish: {{name: first, for: {first}}}
  - publish: {{name: second, for: 3s}}
drain: 2s
fleet: {{agents: {agents}, on_agent_failure: {policy}}}
"""


def stored(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run.directory / "result.json").read_text())
    return result


def nothing_is_left(cluster: Cluster) -> None:
    """No engine on any host, and no folder on those that have power."""
    until_none(cluster.engines, GONE_TIMEOUT_S)
    until_none(cluster.left, GONE_TIMEOUT_S)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def endings(result: Mapping[str, Any], host: Host) -> list[str]:
    """Events of the run about the end of the agent of a host."""
    return [each["text"] for each in result["events"] if f" on {host.address} " in each["text"]]


@pytest.mark.slow("two runs wait until a host is given up")
def test_a_host_that_is_cut_off_ends_one_run_and_is_replaced_in_another(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    given = {"broker": broker, "agents": 2, "first": "25s"}
    ending = start(LOAD.format(**given, name="ending", policy="fail"))
    lasting = start(LOAD.format(**given, name="lasting", policy="replace"))
    for run in (ending, lasting):
        run.wait_for_stage("first", 10)
    _, second, third, fourth = cluster.hosts
    cluster.unplug(second)
    until_none(second.engines, GONE_TIMEOUT_S)
    assert ending.finish() == 3
    it_ended(stored(ending), second, third)
    assert lasting.finish() == 0, lasting.stdout
    nothing_is_left(cluster)
    result = stored(lasting)
    (loss,) = result["fleet"]["failures"]
    assert f"on {second.address} " in loss["text"]
    assert len(endings(result, second)) == 1
    assert loss["clients"] == 31
    assert loss["replaced_on"] == fourth.address
    assert loss["rejoined_after_s"] > 0
    hosts = [agent["host"] for agent in result["fleet"]["agents"]]
    assert hosts == [fourth.address, third.address]
    assert carried(result, "second") == (3 * 10 * 60 * 2, 0)


def it_ended(result: Mapping[str, Any], lost: Host, other: Host) -> None:
    assert (result["verdict"]["status"], result["ended_early"]) == ("invalid", True)
    assert f"on {lost.address} " in "\n".join(result["verdict"]["evidence"])
    assert len(endings(result, lost)) == 1
    assert not endings(result, other)
    assert result["populations"]["device"]["sent_total"] > 0


def carried(result: Mapping[str, Any], stage: str) -> tuple[int, int]:
    """Deliveries due and lost in a stage."""
    (found,) = (each for each in result["stages"] if each["name"] == stage)
    backend = found["populations"]["backend"]
    return backend["expected_total"], backend["lost_total"]


@pytest.mark.slow("a Ray cluster starts, and a run loses three parts of it")
def test_a_run_goes_on_without_agent_worker_and_host(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    run = start(LOAD.format(broker=broker, name="up", agents=4, policy="continue", first="8s"))
    run.wait_for_stage("first", 10)
    head, second, third, fourth = cluster.hosts
    (agent,), (held,) = second.engines(), third.engines()
    kill(agent.pid)
    kill(held.ppid())
    fourth.kill()
    assert run.finish() == 0, run.stdout
    nothing_is_left(cluster)
    result = stored(run)
    losses = sorted(result["fleet"]["failures"], key=lambda loss: loss["agent"])
    assert [loss["agent"] for loss in losses] == [0, 1, 2]
    for loss, host in zip(losses, (second, third, fourth), strict=True):
        assert loss["clients"] in (15, 16)
        assert f"on {host.address} " in loss["text"]
        assert len(endings(result, host)) == 1
    assert "was killed by signal 9" in losses[0]["text"]
    last = result["fleet"]["agents"][3]
    assert (last["host"], last["ending"]) == ("", "bye")
    assert not endings(result, head)


@pytest.mark.slow("a Ray cluster starts, for two runs")
def test_nothing_outlives_a_killed_controller_and_an_interrupt_drains(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    given = {"broker": broker, "agents": 2, "first": "60s", "policy": "fail"}
    killed, interrupted = (start(LOAD.format(**given, name=name)) for name in ("one", "two"))
    for run in (killed, interrupted):
        run.wait_for_stage("first", 10)
    killed.process.kill()
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.finish() == 130
    nothing_is_left(cluster)
    result = stored(interrupted)
    assert result["populations"]["device"]["sent_total"] > 0
    assert [agent["ending"] for agent in result["fleet"]["agents"]] == ["bye", "bye"]


@pytest.mark.slow("a Ray cluster starts, and its end is noticed")
def test_a_run_ends_in_words_when_the_head_dies(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    given = {"broker": broker, "agents": 2, "first": "60s", "policy": "fail"}
    run = start(LOAD.format(**given, name="up"))
    run.wait_for_stage("first", 10)
    cluster.head.kill()
    assert run.finish() == 3, run.stderr + run.stdout
    until_none(cluster.engines, GONE_TIMEOUT_S)
    result = stored(run)
    assert "the head of the Ray cluster" in "\n".join(result["verdict"]["evidence"])
    assert result["populations"]["device"]["sent_total"] > 0
