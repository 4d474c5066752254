"""Runs on a cluster that loses a part: an agent, a worker, a broker, a host, a cable, the head or
the controller. Each run ends as its scenario says, and leaves no files and no processes.

A stage lasts until the loss is logged: then the test ends the stage by command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import pytest

from pubstorm.play import control_socket
from tests.kit.runs import Run
from tests.world.ray.cluster import MARKS, Cluster, Host, until_ended

pytestmark = MARKS

RunMaker = Callable[..., Run]

LOAD = """
target: {broker}
populations:
  device:
    clients: 60
    client_id: "{name}-device-{{n}}"
    publications: [{{topic: "{name}/{{n}}", rate: 5/s, qos: 1}}]
  backend:
    clients: 2
    client_id: "{name}-backend-{{n}}"
    subscriptions: [{{topic: "{name}/#", qos: 1}}]
stages:
  - connect
  - publish: {{name: first, for: 1h}}
  - publish: {{name: second, for: 2s}}
drain: 1s
fleet: {{{fleet}}}
"""
PLACED = """
topology: {brokers: {main: {kind: mosquitto, count: BROKERS, hosts: broker}}}
fleet: {hosts: load}
populations:
  device: {clients: 12, publications: [{topic: "up/{n}", rate: 5/s, qos: 1}]}
  backend: {clients: 2, at: main, subscriptions: [{topic: "up/#", qos: 1}]}
stages: [connect, publish: {name: first, for: 1h}]
drain: 1s
"""


def stored(run: Run) -> Any:
    return json.loads((run.directory / "result.json").read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def await_messages(*runs: Run) -> None:
    """Waits until messages of the first publish stage have come."""
    for run in runs:
        run.wait_for("p99", after=" first ")


def end_stage(run: Run) -> None:
    control_socket.ask(run.directory, "end stage")


def endings(result: Mapping[str, Any], host: Host) -> int:
    """Number of events of the run about the end of the agent of a host."""
    return sum(f" on {host.address} " in event["text"] for event in result["events"])


def carried(result: Mapping[str, Any], stage: str) -> tuple[int, int]:
    """Expected and lost deliveries of a stage."""
    (found,) = (each for each in result["stages"] if each["name"] == stage)
    backend = found["populations"]["backend"]
    return backend["expected_total"], backend["lost_total"]


def ended_by_its_brokers(run: Run, cluster: Cluster, *numbers: int) -> None:
    """Checks a run whose brokers, on hosts of these numbers, died or were lost in this order."""
    assert run.finish() == 1, run.stderr
    result = stored(run)
    assert result["verdict"]["status"] == "fail"
    hosts = [cluster.hosts[number - 1].address for number in numbers]
    assert [(each["host"], each["died"]) for each in result["brokers"]] == [
        (host, True) for host in hosts
    ]
    texts = [event["text"] for event in result["events"] if event["kind"] == "broker"]
    assert len(texts) == len(numbers)
    assert all(f"broker main-{n}" in text for n, text in enumerate(texts))


@pytest.mark.slow("two runs on a Ray cluster, and the ends of their processes")
def test_nothing_outlives_a_killed_controller_and_an_interrupt_drains(
    start: RunMaker, cluster: Cluster
) -> None:
    killed, interrupted = (start(PLACED.replace("BROKERS", "1"), report=True) for _ in range(2))
    await_messages(killed, interrupted)
    engines = [engine for host in cluster.hosts for engine in host.engines()]
    # Agents on the head read its clock, and need no key for it.
    clock_keys = {engine.environ().get("PUBSTORM_CLOCK_KEY", "") for engine in engines} - {""}
    assert (len(engines), len(clock_keys)) == (4, 2)
    said = [" ".join(words(each)) for host in cluster.hosts for each in host.processes()]
    assert len(cluster.hosts[1].servers()) == 2
    killed.process.kill()
    interrupted.process.send_signal(signal.SIGINT)
    assert interrupted.finish() == 130
    cluster.until_clean()
    result = stored(interrupted)
    device, backend = (result["populations"][name] for name in ("device", "backend"))
    assert device["sent_total"] > 0
    assert (backend["received_total"], backend["lost_total"]) == (backend["expected_total"], 0)
    assert [agent["ending"] for agent in result["fleet"]["agents"]] == ["bye", "bye"]
    said += [interrupted.stderr, interrupted.stdout]
    folders = (killed.directory, interrupted.directory)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    said += [path.read_text("latin-1") for path in files]
    for secret in (*secrets_of(cluster), *clock_keys):
        assert not [text for text in said if secret in text]


def words(process: psutil.Process) -> list[str]:
    """Returns the command line of a process, which may have ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def secrets_of(cluster: Cluster) -> list[str]:
    """Tokens, and the second line of each key."""
    keys = cluster.folder / "keys"
    return [
        *(path.read_text() for path in keys.rglob("token")),
        *(path.read_text().splitlines()[1] for path in keys.rglob("*.key")),
    ]


@pytest.mark.slow("a host of a Ray cluster dies, which two runs have to notice")
def test_runs_without_agent_worker_broker_and_host(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    fleet = "agents: 4, on_agent_failure: continue"
    agents = start(LOAD.format(broker=broker, name="up", fleet=fleet))
    brokers = start(PLACED.replace("BROKERS", "2"))
    await_messages(agents, brokers)
    head, second, third, fourth = cluster.hosts
    (server,), (agent,), (held,) = second.servers(), second.engines("0/4"), fourth.engines("2/4")
    kill(agent.pid)
    kill(held.ppid())
    kill(server.pid)
    brokers.wait_for("broker main-0")
    third.kill()
    for host in (second, third, fourth):
        agents.wait_for(f" on {host.address} ")
    brokers.wait_for("broker main-1")
    for run in (agents, brokers):
        end_stage(run)
    ended_by_its_brokers(brokers, cluster, 2, 3)
    assert agents.finish() == 0, agents.stdout
    cluster.until_clean()
    result = stored(agents)
    losses = sorted(result["fleet"]["failures"], key=lambda loss: loss["agent"])
    assert [loss["agent"] for loss in losses] == [0, 1, 2]
    for loss, host in zip(losses, (second, third, fourth), strict=True):
        assert loss["clients"] in (15, 16)
        assert f"on {host.address} " in loss["text"]
        assert endings(result, host) == 1
    last = result["fleet"]["agents"][3]
    assert (last["host"], last["ending"], endings(result, head)) == ("", "bye", 0)


@pytest.mark.slow("leases of agents and brokers, and a head that is given up after 10 s")
def test_runs_with_a_host_that_is_cut_off_and_without_the_head(
    start: RunMaker, broker: str, cluster: Cluster
) -> None:
    head, second, third, fourth = cluster.hosts
    replace = "agents: 2, on_agent_failure: replace"
    lasting = start(LOAD.format(broker=broker, name="lasting", fleet=replace))
    brokers = start(PLACED.replace("BROKERS", "1"))
    headless = start(LOAD.format(broker=broker, name="headless", fleet=f"hosts: {third.address}"))
    await_messages(lasting, brokers, headless)
    assert (len(second.engines()), len(second.servers()), len(third.engines())) == (1, 1, 2)
    cluster.unplug(second)
    # Agents and brokers there end by themselves: the cable stays out.
    until_ended(second.engines)
    until_ended(second.servers)
    brokers.wait_for("broker main-0")
    lasting.wait_for(f" on {fourth.address} ")
    for run in (brokers, lasting):
        end_stage(run)
    ended_by_its_brokers(brokers, cluster, 2)
    assert lasting.finish() == 0, lasting.stdout
    result = stored(lasting)
    (loss,) = result["fleet"]["failures"]
    assert (loss["clients"], loss["replaced_on"]) == (31, fourth.address)
    assert endings(result, second) == 1
    hosts = [agent["host"] for agent in result["fleet"]["agents"]]
    assert hosts == [fourth.address, third.address]
    assert carried(result, "second") == (2 * 5 * 60 * 2, 0)
    head.kill()
    assert headless.finish() == 3, headless.stderr
    result = stored(headless)
    assert (result["verdict"]["status"], result["ended_early"]) == ("invalid", True)
    assert cluster.address in "\n".join(result["verdict"]["evidence"])
    assert result["populations"]["device"]["sent_total"] > 0
    for host in cluster.hosts:
        until_ended(host.engines)
