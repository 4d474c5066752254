"""The model of a population that a plan holds, field by field as `crates/plan/src/model` has it:
protocols with their capabilities, properties, and flows with their schedules and payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from pubstorm.contract import U16_MAX, U32, U32_MAX, U62, Frozen, PositiveU62, Template
from pubstorm.contract.amqp import Amqp1Protocol, AmqpProtocol
from pubstorm.contract.capabilities import (
    MQTT_NAMES,
    MqttVersion,
    ProtocolName,
)
from pubstorm.contract.template import STAMP_BYTES
from pubstorm.errors import REDACTED

REPLICAS_MAX = 5
"""Largest number of servers that store a message of JetStream."""
IDENTIFIER_MAX = 268_435_455
"""Largest subscription identifier of MQTT 5."""

QoS = Annotated[int, Field(ge=0, le=2)]
METRICS_MAX = 100_000
"""Largest number of metrics of an edge node or a device of Sparkplug."""
SCRAM = "SCRAM-SHA-256"
"""Method of enhanced authentication that the engine plays."""
Player = Literal["engine", "libzmq", "pyzmq", "librdkafka", "proton", "command"]
PLAYERS: Mapping[str, Player] = {"kafka": "librdkafka", "amqp1": "proton"}
"""Libraries that play the clients of protocols, by protocol; the engine plays those of others."""


class Property(Frozen):
    """A property of a packet of MQTT 5."""

    name: str
    """Name in the standard, in small letters with `_` for a space."""
    key: str | None = None
    """Name of a user property; null for other properties."""
    value: U32 | Template
    """A number, or the template of a string or of binary data."""


class PlannedWill(Frozen):
    """Message the broker sends when a client dies."""

    topic: Template
    """Template of the topic."""
    payload: Template
    """Template of the payload."""
    qos: QoS
    """QoS 0, 1 or 2."""
    retain: bool
    """True if the broker keeps it."""
    properties: tuple[Property, ...] = ()
    """Properties of the message."""


class PlannedAuthentication(Frozen):
    """Enhanced authentication of MQTT 5."""

    method: str
    """Name of the method."""
    data: Template | None = None
    """Template of the data in CONNECT. Null: the method is SCRAM-SHA-256, with user name and
    password of the population, which CONNECT then does not have."""


class SparkplugNode(Frozen):
    """Edge nodes of Sparkplug B, each with the same devices. The will is the death of a node; the
    engine makes its payload anew for each connection."""

    role: Literal["node"] = "node"
    group: Template
    """Template of the group's identifier."""
    node: Template
    """Template of a node's identifier."""
    devices: Template | None = None
    """Template of the devices' identifiers: a device for each value of its range; null: no devices,
    and the metrics are the node's own."""
    metrics: Annotated[int, Field(ge=1, le=METRICS_MAX)]
    """Metrics in the birth of each device, or of the node."""
    device_deaths: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Part of the writes of data after which the last device dies, until the next write."""


class SparkplugHost(Frozen):
    """Host applications of Sparkplug B, which follow the sequence of every node."""

    role: Literal["host"] = "host"
    host: Template
    """Template of a host's identifier."""
    ask_again_ns: PositiveU62
    """Time after which a host asks a node again for its births, in nanoseconds."""


class Mqtt(Frozen):
    """Options of MQTT clients."""

    kind: Literal["mqtt"] = "mqtt"
    version: MqttVersion = "3.1.1"
    """Version of MQTT."""
    client_id: Template
    """Template of the client identifier."""
    clean_session: bool
    """True if each connection starts without session state."""
    bridge: bool = False
    """True if clients set the bridge bit in the protocol level. The broker does not send such a
    client the messages that it published itself."""
    will: PlannedWill | None = None
    """Message that the broker sends when the client dies."""
    properties: tuple[Property, ...] = ()
    """Properties of CONNECT."""
    authentication: PlannedAuthentication | None = None
    """Enhanced authentication."""
    sparkplug: Annotated[SparkplugNode | SparkplugHost, Field(discriminator="role")] | None = None
    """Part of the clients in Sparkplug B; null: they have none."""

    @property
    def will_delay_s(self) -> int:
        """Time from the end of a connection to the publication of its will, in seconds: the Will
        Delay Interval, or the rest of the session if that is shorter."""
        will = () if self.will is None else self.will.properties
        delay = _number(will, "will_delay_interval")
        return min(delay, _number(self.properties, "session_expiry_interval"))

    @property
    def keeps_session(self) -> bool:
        """True if the broker keeps the session of a client that is offline."""
        return not self.clean_session

    @property
    def name(self) -> ProtocolName:
        """Protocol and version, as results and reports name them."""
        return MQTT_NAMES[self.version]

    @property
    def uses_scram(self) -> bool:
        """True if clients prove that they have a password, and do not send it."""
        return self.authentication is not None and self.authentication.data is None

    def without_secrets(self) -> Mqtt:
        """Returns the same without the data of an authentication."""
        if self.authentication is None or self.authentication.data is None:
            return self
        redacted = self.authentication.model_copy(update={"data": REDACTED})
        return self.model_copy(update={"authentication": redacted})


def _number(properties: tuple[Property, ...], name: str) -> int:
    """The number of a property; 0 without it."""
    found = (each.value for each in properties if each.name == name)
    return next((value for value in found if isinstance(value, int)), 0)


class Zmtp(Frozen):
    """Options of ZeroMQ sockets, which speak ZMTP 3.1."""

    kind: Literal["zmtp"] = "zmtp"
    player: Player = "engine"
    """Program that plays the sockets: the engines, each its share; libzmq in `pubstorm-zmq`; pyzmq
    in a Python program; or any other program that speaks this contract."""
    high_water_mark: U32
    """Most messages that a publisher queues for one subscriber, and a subscriber of libzmq for
    itself, before it drops the next; 0: no limit."""
    io_threads: Annotated[int, Field(ge=1, le=U32_MAX)] = 1
    """Threads of libzmq for input and output."""
    security: Literal["null", "plain", "curve"] = "null"
    """Mechanism: none, the population's user name and password in clear, or keys that the run
    makes. The engine does not speak `curve`."""

    @property
    def keeps_session(self) -> bool:
        """False: what a subscriber missed is gone."""
        return False

    @property
    def name(self) -> ProtocolName:
        """Protocol and version, as results and reports name them."""
        return "zmtp-3.1"

    def without_secrets(self) -> Zmtp:
        """Returns the same: there are no secrets."""
        return self


class PlannedStream(Frozen):
    """A stream of JetStream."""

    name: str
    """Name."""
    subjects: tuple[str, ...]
    """Subjects whose messages the stream stores."""
    in_memory: bool
    """True if the stream is in memory; False: in files."""
    replicas: Annotated[int, Field(ge=1, le=REPLICAS_MAX)]
    """Number of servers that store each message."""


class PlannedConsumer(Frozen):
    """Durable consumers of a subscription: one for each filter of a client, or one for all members
    of a queue group. The server keeps the messages of a client that is away, and expects an
    acknowledgement of each delivery."""

    stream: str
    """Name of the stream."""
    ack_wait_ns: PositiveU62
    """Time after which the server delivers an unacknowledged message again, in nanoseconds."""


class NatsProtocol(Frozen):
    """Options of NATS clients."""

    kind: Literal["nats"] = "nats"
    client_name: Template
    """Template of the name under which the server lists a client."""
    echo: bool
    """True if the server sends a client its own messages."""
    token: Template | None = None
    """Template of the token with which clients log in."""
    seed: Template | None = None
    """Template of the seed of the nkey with which clients sign."""
    jwt: Template | None = None
    """Template of the JSON Web Token of the user with that nkey."""
    streams: tuple[PlannedStream, ...] = ()
    """Streams that each client creates, unless they exist with the same settings."""
    consumers: tuple[PlannedConsumer, ...] = ()
    """Durable consumers of the subscriptions, one for each in their order; empty: none has one."""

    @property
    def keeps_session(self) -> bool:
        """True if the server keeps durable consumers."""
        return bool(self.consumers)

    @property
    def name(self) -> Literal["nats"]:
        """Protocol, as results and reports name it."""
        return "nats"

    def without_secrets(self) -> NatsProtocol:
        """Returns the same without token, seed and JSON Web Token."""
        secret = {"token": self.token, "seed": self.seed, "jwt": self.jwt}
        given = {key: REDACTED for key, value in secret.items() if value is not None}
        return self.model_copy(update=given)


class KafkaProtocol(Frozen):
    """Options of Kafka's consumers, which a program with librdkafka plays."""

    kind: Literal["kafka"] = "kafka"
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of librdkafka, by name."""

    @property
    def keeps_session(self) -> bool:
        """False: a consumer begins at the end of its topics."""
        return False

    @property
    def name(self) -> Literal["kafka"]:
        """Protocol, as results and reports name it."""
        return "kafka"

    def without_secrets(self) -> KafkaProtocol:
        """Returns the same without the values of settings, some of which are passwords."""
        return self.model_copy(update={"settings": dict.fromkeys(self.settings, REDACTED)})


Protocol = Annotated[
    Mqtt | Zmtp | NatsProtocol | KafkaProtocol | AmqpProtocol | Amqp1Protocol,
    Field(discriminator="kind"),
]


class PlannedSubscription(Frozen):
    """One topic filter of every client of a population."""

    filter: Template
    """Template of the filter; a range `{a..b}` makes one filter for each value."""
    qos: QoS
    """Highest QoS wanted."""
    no_local: bool = False
    """True if the broker does not send a client its own messages. Only MQTT 5."""
    retain_as_published: bool = False
    """True if the broker keeps the RETAIN flag of messages that it forwards. Only MQTT 5."""
    retain_handling: Literal["send", "send_if_new", "never"] = "send"
    """Retained messages that the broker sends: all, all if the subscription is new, or none. Only
    MQTT 5."""
    identifier: Annotated[int, Field(ge=1, le=IDENTIFIER_MAX)] | None = None
    """Identifier that the broker repeats in matching messages. Only MQTT 5."""


class OpenPace(Frozen):
    """Open loop: an absolute schedule that does not wait for the broker."""

    kind: Literal["open"] = "open"
    period_ns: PositiveU62
    """Time between two messages of a client, in nanoseconds."""
    spread: Annotated[float, Field(ge=0, lt=1)]
    """A client's period differs from `period_ns` by up to this share."""
    jitter: Annotated[float, Field(ge=0, le=1)]
    """Each message moves on the schedule by up to half this share of the period."""
    phase: Literal["spread", "random", "aligned"]
    """Start of a client in its period."""
    late: Literal["send", "skip"]
    """`send`: a late message is sent late; `skip`: a late message is skipped."""
    burst: Annotated[int, Field(ge=1, le=U32_MAX)] = 1
    """Messages in a burst; the next burst follows after as many periods."""
    arrivals: Literal["even", "poisson"] = "even"
    """`even`: one message or burst in each period; `poisson`: a Poisson process, with exponential
    times between messages or bursts and the same mean."""


class ClosedPace(Frozen):
    """Closed loop: the next message is due as soon as the window and the socket take it."""

    kind: Literal["closed"] = "closed"


class FixedPayload(Frozen):
    """Every payload has this size."""

    kind: Literal["fixed"] = "fixed"
    bytes: U32
    """Size in bytes."""


class GaussianPayload(Frozen):
    """Sizes follow a normal distribution, cut at four standard deviations and at zero."""

    kind: Literal["gaussian"] = "gaussian"
    mean_bytes: U32
    """Mean in bytes."""
    sd_bytes: U32
    """Standard deviation in bytes."""


class SizeBin(Frozen):
    """A size of a histogram."""

    bytes: U32
    """Size in bytes."""
    end: PositiveU62
    """Sum of the weights up to this size, with its own; larger than that of the size before."""


class HistogramPayload(Frozen):
    """Sizes are drawn from a histogram."""

    kind: Literal["histogram"] = "histogram"
    bins: Annotated[tuple[SizeBin, ...], Field(min_length=1)]
    """Sizes, with the ends of their parts of all draws."""


class RecordsPayload(Frozen):
    """Data that was made before the run: message `k` of a client has record `k`, and again the
    first one after the last."""

    kind: Literal["records"] = "records"
    records: Annotated[tuple[str, ...], Field(min_length=1)]
    """The payloads, each in base64."""
    order: Literal["turn", "shuffled"] = "turn"
    """Order of the records: in turn, or shuffled anew for each round."""
    stamped: bool = False
    """True if a stamp of 32 bytes precedes the data in the payload."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each payload."""
        stamp = STAMP_BYTES if self.stamped else 0
        return tuple(len(r) // 4 * 3 - r.count("=", -2) + stamp for r in self.records)


class TextPayload(Frozen):
    """The user's own text. Without a stamp, in it or beside it, it has no latency and no order."""

    kind: Literal["text"] = "text"
    template: Template
    """Template of the text."""
    is_json: bool = False
    """True if the text is JSON: values from a file are escaped."""


class SparkplugPayload(Frozen):
    """Data of an edge node of Sparkplug B or of its devices, by turns over the topics. A stamp and
    the number of the message are in the body of the payload."""

    kind: Literal["sparkplug"] = "sparkplug"
    metrics: Annotated[int, Field(ge=1, le=METRICS_MAX)]
    """Metrics of the device, or of the node."""
    changed: Annotated[int, Field(ge=1, le=METRICS_MAX)]
    """Metrics in each message."""
    max_bytes: U32
    """Largest size of a payload, in bytes."""


class RecordedPayload(Frozen):
    """Recorded messages: instants, topics, and sizes or payloads. A stamp raises smaller sizes."""

    kind: Literal["recorded"] = "recorded"
    file: str
    """Path of the file of recorded messages."""
    first: U62
    """Client number `{n}` of the first recorded client."""
    clients: Annotated[int, Field(ge=1, le=U32_MAX)]
    """Number of recorded clients: client `c` plays recorded client `c % clients`."""
    mean_bytes: U32
    """Mean size in bytes."""
    max_bytes: U32
    """Largest size in bytes."""
    shift_ns: U62
    """Clients beyond the recorded ones are later by up to this time, in nanoseconds."""
    content: Literal["sizes", "beside", "front"] = "sizes"
    """Content of the payloads: a stamp and filler in the recorded sizes; or the recorded bytes,
    with the stamp in a user property of MQTT 5, or before them."""


Pace = Annotated[OpenPace | ClosedPace, Field(discriminator="kind")]
Payload = Annotated[
    FixedPayload
    | GaussianPayload
    | HistogramPayload
    | RecordsPayload
    | TextPayload
    | SparkplugPayload
    | RecordedPayload,
    Field(discriminator="kind"),
]


class PlannedPublication(Frozen):
    """One flow of messages that every client of a population sends."""

    topic: Template
    """Template of the topic; a range `{a..b}` is gone through, message by message."""
    order: Literal["turn", "shuffled"] = "turn"
    """Order of the values of a range: in turn, or shuffled anew for each round."""
    weights: tuple[Annotated[int, Field(ge=1, le=U32_MAX)], ...] = ()
    """Messages of each value of the range in a round; empty: one of each, in `order`."""
    qos: QoS
    """QoS 0, 1 or 2."""
    retain: bool
    """True if the broker keeps the last message."""
    pace: Pace
    """Schedule of the messages."""
    window: Annotated[int, Field(ge=1, le=U16_MAX)]
    """Messages of a client in flight at most (QoS 1 and 2)."""
    payload: Payload
    """Payload of a message."""
    properties: tuple[Property, ...] = ()
    """Properties of the messages. Only MQTT 5."""
    topic_alias: bool = False
    """True if a topic alias replaces a topic that the broker knows. Only MQTT 5."""
    request: bool = False
    """True if each message is a request: its correlation data holds the stamp, and answers to its
    Response Topic are round trips. Only MQTT 5."""

    @property
    def recorded(self) -> RecordedPayload | None:
        """Recorded messages that the clients play; None for other flows."""
        return self.payload if isinstance(self.payload, RecordedPayload) else None


class PlannedFlow(Frozen):
    """Messages that a program beside the brokers carries: those of one publication arrive at the
    target of other clients too, under another name."""

    population: U32
    """Index of the publishing population."""
    publication: U32
    """Index of the publication in its population."""
    to: Template
    """Template of the name with which a message arrives. Its variables are those of the publishing
    client; a range has the value that the topic has."""
    at: U32
    """Index of a population whose clients are at the target at which the messages arrive. The name
    follows the rule of its protocol."""
