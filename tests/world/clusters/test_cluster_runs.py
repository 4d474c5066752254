"""A run against two nodes of RabbitMQ as one cluster: every message crosses it, nothing is lost,
and a node that a fault kills comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pubstorm.topology.adapters.rabbitmq import find_rabbitmq

pytestmark = [
    pytest.mark.xdist_group("heavy"),
    pytest.mark.skipif(find_rabbitmq() is None, reason="rabbitmq-server is not installed"),
]

PAIRS = 20
SCENARIO = """\
topology:
  brokers: {node: {kind: rabbitmq, count: 2, cluster: true, passwords: true}}
populations:
  clean:
    clients: 20
    at: {brokers: node, shift: 1}
    reconnect: {after: 200ms, up_to: 400ms}
    subscriptions: [{topic: "to/{n}", qos: 1}]
  persistent:
    clients: 20
    at: {brokers: node, shift: 1}
    session: persistent
    reconnect: {after: 200ms, up_to: 400ms}
    subscriptions: [{topic: "to/{n}", qos: 1}]
  backend: {clients: 2, at: node, reconnect: {after: 200ms}, subscriptions: [{topic: to/#, qos: 1}]}
  device:
    clients: 20
    at: node
    username: "device-{n}"
    password: "secret of {n}"
    reconnect: {after: 200ms, up_to: 400ms}
    publications: [{topic: "to/{n}", rate: 5/s, qos: 1}]
stages:
  - connect
  - publish: {name: before, for: 3s}
  - publish: {name: broken, for: 25s, faults: [{at: 1s, kill: node-0, for: 500ms}]}
  - publish: {name: after, for: 3s}
  - disconnect
snapshot_interval: 250ms
monitors: {host: false}
"""


@pytest.mark.slow("three nodes of RabbitMQ start, one is killed and joins again")
def test_nothing_is_lost_across_a_cluster_and_a_killed_node_comes_back(
    run: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    thresholds = "[lost@before == 0, lost@after == 0, node.balance < 150%]"
    code, result = run(SCENARIO, "--set", f"thresholds={thresholds}")
    assert code == 0, result["verdict"]
    sent = 3 * 5 * PAIRS
    for stage in result["stages"]:
        if stage["name"] in {"before", "after"}:
            for name, copies in (("clean", 1), ("persistent", 1), ("backend", 2)):
                assert stage["populations"][name]["received_total"] >= copies * sent
    (fault,) = result["faults"]
    assert fault["repaired_at_s"] is not None
    assert fault["clients"]["all_s"] is not None
