"""Edge nodes and a host of Sparkplug B on mosquitto. Another client receives all messages, decodes
them with Google's library, and asks a node for its births. Each test looks at other rules of the
specification. The embedded broker is played with a host that comes late."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from paho.mqtt.enums import CallbackAPIVersion

from tests.kit.runs import Mosquitto, MosquittoMaker, Play

pytestmark = pytest.mark.xdist_group("sparkplug")

NODES, DEVICES, METRICS, BRITTLE = 6, 2, 7, 2
CHANGED = 3
BOOLEAN, INT64 = 11, 4
WITH_QOS_0 = ("NBIRTH", "DBIRTH", "DDATA", "DDEATH", "NCMD")
STAMPED = 40
"""Bytes of a stamp and a number."""
PLAYED = """
target: {url}
clean_start: skip
populations:
  plant:
    clients: 6
    sparkplug: {{group: hall, devices: 2, metrics: 7, changed: 40%, device_deaths: 10%}}
    publications: [{{rate: 60/s}}]
    shares: {{brittle: {{part: 34%, end: abort}}}}
  scada: {{clients: 1, sparkplug: {{host: scada}}}}
stages:
  - connect: {{populations: [scada]}}
  - connect: {{populations: [plant]}}
  - publish: {{name: first, for: 2s}}
  # All data has arrived: what a broker has not read is lost with a connection that is reset.
  - disconnect: {{name: deaths, populations: [plant/brittle]}}
  - connect: {{name: return, populations: [plant/brittle]}}
  - publish: {{name: second, for: 4s}}
  - disconnect: {{populations: [plant]}}
  - hold: 1s
  - disconnect
"""
LATE = """
topology: {brokers: {broker: {kind: embedded}}}
populations:
  plant:
    clients: 20
    sparkplug: {group: hall, metrics: 12}
    publications: [{rate: 10/s}]
  scada: {clients: 1, sparkplug: {host: scada}}
stages:
  - connect: {populations: [plant]}
  - connect: {populations: [scada]}
  - publish: 3s
  - disconnect
"""


def _payload_class() -> Any:
    """Returns the class of payloads, with the fields of the specification's `sparkplug_b.proto`."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="sparkplug_b.proto", package="org", syntax="proto2"
    )
    payload = file.message_type.add(name="Payload")
    metric = payload.nested_type.add(name="Metric")

    def add(to: Any, name: str, number: int, of: int, *, repeated: bool = False) -> Any:
        label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
        return to.field.add(name=name, number=number, type=of, label=label)

    for name, number, of in (
        ("name", 1, kind.TYPE_STRING),
        ("alias", 2, kind.TYPE_UINT64),
        ("timestamp", 3, kind.TYPE_UINT64),
        ("datatype", 4, kind.TYPE_UINT32),
        ("is_null", 7, kind.TYPE_BOOL),
        ("int_value", 10, kind.TYPE_UINT32),
        ("long_value", 11, kind.TYPE_UINT64),
        ("float_value", 12, kind.TYPE_FLOAT),
        ("double_value", 13, kind.TYPE_DOUBLE),
        ("boolean_value", 14, kind.TYPE_BOOL),
        ("string_value", 15, kind.TYPE_STRING),
    ):
        add(metric, name, number, of)
    add(payload, "timestamp", 1, kind.TYPE_UINT64)
    metrics = add(payload, "metrics", 2, kind.TYPE_MESSAGE, repeated=True)
    metrics.type_name = ".org.Payload.Metric"
    add(payload, "seq", 3, kind.TYPE_UINT64)
    add(payload, "uuid", 4, kind.TYPE_STRING)
    add(payload, "body", 5, kind.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("org.Payload"))


PAYLOAD = _payload_class()
VALUES = ("int_value", "long_value", "float_value", "double_value", "boolean_value")


@dataclass(frozen=True)
class Message:
    """A message that another client has received."""

    kind: str
    node: str
    device: str
    qos: int
    retain: bool
    payload: Any

    def value(self, name: str) -> Any:
        """Returns the metric of a name."""
        (found,) = (metric for metric in self.payload.metrics if metric.name == name)
        return found


class Listener:
    """A client that receives everything, and asks a node for its births after some of its data."""

    def __init__(self, broker: Mosquitto) -> None:
        self.messages: list[Message] = []
        self.states: list[dict[str, Any]] = []
        self._data = 0
        self._subscribed = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="listener")
        self.client.on_message = self._take
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        self.client.subscribe("spBv1.0/#", qos=1)
        assert self._subscribed.wait(30)

    def _take(self, _client: object, _data: object, message: Any) -> None:
        _, group, kind, *rest = message.topic.split("/")
        if group == "STATE":
            self.states.append({**json.loads(message.payload), "qos": message.qos})
            return
        node, device = (*rest, "")[:2]
        assert group == "hall"
        payload = PAYLOAD.FromString(message.payload)
        self.messages.append(Message(kind, node, device, message.qos, message.retain, payload))
        self._data += (kind, node) == ("DDATA", "node-0")
        if self._data == 100 and kind == "DDATA" and node == "node-0":
            asked = PAYLOAD(timestamp=1)
            asked.metrics.add(name="Node Control/Rebirth", datatype=BOOLEAN, boolean_value=True)
            self.client.publish("spBv1.0/hall/NCMD/node-0", asked.SerializeToString(), qos=0)

    def of(self, *kinds: str) -> list[Message]:
        """Returns the messages of some types."""
        return [each for each in self.messages if each.kind in kinds]


@dataclass(frozen=True)
class Played:
    """The run, and what another client received."""

    result: dict[str, Any]
    seen: Listener

    def host(self, name: str) -> Any:
        """Returns a figure of the host."""
        return self.result["populations"]["scada"][name]

    def nodes(self, name: str) -> int:
        """Returns a counter of all nodes together."""
        shares = ("plant/rest", "plant/brittle")
        return sum(self.result["populations"][share][name] for share in shares)


@pytest.fixture(scope="module")
def played(shared_run: Play, shared_mosquitto: MosquittoMaker) -> Iterator[Played]:
    broker = shared_mosquitto()
    listener = Listener(broker)
    code, result = shared_run(PLAYED.format(url=broker.url))
    assert code == 0, result["verdict"]
    listener.client.disconnect()
    listener.client.loop_stop()
    yield Played(result, listener)


def test_births_and_data_of_a_node_have_one_sequence(played: Played) -> None:
    last: dict[str, int] = {}
    born: dict[str, set[str]] = defaultdict(set)
    for each in played.seen.of("NBIRTH", "DBIRTH", "DDEATH", "DDATA"):
        expected = 0 if each.kind == "NBIRTH" else (last[each.node] + 1) % 256
        assert each.payload.seq == expected, each
        last[each.node] = each.payload.seq
        if each.kind == "NBIRTH":
            born[each.node] = set()
        elif each.kind == "DBIRTH":
            born[each.node].add(each.device)
        elif each.kind == "DDEATH":
            born[each.node].remove(each.device)
        assert each.kind != "DDATA" or len(born[each.node]) == DEVICES, "births come first"
    longest = max(sum(m.node == node for m in played.seen.of("DDATA")) for node in last)
    assert len(last) == NODES and longest > 256, "the sequence began again"


def test_all_but_deaths_has_qos_0_and_nothing_is_retained(played: Played) -> None:
    assert {each.qos for each in played.seen.of(*WITH_QOS_0)} == {0}
    by_broker = {(each.qos, bool(each.payload.body)) for each in played.seen.of("NDEATH")}
    assert by_broker == {(1, False), (0, True)}, "wills have QoS 1"
    assert not any(each.retain for each in played.seen.messages)


def test_births_name_their_metrics_once_and_data_have_the_aliases(played: Played) -> None:
    aliases: dict[tuple[str, str], dict[int, int]] = {}
    for birth in played.seen.of("DBIRTH"):
        own = {metric.alias: metric.datatype for metric in birth.payload.metrics}
        assert len(own) == len({m.name for m in birth.payload.metrics}) == METRICS
        aliases[birth.node, birth.device] = own
    of_node = [aliases["node-0", f"device-{place}"] for place in (1, 2)]
    assert not of_node[0].keys() & of_node[1].keys()
    changed: set[int] = set()
    for data in played.seen.of("DDATA"):
        assert len(data.payload.metrics) == CHANGED and len(data.payload.body) == STAMPED
        assert data.payload.ByteSize() <= 13 + STAMPED + CHANGED * 20
        for metric in data.payload.metrics:
            assert metric.alias in aliases[data.node, data.device]
            assert metric.timestamp > 10**12
            assert not metric.HasField("name") and not metric.HasField("datatype")
            assert sum(metric.HasField(value) for value in VALUES) == 1
            changed.add(metric.alias)
    assert changed >= of_node[0].keys(), "each metric changes"


def test_the_birth_of_a_node_has_its_connection_and_a_command(played: Played) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for birth in played.seen.of("NBIRTH"):
        rebirth, number = birth.value("Node Control/Rebirth"), birth.value("bdSeq")
        assert (rebirth.datatype, rebirth.boolean_value) == (BOOLEAN, False)
        assert not rebirth.HasField("alias") and number.datatype == INT64
        assert birth.payload.timestamp > 10**12
        numbers[birth.node].append(number.long_value)
    brittle = {f"node-{n}": [0, 1] for n in range(NODES - BRITTLE, NODES)}
    calm = {f"node-{n}": [0] for n in range(1, NODES - BRITTLE)}
    assert numbers == {"node-0": [0, 0], **calm, **brittle}


def test_each_connection_ends_with_a_death_of_its_number(played: Played) -> None:
    deaths: dict[str, list[int]] = defaultdict(list)
    for death in played.seen.of("NDEATH"):
        (metric,) = death.payload.metrics
        assert (metric.name, metric.datatype) == ("bdSeq", INT64)
        assert not death.payload.HasField("seq")
        deaths[death.node].append(metric.long_value)
    brittle = {f"node-{n}": [0, 1] for n in range(NODES - BRITTLE, NODES)}
    calm = {f"node-{n}": [0] for n in range(NODES - BRITTLE)}
    assert deaths == {**calm, **brittle}


def test_devices_die_while_their_nodes_live_and_are_born_again(played: Played) -> None:
    deaths = played.seen.of("DDEATH")
    # A node that was late sends several messages at a time.
    times = len({(each.node, each.payload.timestamp) for each in played.seen.of("DDATA")})
    assert times * 0.05 < len(deaths) < times * 0.15, "a tenth"
    for death in deaths:
        fields = {field.name for field, _ in death.payload.ListFields()}
        assert fields == {"timestamp", "seq"} and death.payload.timestamp > 10**12
    last: dict[tuple[str, str], str] = {}
    for each in played.seen.of("DBIRTH", "DDEATH"):
        kinds = (last.get((each.node, each.device)), each.kind)
        assert each.kind == "DBIRTH" or kinds == ("DBIRTH", "DDEATH"), "a device dies once"
        last[each.node, each.device] = each.kind
    again = played.nodes("births_total") - (1 + DEVICES) * len(played.seen.of("NBIRTH"))
    # A device is dead until its node sends data, or is born again.
    assert 0 < again <= len(deaths)


def test_a_host_says_that_it_is_online_and_then_once_that_it_is_not(played: Played) -> None:
    assert [state["online"] for state in played.seen.states] == [True, False]
    assert all(state["timestamp"] > 10**12 and state["qos"] == 1 for state in played.seen.states)


def test_the_host_counts_what_was_sent(played: Played) -> None:
    births = len(played.seen.of("NBIRTH", "DBIRTH"))
    assert births == played.nodes("births_total") == played.host("births_received_total")
    assert played.host("deaths_received_total") == len(played.seen.of("NDEATH", "DDEATH"))
    assert (played.nodes("rebirths_total"), played.host("rebirths_asked_total")) == (1, 0)
    nothing = ("gaps_total", "hidden_gaps_total", "unborn_total", "unreadable_total", "lost_total")
    assert {played.host(name) for name in (*nothing, "foreign_total")} == {0}
    assert played.nodes("foreign_total") == 0
    wills = (played.host("wills_expected_total"), played.host("wills_received_total"))
    assert wills == (2 * BRITTLE, 2 * BRITTLE)
    data = len(played.seen.of("DDATA"))
    assert data == played.nodes("sent_total") == played.host("received_total") - 2 * BRITTLE
    assert played.host("latency_us")["intended"]["count"] == data


def test_a_host_that_comes_late_asks_each_node_for_its_births(shared_run: Play) -> None:
    code, result = shared_run(LATE)
    assert code == 0, result["verdict"]
    scada, plant = result["populations"]["scada"], result["populations"]["plant"]
    asked = ("unborn_total", "rebirths_asked_total", "rebirths_received_total")
    assert {scada[name] for name in asked} == {20}
    assert scada["rebirth_time_us"]["count"] == 20 and scada["gaps_total"] == 0
    assert plant["rebirths_total"] == 20 and plant["births_total"] == 40
