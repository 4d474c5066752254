"""Two nodes of RabbitMQ as one cluster: every message crosses it, nodes that are killed come back
to it, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pubstorm.host.children import find
from pubstorm.host.sockets import free_port, is_free
from pubstorm.plan import provisional_plan
from pubstorm.play import control_socket
from pubstorm.scenario import parse_scenario
from pubstorm.topology.adapters.rabbitmq import RabbitmqBroker
from pubstorm.topology.broker import Cluster
from pubstorm.topology.credentials import RunKeys
from tests.kit.runs import RunMaker

pytestmark = [
    pytest.mark.xdist_group("rabbitmq-cluster"),
    pytest.mark.concerns(
        "python/pubstorm/topology/adapters/rabbitmq.py",
        "python/pubstorm/topology/cluster.py",
        "python/pubstorm/topology/start.py",
        "python/pubstorm/topology/supervision.py",
        "tests/world/clusters/",
    ),
]

PAIRS = 10
CLIENTS = 3 * PAIRS + 2
SCENARIO = """\
topology:
  brokers: {node: {kind: rabbitmq, count: 2, cluster: true, passwords: true}}
populations:
  clean:
    clients: 10
    at: {brokers: node, shift: 1}
    reconnect: &again {after: 200ms, up_to: 400ms}
    subscriptions: [{topic: "to/{n}", qos: 1}]
  persistent:
    clients: 10
    at: {brokers: node, shift: 1}
    session: persistent
    reconnect: *again
    subscriptions: [{topic: "to/{n}", qos: 1}]
  backend: {clients: 2, at: node, reconnect: *again, subscriptions: [{topic: to/#, qos: 1}]}
  device:
    clients: 10
    at: node
    username: "device-{n}"
    password: "secret of {n}"
    reconnect: *again
    publications: [{topic: "to/{n}", rate: 5/s, qos: 1}]
stages:
  - connect
  - publish: {name: before, for: 2s}
  - publish: {name: broken, for: 1h}
  - publish: {name: after, for: 2s}
  - disconnect
monitors: {host: false}
defaults: off
thresholds: [lost@before == 0, lost@after == 0, node.balance < 150%]
"""


def test_nodes_have_an_address_each_and_one_port() -> None:
    cluster = Cluster("node", 3)
    asyncio.run(cluster.choose_port())
    assert [cluster.host(name) for name in cluster.names] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert all(is_free(cluster.node_port, cluster.host(name)) for name in cluster.names)


def test_a_port_is_free_on_all_addresses_or_not_chosen() -> None:
    port = free_port(["127.0.0.1", "127.0.0.2"])
    with socket.create_server(("127.0.0.2", port)):
        assert is_free(port)
        assert not is_free(port, "127.0.0.2")


def test_a_node_starts_when_the_one_before_it_is_up() -> None:
    cluster, started = Cluster("node", 3), []

    async def start(name: str) -> None:
        async with cluster.turn(name):
            started.append(name)
            await asyncio.sleep(0)

    async def start_backwards() -> None:
        await asyncio.gather(*(start(name) for name in reversed(cluster.names)))

    asyncio.run(start_backwards())
    assert started == ["node-0", "node-1", "node-2"]


def test_users_of_rabbitmq_may_do_everything_and_no_password_is_shown(tmp_path: Path) -> None:
    scenario = parse_scenario(SCENARIO, "s.yaml")
    RunKeys(scenario.topology, tmp_path).make(provisional_plan(scenario))
    text = (tmp_path / "node.passwords").read_text()
    assert "secret" not in text
    made = json.loads(text)
    names = [user["name"] for user in made["users"]]
    assert {f"device-{n}" for n in range(PAIRS)} | {"pubstorm-observer"} <= set(names)
    assert [permission["user"] for permission in made["permissions"]] == names
    assert RabbitmqBroker.users_text({"a": "b"}) != RabbitmqBroker.users_text({"a": "b"})


@pytest.mark.slow("two nodes of RabbitMQ start, and are killed and join again three times")
@pytest.mark.skipif(find("rabbitmq-server") is None, reason="rabbitmq-server is not installed")
def test_nothing_is_lost_across_a_cluster_and_killed_nodes_come_back(
    start: RunMaker, gone: Callable[[Sequence[int]], None]
) -> None:
    run = start(SCENARIO)
    run.wait_for("p99", after=" broken ")
    children = run.children()
    # The node that was up first leads, and the other cannot lead without it.
    killed = ("node-0", "node-1", "node")
    for victims in killed:
        control_socket.ask(run.directory, f"fault kill {victims} for 500ms")
        run.wait_for(f"connected {CLIENTS}/{CLIENTS}", after=f"kill {victims}: ")
    children += run.children()
    control_socket.ask(run.directory, "end stage")
    # A phase with so many faults may end before its backlog is gone, which fails the run.
    assert run.finish() in {0, 1}, run.stderr
    result = run.result()
    thresholds = result["verdict"]["thresholds"]
    assert [each["passed"] for each in thresholds] == [True] * 3, result["verdict"]
    gone(children)
    nodes = [(node["host"], node["died"]) for node in result["brokers"]]
    assert nodes == [("127.0.0.1", False), ("127.0.0.2", False)]
    for stage in result["stages"]:
        if stage["name"] in {"before", "after"}:
            for name, copies in (("clean", 1), ("persistent", 1), ("backend", 2)):
                received = stage["populations"][name]["received_total"]
                assert received >= copies * 2 * 5 * PAIRS
    assert [fault["name"] for fault in result["faults"]] == [f"kill {each}" for each in killed]
    for fault in result["faults"]:
        assert fault["repaired_at_s"] is not None
        assert fault["clients"]["all_s"] is not None
