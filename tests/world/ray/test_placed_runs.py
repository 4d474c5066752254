"""Runs with brokers on some hosts of a cluster and load on others, each from one command. Nothing
stays on any host, however a run ends."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubstorm.topology.adapters.rabbitmq import find_rabbitmq
from tests.kit.runs import Run
from tests.world.ray.cluster import GONE_TIMEOUT_S, Cluster, Host, until_none

pytestmark = pytest.mark.xdist_group("heavy")

RunMaker = Callable[..., Run]

APART = """
topology: {{brokers: {{main: {{kind: {kind}, hosts: broker}}}}}}
fleet: {{hosts: load}}
populations:
  device:
    clients: 60
    publications: [{{topic: "up/{{n}}", rate: 10/s, qos: 1}}]
  backend:
    clients: 2
    subscriptions: [{{topic: "up/#", qos: 1}}]
stages: [connect: {{}}, publish: {span}, disconnect: {{}}]
monitors: {{interval: 500ms}}
"""


def stored(run: Run) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run.directory / "result.json").read_text())
    return result


def nothing_is_left(cluster: Cluster) -> None:
    """No engine and no server on any host, and no folder on those that have power."""
    until_none(cluster.engines, GONE_TIMEOUT_S)
    until_none(cluster.servers, GONE_TIMEOUT_S)
    until_none(cluster.left, GONE_TIMEOUT_S)


def figures(result: dict[str, Any], source: str) -> dict[str, Any]:
    return {w["metric"]: w["whole"] for w in result["monitors"] if w["source"] == source}


def broker_host(cluster: Cluster) -> Host:
    return cluster.hosts[1]


@pytest.mark.slow("two runs on a Ray cluster")
@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_a_broker_on_one_host_and_load_on_others(
    kind: str, start: RunMaker, cluster: Cluster
) -> None:
    run = start(APART.format(kind=kind, span="3s"))
    assert run.finish() == 0, run.stderr
    result = stored(run)
    (broker,) = result["brokers"]
    there = broker_host(cluster).address
    assert (broker["host"], broker["died"]) == (there, False)
    assert {agent["host"] for agent in result["fleet"]["agents"]} == {"", cluster.hosts[3].address}
    assert result["populations"]["backend"]["received_total"] == 2 * 60 * 30
    assert result["populations"]["backend"]["lost_total"] == 0
    found = figures(result, "main-0")
    assert {"cpu", "rss_bytes", "threads", "descriptors"} <= found.keys()
    assert found["rss_bytes"]["max"] > 1e6
    assert kind == "embedded" or any("$SYS" in metric for metric in found)
    assert figures(result, f"host-{cluster.hosts[3].address}")["cpu"]["max"] <= 1
    host = figures(result, f"host-{there}")
    assert host["net_received_bytes_per_s"]["max"] > 1000
    assert 0 <= host["cpu"]["max"] <= 1
    nothing_is_left(cluster)


@pytest.mark.slow("a run on a Ray cluster with a fault of a second")
def test_faults_hit_a_broker_on_another_host(start: RunMaker, cluster: Cluster) -> None:
    frozen = "{for: 5s, faults: [{at: 1s, freeze: main, for: 1s}]}"
    run = start(APART.format(kind="mosquitto", span=frozen))
    assert run.finish() == 0, run.stderr
    result = stored(run)
    assert result["populations"]["backend"]["lost_total"] == 0
    texts = [event["text"] for event in result["events"]]
    assert texts == ["freeze main", "freeze main: 1 broker is continuing"]
    nothing_is_left(cluster)


@pytest.mark.slow("a run on a Ray cluster, and the ends of its processes")
def test_a_killed_controller_leaves_no_broker_on_any_host(
    start: RunMaker, cluster: Cluster
) -> None:
    run = start(APART.format(kind="mosquitto", span="60s"))
    run.wait_for_stage("publish")
    assert broker_host(cluster).address in cluster.servers()
    run.process.kill()
    run.process.wait()
    nothing_is_left(cluster)


@pytest.mark.slow("a host of a Ray cluster dies, and clients look for its broker to the end")
def test_a_host_that_dies_fails_the_run_in_words(start: RunMaker, cluster: Cluster) -> None:
    run = start(APART.format(kind="mosquitto", span="8s"))
    run.wait_for_stage("publish")
    broker_host(cluster).kill()
    assert run.finish() == 1, run.stderr
    assert "broker main-0" in run.stderr
    assert f"is lost: {broker_host(cluster).address}" in run.stderr
    nothing_is_left(cluster)


@pytest.mark.slow("the lease of a deputy lasts 10 s")
def test_a_cut_off_host_ends_its_broker_by_itself(start: RunMaker, cluster: Cluster) -> None:
    run = start(APART.format(kind="mosquitto", span="20s"))
    run.wait_for_stage("publish")
    cluster.unplug(broker_host(cluster))
    assert run.finish() == 1, run.stderr
    # Ray or the controller notices it first.
    lost = f"is lost: {broker_host(cluster).address}(: its host| has not answered for 5 s)"
    assert re.search(lost, run.stderr), run.stderr
    until_none(cluster.servers, LEASE_S + GONE_TIMEOUT_S)


LEASE_S = 10.0


def test_a_label_that_no_host_has_is_refused_with_those_of_all(
    start: RunMaker, cluster: Cluster
) -> None:
    run = start(APART.format(kind="mosquitto", span="1s").replace("hosts: broker", "hosts: gpu"))
    assert run.finish() == 3
    assert "found no host of the Ray cluster with the label gpu" in run.stderr
    assert f"{cluster.hosts[1].address} has broker" in run.stderr
    assert "hint: ray start --labels pubstorm=gpu" in run.stderr
    nothing_is_left(cluster)


@pytest.mark.slow("a run on a Ray cluster whose clients look for their broker to the end")
def test_a_broker_that_is_killed_there_fails_the_run(start: RunMaker, cluster: Cluster) -> None:
    run = start(APART.format(kind="mosquitto", span="5s"))
    run.wait_for_stage("publish")
    (pid,) = cluster.servers()[broker_host(cluster).address]
    os.kill(pid, signal.SIGKILL)
    assert run.finish() == 1, run.stderr
    assert "was killed by signal 9" in run.stderr
    nothing_is_left(cluster)


@pytest.mark.slow("two steps of a series on a Ray cluster, which share ten bridged brokers")
def test_brokers_of_a_series_stay_on_their_hosts(start: RunMaker, cluster: Cluster) -> None:
    steps = "[{populations.publisher.clients: 1}, {populations.publisher.clients: 2}]"
    run = start(
        (SCENARIOS / "mosquitto-bridges.yaml").read_text(),
        *("--set", "topology.brokers.cloud.hosts=broker", "--set", "fleet.hosts=load"),
        *("--set", "topology.brokers.boxes.hosts=broker", "--set", "scale=1%"),
        *("--set", "stages.1.publish.for=2s", "--set", f"sweep.steps={steps}"),
    )
    assert run.finish() == 0, run.stderr
    results = [json.loads(path.read_text()) for path in run.directory.glob("steps/*/result.json")]
    assert len(results) == 2
    hosts = {host.address for host in cluster.hosts[1:3]}
    one, other = ({b["name"]: (b["host"], b["pid"]) for b in r["brokers"]} for r in results)
    assert one == other
    assert {host for host, _ in one.values()} == hosts
    assert all(bridges["up"] == 10 for r in results for bridges in r["bridges"])
    nothing_is_left(cluster)


SCENARIOS = Path(__file__).parents[3] / "scenarios"


RABBITS = """
topology:
  brokers: {node: {kind: rabbitmq, count: 2, cluster: true, passwords: true, hosts: broker}}
fleet: {hosts: load}
populations:
  device:
    clients: 4
    publications: [{topic: "up/{n}", rate: 5/s}]
  backend:
    clients: 2
    subscriptions: ["up/#"]
stages: [connect: {}, publish: 3s, disconnect: {}]
"""


@pytest.mark.slow("a cluster of RabbitMQ starts on two hosts")
@pytest.mark.skipif(find_rabbitmq() is None, reason="rabbitmq-server is not installed")
def test_nodes_of_rabbitmq_form_a_cluster_over_two_hosts(start: RunMaker, cluster: Cluster) -> None:
    run = start(RABBITS)
    assert run.finish() == 0, run.stderr
    result = stored(run)
    hosts = [broker["host"] for broker in result["brokers"]]
    assert hosts == [host.address for host in cluster.hosts[1:3]]
    backend = result["populations"]["backend"]
    assert (backend["received_total"], backend["lost_total"]) == (2 * 4 * 15, 0)
    nothing_is_left(cluster)
