"""Two nodes of RabbitMQ as one cluster: a message crosses it, a node that was killed comes back to
it, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from pubstorm.host.ports import free_port, is_free
from pubstorm.plan import provisional_plan
from pubstorm.scenario import Scenario, parse_scenario
from pubstorm.topology import Topology
from pubstorm.topology.adapters.definitions import definitions_text
from pubstorm.topology.adapters.rabbitmq import find_rabbitmq
from pubstorm.topology.broker import BrokerProcess
from pubstorm.topology.cluster import Cluster
from pubstorm.topology.credentials.keys import RunKeys

pytestmark = pytest.mark.xdist_group("heavy")

DEADLINE_S = 30.0
SCENARIO = """\
topology: {brokers: {node: {kind: rabbitmq, count: 2, cluster: true, passwords: true}}}
populations:
  app: {clients: 2, username: "user-{n}", password: secret, publications: [{topic: a, rate: 1/s}]}
"""


@pytest.fixture
def scenario() -> Scenario:
    return parse_scenario(SCENARIO, "s.yaml")


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


def test_users_of_rabbitmq_may_do_everything_and_no_password_is_shown(
    scenario: Scenario, tmp_path: Path
) -> None:
    keys, plan = RunKeys(scenario.topology, tmp_path / "keys"), provisional_plan(scenario)
    keys.make(plan)
    text = (tmp_path / "keys" / "node.passwords").read_text()
    assert "secret" not in text
    made = json.loads(text)
    names = [user["name"] for user in made["users"]]
    assert names == ["user-0", "user-1", "pubstorm-observer"]
    assert [permission["user"] for permission in made["permissions"]] == names
    assert definitions_text({"a": "b"}) != definitions_text({"a": "b"})


@pytest.mark.slow("three nodes of RabbitMQ start, and killed ones join again")
@pytest.mark.skipif(find_rabbitmq() is None, reason="rabbitmq-server is not installed")
def test_a_cluster_carries_messages_and_takes_killed_nodes_back(
    scenario: Scenario, tmp_path: Path
) -> None:
    async def run() -> None:
        topology = Topology(scenario.topology, tmp_path / "topology", lambda _: None)
        topology.keys.make(provisional_plan(scenario))
        try:
            await topology.start()
            nodes = [topology.broker(name) for name in topology.names("node")]
            process_tree = [psutil.Process(node.pid) for node in nodes]
            assert [node.host for node in nodes] == ["127.0.0.1", "127.0.0.2"]
            assert all(result.version for result in topology.results())
            await asyncio.to_thread(crosses, nodes)
            # The one that was up first leads, and the other cannot lead without it.
            for victims in ([nodes[0]], [nodes[1]], nodes):
                await kill_and_restart(topology, victims)
                await asyncio.to_thread(crosses, nodes)
            process_tree += [psutil.Process(node.pid) for node in nodes]
        finally:
            await topology.stop()
        assert not any(process.is_running() for process in process_tree)
        assert not (tmp_path / "topology" / "keys").exists()

    asyncio.run(run())


async def kill_and_restart(topology: Topology, nodes: Sequence[BrokerProcess]) -> None:
    for node in nodes:
        topology.expect(node.name, True)
        node.send(signal.SIGKILL)
        await node.ending()
    await asyncio.gather(*(node.restart() for node in nodes))
    for node in nodes:
        topology.expect(node.name, False)


def crosses(nodes: Sequence[BrokerProcess]) -> None:
    """A message of QoS 1 reaches a subscriber at each node from a publisher at the other."""
    for near, far in (nodes, nodes[::-1]):
        came: queue.Queue[MQTTMessage] = queue.Queue()
        ready: queue.Queue[object] = queue.Queue()
        receiver, sender = client(near, 0), client(far, 1)
        receiver.on_message = lambda _client, _data, message, came=came: came.put(message)
        receiver.on_subscribe = lambda *_, ready=ready: ready.put(None)
        try:
            receiver.subscribe("a/#", 1)
            ready.get(timeout=DEADLINE_S)
            sender.publish("a/b", "hello", 1).wait_for_publish(DEADLINE_S)
            assert came.get(timeout=DEADLINE_S).payload == b"hello"
        finally:
            for each in (receiver, sender):
                each.disconnect()
                each.loop_stop()


def client(node: BrokerProcess, number: int) -> Client:
    made = Client(CallbackAPIVersion.VERSION2, client_id=f"c-{number}")
    made.username_pw_set(f"user-{number}", "secret")
    made.connect(node.host, node.port)
    made.loop_start()
    return made
