"""Abilities of protocols and schemes of addresses, as data: checks, defaults and reports ask them
instead of a protocol's name. `crates/plan/src/model/capabilities.rs` has abilities for agents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pubstorm.contract import U16_MAX

MqttVersion = Literal["3.1", "3.1.1", "5"]
MqttName = Literal["mqtt-3.1", "mqtt-3.1.1", "mqtt-5"]
MQTT_NAMES: Mapping[MqttVersion, MqttName] = {
    "3.1": "mqtt-3.1",
    "3.1.1": "mqtt-3.1.1",
    "5": "mqtt-5",
}
ProtocolName = MqttName | Literal["zmtp-3.1", "nats", "kafka", "amqp", "amqp1"]
"""Protocol and version, as results and reports name them."""


@dataclass(frozen=True, slots=True)
class Names:
    """Grammar of the names of messages, and of filters: levels between separators."""

    separator: str
    """Character between two levels."""
    one: str
    """Wildcard of one level."""
    rest: str
    """Wildcard of the further levels, at the end of a filter."""

    def twin(self, text: str) -> str:
        """Returns the name or filter of a plan in the words of MQTT."""
        return self.translated(text)

    def flow(self, topic: str) -> Mapping[str, str]:
        """Returns the keys of a flow in a scenario, from a topic or filter of MQTT."""
        return {"topic": self.translated(topic)}

    def translated(self, text: str) -> str:
        """Returns a topic or filter of MQTT in this grammar, and one of this grammar as MQTT has
        it. Variables stay as they are."""
        to_topic = {self.separator: "/", self.one: "+", self.rest: "+/#"}
        exchanged = str.maketrans({**to_topic, "/": self.separator, "+": self.one, "#": self.rest})
        parts = re.split(r"(\{[^{}]*\})", text)
        return "".join(p if p.startswith("{") else p.translate(exchanged) for p in parts)


class RoutingNames(Names):
    """Names of AMQP in a plan: virtual host, exchange and routing key. RabbitMQ gives messages of
    MQTT to the exchange `amq.topic` of the virtual host `/`, which is an empty level."""

    HOME = re.compile(r"[*]?/amq\.topic/")

    def flow(self, topic: str) -> Mapping[str, str]:
        """Returns the keys of a flow in a scenario, from a topic or filter of MQTT."""
        return {"exchange": "amq.topic", "key": self.translated(topic)}

    def twin(self, text: str) -> str:
        """Returns the name or filter of a plan in the words of MQTT. In other exchanges it begins
        with virtual host and exchange, so that it is no topic of MQTT's clients."""
        host, exchange, key = text.split("/", 2)
        home = "" if self.HOME.match(text) else f"{host}/{exchange}/"
        return home + self.translated(key)


class AddressNames(Names):
    """Addresses of AMQP 1.0, whose grammar the broker chooses: most have dots between words, and
    the wildcards `*` and `#`."""

    def twin(self, text: str) -> str:
        """Returns the name or filter of a plan in the words of MQTT. It begins with a level that no
        topic has: which address a message of MQTT gets depends on the broker."""
        return f"\n/{self.translated(text)}"


TOPICS = Names("/", "+", "#")
"""Topics of MQTT."""
SUBJECTS = Names(".", "*", ">")
"""Subjects of NATS."""
WORDS = Names("\n", "\n", "\n")
"""Topics of Kafka, which have one level: no name has the separator."""
ROUTING = RoutingNames(".", "*", "#")
"""Routing keys of AMQP, in exchanges of virtual hosts."""
ADDRESSES = AddressNames(".", "*", "#")
"""Addresses of AMQP 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Abilities of a protocol, and of what its clients connect to. Checks, defaults and reports
    read them, and name no protocol."""

    title: str
    """Name of the protocol, whatever its version."""
    scheme: str
    """Beginning of an address of what its clients connect to."""
    under_tls: str | None
    """Words of a scenario that ask for TLS; None: the protocol has none."""
    welcome: str
    """Name of the answer that accepts a client."""
    has_broker: bool
    """True if clients connect to a broker; False: to the publishers themselves."""
    keeps_state: bool
    """True if a broker can keep messages and sessions beyond a run."""
    answers_filters: bool
    """True if each filter of a subscription is granted or refused."""
    has_qos: bool
    """True if scenarios give messages a QoS."""
    refuses_messages: bool
    """True if the acknowledgement of a message can refuse it."""
    has_properties: bool
    """True if messages carry properties beside the payload, such as a stamp."""
    has_queues: bool
    """True if a broker keeps deliveries in memory until clients acknowledge them."""
    names: Names | None
    """Grammar of topics and filters; None: a filter is the beginning of a topic."""
    text_bytes_max: int | None
    """Longest topic, filter or identifier; None: any length."""
    login_bytes_max: int
    """Longest user name and password."""
    session_bytes: int = 0
    """Memory that the session of an idle client takes in its agent beyond one of MQTT, measured as
    `amqp-state` and `nats-state` of the benches."""


MQTT = Capabilities(
    title="MQTT",
    scheme="mqtt://",
    under_tls="mqtts://",
    welcome="CONNACK",
    has_broker=True,
    keeps_state=True,
    answers_filters=True,
    has_qos=True,
    refuses_messages=False,
    has_properties=False,
    has_queues=False,
    names=TOPICS,
    text_bytes_max=U16_MAX,
    login_bytes_max=U16_MAX,
)
CAPABILITIES: Mapping[ProtocolName, Capabilities] = {
    "mqtt-3.1": MQTT,
    "mqtt-3.1.1": MQTT,
    "mqtt-5": replace(MQTT, refuses_messages=True, has_properties=True),
    "zmtp-3.1": Capabilities(
        title="ZeroMQ",
        scheme="zmq://",
        under_tls=None,
        welcome="READY",
        has_broker=False,
        keeps_state=False,
        answers_filters=False,
        has_qos=False,
        refuses_messages=False,
        has_properties=False,
        has_queues=False,
        names=None,
        text_bytes_max=None,
        login_bytes_max=255,  # [24/ZMTP-PLAIN]
    ),
    "nats": Capabilities(
        title="NATS",
        scheme="nats://",
        under_tls="natss://",
        welcome="PONG",
        has_broker=True,
        keeps_state=False,
        answers_filters=True,
        has_qos=False,
        refuses_messages=True,
        has_properties=False,
        has_queues=False,
        names=SUBJECTS,
        text_bytes_max=U16_MAX,
        login_bytes_max=U16_MAX,
        session_bytes=450,
    ),
    "kafka": Capabilities(
        title="Kafka",
        scheme="kafka://",
        under_tls="settings: {security.protocol: ssl}",
        welcome="an answer",
        has_broker=True,
        keeps_state=False,
        answers_filters=True,
        has_qos=False,
        refuses_messages=False,
        has_properties=False,
        has_queues=False,
        names=WORDS,
        text_bytes_max=249,
        login_bytes_max=U16_MAX,
    ),
    "amqp": Capabilities(
        title="AMQP",
        scheme="amqp://",
        under_tls="amqps://",
        welcome="Connection.OpenOk",
        has_broker=True,
        keeps_state=False,
        answers_filters=True,
        has_qos=False,
        refuses_messages=True,
        has_properties=False,
        has_queues=True,
        names=ROUTING,
        text_bytes_max=U16_MAX,
        login_bytes_max=U16_MAX,
        session_bytes=520,
    ),
    "amqp1": Capabilities(
        title="AMQP 1.0",
        scheme="amqp1://",
        under_tls="amqp1s://",
        welcome="Open",
        has_broker=True,
        keeps_state=False,
        answers_filters=True,
        has_qos=False,
        refuses_messages=False,
        has_properties=False,
        has_queues=False,
        names=ADDRESSES,
        text_bytes_max=U16_MAX,
        login_bytes_max=U16_MAX,
    ),
}

DEFAULT_TLS_PORT = 8883
QUIC = "quic"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressScheme:
    """Addresses that begin alike."""

    title: str
    """Protocol of the clients there."""
    name: str
    can: Capabilities
    """Abilities of the protocol."""
    port: int | None
    """Port of an address without one; None: such an address is wrong."""
    tls_port: int | None = None
    """The same under TLS, whose scheme has an s at its end; None: there is no such scheme."""
    always_tls: bool = False
    """True if connections are always under TLS."""
    path: str | None = None
    """Name of the path of an address; None: it has none."""

    @property
    def form(self) -> str:
        """Its addresses, with brackets around parts that can be left out."""
        tls = "" if self.tls_port is None else "[s]"
        port = ":PORT" if self.port is None else "[:PORT]"
        path = "" if self.path is None else f"[/{self.path}]"
        return f"{self.name}{tls}://HOST{port}{path}"

    @property
    def names(self) -> tuple[str, ...]:
        """The scheme, and the one under TLS if there is one."""
        return (self.name,) if self.tls_port is None else (self.name, f"{self.name}s")

    @property
    def in_words(self) -> str:
        """The protocol, and the beginnings of its addresses."""
        return f"{self.title} ({', under TLS '.join(f'{name}://' for name in self.names)})"


SCHEMES = (
    AddressScheme(title="MQTT", name="mqtt", can=MQTT, port=1883, tls_port=DEFAULT_TLS_PORT),
    AddressScheme(
        title="MQTT over WebSocket", name="ws", can=MQTT, port=80, tls_port=443, path="PATH"
    ),
    # The port of EMQX; MQTT over QUIC has no registered one.
    AddressScheme(title="MQTT over QUIC", name=QUIC, can=MQTT, port=14567, always_tls=True),
    AddressScheme(title="NATS", name="nats", can=CAPABILITIES["nats"], port=4222, tls_port=4222),
    AddressScheme(title="Kafka", name="kafka", can=CAPABILITIES["kafka"], port=9092),
    AddressScheme(
        title="AMQP 0-9-1",
        name="amqp",
        can=CAPABILITIES["amqp"],
        port=5672,
        tls_port=5671,
        path="VHOST",
    ),
    AddressScheme(
        title="AMQP 1.0", name="amqp1", can=CAPABILITIES["amqp1"], port=5672, tls_port=5671
    ),
    AddressScheme(title="ZeroMQ", name="zmq", can=CAPABILITIES["zmtp-3.1"], port=None),
)
BY_NAME: Mapping[str, AddressScheme] = {name: scheme for scheme in SCHEMES for name in scheme.names}
"""Schemes by the beginning of an address, with that under TLS."""
UNDER_TLS = frozenset(
    name for name, scheme in BY_NAME.items() if scheme.always_tls or name != scheme.name
)
"""Beginnings of addresses whose connections are under TLS."""


def forms(*, of_brokers: bool = False) -> str:
    """Returns all forms of addresses; `of_brokers`: only those of brokers."""
    found = [each.form for each in SCHEMES if each.can.has_broker or not of_brokers]
    return f"{', '.join(found[:-1])} or {found[-1]}"
