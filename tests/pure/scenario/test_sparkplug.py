"""Edge nodes and hosts of Sparkplug B from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.contract.protocol import Mqtt, SparkplugHost, SparkplugNode, SparkplugPayload
from tests.pure.scenario.bases import SPARKPLUG, plan_of

PLANT = "populations.plant.sparkplug"


@pytest.mark.parametrize(
    ("written", "devices", "topic"),
    [
        ("{group: g}", None, "spBv1.0/g/NDATA/node-{n}"),
        ("{group: g, devices: 1}", "device-1", "spBv1.0/g/DDATA/node-{n}/device-1"),
        (
            '{group: g, devices: 3, node: "box-{n}"}',
            "device-{1..3}",
            "spBv1.0/g/DDATA/box-{n}/device-{1..3}",
        ),
    ],
)
def test_data_are_those_of_devices_or_of_a_node_without_any(
    written: str, devices: str | None, topic: str
) -> None:
    plant, _ = plan_of(SPARKPLUG, f"{PLANT}={written}").populations
    (publication,) = plant.publications
    assert (publication.topic, publication.qos, publication.retain) == (topic, 0, False)
    assert isinstance(plant.protocol, Mqtt) and plant.protocol.will is not None
    node = plant.protocol.sparkplug
    assert isinstance(node, SparkplugNode) and node.devices == devices
    assert plant.protocol.will.topic == f"spBv1.0/g/NDEATH/{node.node}"
    assert [s.filter for s in plant.subscriptions] == [f"spBv1.0/g/NCMD/{node.node}"]


@pytest.mark.parametrize(
    ("keys", "metrics", "changed"),
    [("", 10, 2), (", metrics: 3, changed: 0%", 3, 1), (", metrics: 40, changed: 100%", 40, 40)],
)
def test_at_least_one_metric_changes(keys: str, metrics: int, changed: int) -> None:
    plant, _ = plan_of(SPARKPLUG, f"{PLANT}={{group: g{keys}}}").populations
    payload = plant.publications[0].payload
    assert isinstance(payload, SparkplugPayload)
    assert (payload.metrics, payload.changed) == (metrics, changed)


def test_a_host_subscribes_to_the_messages_of_nodes_and_to_its_own_state() -> None:
    for keys, group in (("", "+"), (", group: g", "g")):
        change = f"populations.scada.sparkplug={{host: scada{keys}}}"
        _, host = plan_of(SPARKPLUG, change).populations
        own, *others = [each.filter for each in host.subscriptions]
        assert own == "spBv1.0/STATE/scada"
        assert {each.split("/")[1] for each in others} == {group}
        kinds = ["NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH"]
        assert [each.split("/")[2] for each in others] == kinds
        assert isinstance(host.protocol, Mqtt) and host.protocol.will is None
        planned = SparkplugHost(host="scada", ask_again_ns=5_000_000_000)
        assert host.protocol.sparkplug == planned
