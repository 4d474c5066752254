"""Sparkplug B in a scenario: clients that are edge nodes with devices, or host applications. The
keys become topics, subscriptions and the will of clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from pubstorm.contract.protocol import (
    PlannedWill,
    SparkplugHost,
    SparkplugNode,
    SparkplugPayload,
)
from pubstorm.contract.template import NUMBERED_BYTES, Template, VariableKind
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import ClientText, PositiveDuration, Share, SmallCount

NAMESPACE = "spBv1.0"
"""First level of all topics."""
OF_NODES = ("NBIRTH", "NDATA", "NDEATH")
OF_DEVICES = ("DBIRTH", "DDATA", "DDEATH")
RESERVED = frozenset("/+#")
"""Characters that no identifier has."""
OF_ALL = frozenset({"session", "will", "flapping", "subscriptions", "publications", "qos"})
"""Keys that all clients of a population with Sparkplug have alike."""
DIFFERING = (VariableKind.NUMBER, VariableKind.ROW)
"""Variables whose values differ from client to client."""
GIVEN = ("topic", "payload", "data", "replay", "request", "retain", "qos")
"""Keys of publications that Sparkplug decides."""


class Sparkplug(Part):
    """The part of clients in Sparkplug B. With `host` they are host applications, otherwise edge
    nodes of a `group`."""

    group: ClientText | None = None
    """Identifier of the group of an edge node. For hosts: the group whose nodes they follow.
    Default: those of all groups."""
    node: ClientText = "node-{n}"
    """Identifier of an edge node."""
    devices: SmallCount | None = None
    """Devices of each edge node. Each message is the data of the next device. Default: none, and
    the metrics are those of the node."""
    metrics: SmallCount = 10
    """Metrics of each device, or of the edge node: all are in its birth."""
    changed: Share = 0.2
    """Part of the metrics in each message of data, at least one."""
    device_deaths: Share = 0
    """Part of the times that a node sends data after which the device of the last message dies,
    while the node lives. It is born again before the node sends data again. Default: no device."""
    host: ClientText | None = None
    """Identifier of a host application, which follows the sequence of every edge node."""
    ask_again: PositiveDuration = 5 * SECOND_NS
    """Time after which a host asks an edge node again for births that have not come."""

    def rules(self) -> Iterator[Finding]:
        """Yields keys of nodes and hosts together, and identifiers that no topic can have."""
        written = self.model_fields_set
        of_nodes = sorted(written & {"node", "devices", "metrics", "changed", "device_deaths"})
        if self.host is not None and of_nodes:
            message = f"found {of_nodes[0]} with host, allowed is one of them"
            yield (of_nodes[0],), message, "edge nodes and hosts are populations of their own"
        if self.host is None and self.group is None:
            hint = "write group: NAME for edge nodes, or host: NAME for a host application"
            yield (), "found neither group nor host, needed is one of them", hint
        if self.host is None and "ask_again" in written:
            yield ("ask_again",), "found ask_again without host, needed are both", None
        if self.device_deaths and self.devices is None and self.host is None:
            message = "found device_deaths without devices, needed are both"
            yield ("device_deaths",), message, "write devices: 3 for edge nodes with devices"
        for key in ("group", "node", "host"):
            found = getattr(self, key)
            if found is not None and (not found or RESERVED & set(found)):
                message = f"found {found!r}, allowed are texts without /, + and #"
                yield (key,), message, "an identifier is one level of a topic"

    def _topic(self, kind: str, *levels: str) -> str:
        return "/".join((NAMESPACE, self.group or "+", kind, *levels))

    @property
    def _device_ids(self) -> str | None:
        """Template of the identifiers of the devices of a node; None without devices."""
        if self.devices is None:
            return None
        return "device-1" if self.devices == 1 else f"device-{{1..{self.devices}}}"

    @property
    def data_topic(self) -> str:
        """Topic of the data of an edge node or its devices."""
        devices = self._device_ids
        if devices is None:
            return self._topic("NDATA", self.node)
        return self._topic("DDATA", self.node, devices)

    @property
    def filters(self) -> Iterator[dict[str, Any]]:
        """Yields the subscriptions that specification and role prescribe."""
        if self.host is None:
            yield {"topic": self._topic("NCMD", self.node), "qos": 1}
            return
        yield {"topic": f"{NAMESPACE}/STATE/{self.host}", "qos": 1}
        yield from ({"topic": self._topic(kind, "+"), "qos": 1} for kind in OF_NODES)
        yield from ({"topic": self._topic(kind, "+", "+"), "qos": 1} for kind in OF_DEVICES)

    def with_topics(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        """Returns the keys of a population with the topics and subscriptions of its role."""
        subscriptions = values.get("subscriptions") or ()
        publications = values.get("publications") or ()
        expanded = dict(values)
        if isinstance(subscriptions, (list, tuple)):
            expanded["subscriptions"] = [*subscriptions, *self.filters]
        if isinstance(publications, (list, tuple)) and self.host is None:
            topic = {"topic": self.data_topic}
            expanded["publications"] = [
                {**topic, **each} if isinstance(each, Mapping) else each for each in publications
            ]
        return expanded

    @property
    def will(self) -> PlannedWill | None:
        """The death of an edge node, whose payload the engine makes; None for hosts, whose state
        is no message of the ledger."""
        if self.host is not None:
            return None
        topic = self._topic("NDEATH", self.node)
        return PlannedWill(topic=topic, payload="", qos=1, retain=False)

    @property
    def planned(self) -> SparkplugNode | SparkplugHost:
        """The part of the clients as the plan has it."""
        if self.host is not None:
            return SparkplugHost(host=self.host, ask_again_ns=self.ask_again)
        return SparkplugNode(
            group=self.group or "",
            node=self.node,
            devices=self._device_ids,
            metrics=self.metrics,
            device_deaths=self.device_deaths,
        )

    @property
    def payload(self) -> SparkplugPayload | None:
        """The data of an edge node or its devices; None for hosts."""
        if self.host is not None:
            return None
        changed = max(1, round(self.metrics * self.changed))
        alias_bytes = _varint_bytes(max(1, self.devices or 1) * self.metrics)
        metric_bytes = METRIC_BYTES + alias_bytes
        return SparkplugPayload(
            metrics=self.metrics,
            changed=changed,
            max_bytes=FRAME_BYTES + NUMBERED_BYTES + changed * metric_bytes,
        )

    def conflicts(self, clients: SparkplugClients) -> Iterator[Finding]:
        """Yields keys of the population that do not go with Sparkplug."""
        for key in ("will", "session_expiry", "flapping", "takes_over", "responds"):
            if getattr(clients, key) is not None:
                yield (key,), f"found {key} with sparkplug, allowed is one of them", None
        if clients.session != "clean":
            hint = "an edge node is born anew with each connection"
            yield ("session",), "found a persistent session, allowed is clean with sparkplug", hint
        key, identifier = ("node", self.node) if self.host is None else ("host", self.host)
        if clients.clients > 1 and not Template.parse(identifier).has(*DIFFERING):
            message = f"found the identifier {identifier} of {clients.clients} clients"
            yield ("sparkplug", key), f"{message}, allowed is one each", "use {n}"
        if self.host is not None and clients.publications:
            message = "found publications of a host, allowed are those of edge nodes"
            yield ("publications",), message, None
        for place, publication in enumerate(clients.publications if self.host is None else ()):
            for given in self._given(publication):
                message = f"found {given} with sparkplug, allowed is a rate alone"
                hint = "topics, payloads and QoS are those of Sparkplug B"
                yield ("publications", place, given), message, hint
        for name, share in clients.shares.items():
            for own in sorted(OF_ALL & share.model_fields_set):
                message = f"found {own} in a share of sparkplug, allowed are other keys"
                yield ("shares", name, own), message, None

    def _given(self, publication: Part) -> Iterator[str]:
        """Yields the keys of a publication that Sparkplug decides."""
        for key in GIVEN:
            value = getattr(publication, key)
            is_decided = key == "topic" and value == self.data_topic
            if key in publication.model_fields_set and value and not is_decided:
                yield key


class SparkplugClients(Protocol):
    """Clients of MQTT, as far as the keys of Sparkplug depend on them."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    @property
    def session(self) -> str:
        """Kind of the session."""

    @property
    def publications(self) -> Sequence[Part]:
        """Publications of each client."""

    @property
    def shares(self) -> Mapping[str, Part]:
        """Shares, by name."""


def expanded(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Returns the keys of a population with the topics and subscriptions of its part in Sparkplug,
    if it has one. The problems of the key itself are found where it is read."""
    if not isinstance(values.get("sparkplug"), Mapping):
        return values
    try:
        own = Sparkplug.model_validate(values["sparkplug"])
    except ValidationError:
        return values
    return values if own.group is None and own.host is None else own.with_topics(values)


TIMESTAMP_BYTES = 1 + 6
"""Key and milliseconds since 1970, up to the year 2109."""
METRIC_BYTES = 2 + 1 + TIMESTAMP_BYTES + 9
"""Key and length of a metric, key of its alias, its timestamp, and a double with its key."""
FRAME_BYTES = TIMESTAMP_BYTES + 3 + 2
"""Timestamp, sequence number, and key and length of the body of a payload."""


def _varint_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))
