"""Kinds of populations: a class for each, whose docstrings are the reference for users. The kind of
a population follows from its keys and from what it connects to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from pubstorm.contract import U32_MAX
from pubstorm.contract.capabilities import MQTT_NAMES, ProtocolName
from pubstorm.contract.protocol import (
    Mqtt,
    PlannedAuthentication,
    PlannedWill,
    Property,
    SparkplugPayload,
    Zmtp,
)
from pubstorm.contract.target import TARGET
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.addresses import ProxyProtocol, written_schemes
from pubstorm.scenario.amqp import AmqpClients
from pubstorm.scenario.amqp1 import Amqp1Receivers
from pubstorm.scenario.base import AnyOf, Part
from pubstorm.scenario.credentials import Authentication, Headers, Tls
from pubstorm.scenario.document import At, Finding
from pubstorm.scenario.fields import (
    ClientText,
    Flag,
    HighWaterMark,
    HostLabel,
    Name,
    PacketBytes,
    PortNumber,
    QoS,
    ReceiveMaximum,
    SessionExpiry,
    SmallCount,
    Text,
    TopicAliases,
    Version,
    Words,
)
from pubstorm.scenario.flows import (
    Mqtt5,
    MqttPublication,
    MqttSubscription,
    Publication,
    Will,
    in_seconds,
    properties_of,
)
from pubstorm.scenario.kafka import KafkaConsumers
from pubstorm.scenario.nats import NatsClients
from pubstorm.scenario.populations import (
    Connecting,
    Ending,
    OptionalFlapping,
    OptionalResponds,
    Population,
    RunParts,
    ShareKeys,
    Simulated,
)
from pubstorm.scenario.sparkplug import Sparkplug, expanded

Session = Literal["clean", "persistent"]
SubscriberKind = Literal["simulated", "libzmq"]
Mechanism = Literal["null", "plain", "curve"]
DEFAULT_HIGH_WATER_MARK = 1000
"""The high-water mark of libzmq, unless it is set."""


class MqttDifference(ShareKeys):
    """Clients of a population that differ in some keys: those written here replace those of the
    population. A plain share such as `10%` changes nothing, and is measured by itself."""

    qos: QoS | None = None
    """QoS of all their publications and subscriptions."""
    session: Session | None = None
    """`clean`: the broker forgets a client that disconnects; `persistent`: it keeps the session."""
    will: Will | None = None
    """Message that the broker sends when a client dies."""
    end: Ending | None = None
    """The end of a client's connection: see `end` of a population."""
    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again, or `never`."""
    subscriptions: tuple[MqttSubscription, ...] | None = None
    """Subscriptions of each client."""
    publications: tuple[MqttPublication, ...] | None = None
    """Publications of each client in publish stages."""


class MqttClients(Simulated):
    """Clients of MQTT that behave alike, except for what its shares change."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        "will": "wills are MQTT's",
        "session": "sessions are MQTT's: what a subscriber missed is gone",
        "bridge": "bridges are MQTT's",
    }

    client_id: ClientText | None = None
    """Client identifier, different for each client; `""` lets the broker assign it. Default:
    NAME-{n}."""
    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again. Default: they stay
    subscribed."""
    takes_over: Name | None = None
    """Another population, whose client identifiers these clients use: each ends the connection of
    the client with its number."""
    version: Version = "3.1.1"
    """Version of MQTT: 3.1, 3.1.1 or 5."""
    session_expiry: Annotated[
        SessionExpiry | None, Mqtt5("session_expiry_interval", in_seconds)
    ] = None
    """MQTT 5: session expiry interval in whole seconds, or `never`. Default: `never` for persistent
    sessions, otherwise the session ends with the connection."""
    receive_maximum: Annotated[ReceiveMaximum | None, Mqtt5("receive_maximum", int)] = None
    """MQTT 5: messages of QoS 1 and 2 that the broker may have in flight to a client."""
    maximum_packet_size: Annotated[PacketBytes | None, Mqtt5("maximum_packet_size", int)] = None
    """MQTT 5: largest packet that the broker may send to a client. The broker drops larger
    messages, which count as lost."""
    topic_aliases: Annotated[TopicAliases | None, Mqtt5("topic_alias_maximum", int)] = None
    """MQTT 5: topic aliases that the broker may use."""
    user_properties: Annotated[Mapping[Text, ClientText], Mqtt5("user_property")] = Field(
        default_factory=dict
    )
    """MQTT 5: user properties of CONNECT, by name."""
    authentication: Annotated[Authentication | None, Mqtt5()] = None
    """MQTT 5: enhanced authentication, with AUTH packets."""
    bridge: Flag = False
    """Clients set the bridge bit in the protocol level, as mosquitto's bridges do. A broker that
    knows the bit sends a client nothing that the client published."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    proxy_protocol: ProxyProtocol | None = None
    """Header of the PROXY protocol, with an invented source address for each client. Default: no
    header."""
    headers: Headers = Field(default_factory=dict)
    """Headers of the request that opens a WebSocket, by name, such as `Authorization`. They are
    kept out of stored runs like passwords."""
    session: Session = "clean"
    """`clean`: the broker forgets a client that disconnects; `persistent`: it keeps the session."""
    will: Will | None = None
    """Message that the broker sends when a client dies. Subscribers of its topic are expected to
    receive it whenever a connection ends without DISCONNECT."""
    end: Ending = "disconnect"
    """The end of a client's connection by a stage, a change or its lifetime: with DISCONNECT; with
    `disconnect_with_will`, a DISCONNECT of MQTT 5 after which the broker publishes the will; with
    `abort`, a reset of the connection; with `vanish`, silence on a connection that stays open, as
    from a device that loses power."""
    subscriptions: tuple[MqttSubscription, ...] = ()
    """Subscriptions of each client."""
    publications: tuple[MqttPublication, ...] = ()
    """Publications of each client in publish stages."""
    sparkplug: Sparkplug | None = None
    """Sparkplug B: clients are edge nodes with devices, or host applications. It decides their
    will, the topics of publications, and further subscriptions."""
    responds: Annotated[OptionalResponds, Mqtt5()] = None
    """MQTT 5: clients answer messages that have a Response Topic, with their correlation data."""
    shares: Mapping[Name, MqttDifference] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""

    @property
    def speaks(self) -> ProtocolName:
        """Protocol and version of the clients."""
        return MQTT_NAMES[self.version]

    def options(self, name: str, _around: RunParts, /) -> Mqtt:
        """Returns the options of the clients in the plan."""
        authentication = self.authentication
        return Mqtt(
            version=self.version,
            client_id=name,
            clean_session=self.session == "clean",
            bridge=self.bridge,
            will=self._will,
            properties=tuple(self._connect_properties()),
            authentication=None
            if authentication is None
            else PlannedAuthentication(**dict(authentication)),
            sparkplug=None if self.sparkplug is None else self.sparkplug.planned,
        )

    @property
    def _will(self) -> PlannedWill | None:
        """The will in the plan."""
        if self.sparkplug is not None:
            return self.sparkplug.will
        return None if self.will is None else self.will.planned

    @property
    def data_of_sparkplug(self) -> SparkplugPayload | None:
        """The data of edge nodes of Sparkplug; None for other clients."""
        return None if self.sparkplug is None else self.sparkplug.payload

    @model_validator(mode="before")
    @classmethod
    def expand_sparkplug(cls, value: object) -> object:
        """Adds the topics and subscriptions of edge nodes and hosts."""
        return expanded(value) if isinstance(value, Mapping) else value

    def rules(self) -> Iterator[Finding]:
        """Yields keys that do not go with Sparkplug."""
        if self.sparkplug is not None:
            yield from self.sparkplug.conflicts(self)

    def _connect_properties(self) -> Iterator[Property]:
        """Yields the properties of CONNECT. A persistent session has no end, unless it is set."""
        if self.version != "5":
            return
        without_end = self.session == "persistent" and self.session_expiry is None
        update = {"session_expiry": U32_MAX * SECOND_NS} if without_end else {}
        yield from properties_of(self.model_copy(update=update))


OF_SOCKETS = {
    "flapping": "sockets of ZeroMQ do not flap: write lifetime, after which a client returns",
    "end": "a socket of ZeroMQ always closes in order",
    "client_id": "a socket of ZeroMQ has no name of its own",
    "qos": "PUB and SUB know no acknowledgement",
    "retain": "ZeroMQ keeps no message",
    "tls": "ZeroMQ has security: curve at the publisher",
    "proxy_protocol": "the PROXY protocol is for clients of MQTT and NATS",
    "keep_alive": "libzmq sends no heartbeats by itself; simulated subscribers do",
    "publications": "a SUB socket only receives",
}
"""Hints of all kinds of ZeroMQ for keys of others."""
AT_PUBLISHERS = "write at: and a population of publishers, or target: zmq://HOST:PORT"
SIMULATED_ONLY = "only simulated subscribers have it: leave subscriber out"
ONLY_SENDS = "a PUB socket only sends"
EVEN = "a publisher sends on an even schedule, or in bursts"
AT_THE_CONTROLLER = ("pyzmq", "command")
"""Kinds of publishers that are on the controller's host: on others they cannot follow its clock."""


class Publisher(Part):
    """Processes with one ZeroMQ PUB socket each, which the run starts and tests. A plain text is
    the kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"

    kind: Literal["libzmq", "pyzmq", "command"]
    """`libzmq` comes with Pubstorm and is its C++ library behind a thin program; `pyzmq` is the
    same in Python; `command` is any other program that speaks the contract of agents."""
    high_water_mark: HighWaterMark = DEFAULT_HIGH_WATER_MARK
    """Most messages that a publisher queues for one subscriber (ZMQ_SNDHWM). The publisher drops
    further ones silently. 0: no limit, and its memory grows instead."""
    io_threads: SmallCount = 1
    """Threads of libzmq that write to sockets."""
    port: PortNumber | None = None
    """Port of the first broker; the others have the ports after it. Default: free ports."""
    command: Words = ()
    """For kind `command`: the program and its arguments, with `{host}`, `{port}` and `{folder}` in
    them; `{{` and `}}` are braces, and relative paths are from the folder of the scenario file. The
    options of an agent come after them."""
    security: Literal["none", "plain", "curve"] = "none"
    """`plain`: a publisher accepts only subscribers with the `username` and `password` of its
    population; `curve`: connections are encrypted, with keys that the run makes."""


class StartedPublishers(Population):
    """Publishers of ZeroMQ that the run starts to test them: each client is a process with a PUB
    socket. Populations whose `at` names this one are its subscribers."""

    SPEAKS: ClassVar[ProtocolName] = "zmtp-3.1"
    HINTS: ClassVar[Mapping[str, str]] = {
        **OF_SOCKETS,
        "subscriber": "write it at a population of subscribers",
        "high_water_mark": "write publisher: {kind: libzmq, high_water_mark: 1000}",
        "at": "each publisher listens itself, and others connect to it",
        "subscriptions": f"{ONLY_SENDS}: give subscribers a population of their own",
        "shares": "give publishers that differ a population each",
        "lifetime": "a publisher is active for the whole run",
        "read_rate": ONLY_SENDS,
        "link": "only clients that the engine plays have a link",
        "tcp_acks": ONLY_SENDS,
        "rows": "its topics have {n} and ranges",
        "arrivals": EVEN,
        "jitter": EVEN,
        "spread": EVEN,
        "window": "PUB has no feedback: what is scheduled is sent",
    }

    publisher: Publisher
    """The program of the processes."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts of the publishers (`ray start --labels pubstorm=LABEL`),
    used in turn, or the address of one. Default: the controller's host. Publishers of another kind
    than `libzmq` are always there, since they read its clock."""
    publications: tuple[Publication, ...] = ()
    """The one flow that each publisher sends in publish stages."""

    @property
    def is_publisher(self) -> bool:
        """True: subscribers connect to these processes."""
        return True

    @property
    def mechanism(self) -> Mechanism:
        """The security of its sockets, as the plan has it."""
        security = self.publisher.security
        return "null" if security == "none" else security

    def options(self, _name: str, _around: RunParts, /) -> Zmtp:
        """Returns the options of the sockets in the plan."""
        publisher = self.publisher
        return Zmtp(
            player=publisher.kind,
            high_water_mark=publisher.high_water_mark,
            io_threads=publisher.io_threads,
            security=self.mechanism,
        )


def _mechanism(subscribers: Population, publishers: Population | None) -> Mechanism:
    """The security of subscribers: that of their publishers; at one that already runs, `plain`
    where they have a user name."""
    if isinstance(publishers, StartedPublishers):
        return publishers.mechanism
    return "null" if subscribers.username is None else "plain"


class SimulatedSubscribers(Simulated):
    """Simulated subscribers of ZeroMQ, many in a process. Their `at` names a population of
    publishers, or the target is a publisher that already runs (`zmq://HOST:PORT`)."""

    SPEAKS: ClassVar[ProtocolName] = "zmtp-3.1"
    ELSEWHERE: ClassVar[Mapping[str, str]] = {"subscriber": AT_PUBLISHERS}
    HINTS: ClassVar[Mapping[str, str]] = {
        **OF_SOCKETS,
        "high_water_mark": "simulated subscribers queue nothing; write subscriber: libzmq for real "
        "sockets",
    }

    subscriber: SubscriberKind = "simulated"
    """Program that plays the subscribers: the engine, or real sockets of `libzmq`, which take more
    of the host each. A publisher with security `curve` needs `libzmq`."""

    def options(self, _name: str, around: RunParts, /) -> Zmtp:
        """Returns the options of the sockets in the plan. They hand on what they read, and queue
        nothing."""
        return Zmtp(high_water_mark=0, security=_mechanism(self, around.publishers))


class RealSubscribers(Connecting):
    """Subscribers of ZeroMQ that are real SUB sockets."""

    SPEAKS: ClassVar[ProtocolName] = "zmtp-3.1"
    ELSEWHERE: ClassVar[Mapping[str, str]] = {"high_water_mark": AT_PUBLISHERS}
    HINTS: ClassVar[Mapping[str, str]] = {
        **OF_SOCKETS,
        **dict.fromkeys(("lifetime", "link", "read_rate", "tcp_acks"), SIMULATED_ONLY),
    }

    subscriber: SubscriberKind
    """Program that plays the subscribers: the engine, or real sockets of `libzmq`, which take more
    of the host each. A publisher with security `curve` needs `libzmq`."""
    high_water_mark: HighWaterMark | None = None
    """Most messages that a socket queues (ZMQ_RCVHWM); 0: no limit. Default: 1000."""
    hosts: HostLabel | None = None
    """On a cluster: label of the host that they are on (`ray start --labels pubstorm=LABEL`), or
    its address; of several hosts, the first one. Default: the controller's host."""

    def options(self, _name: str, around: RunParts, /) -> Zmtp:
        """Returns the options of the sockets in the plan."""
        security, mark = _mechanism(self, around.publishers), self.high_water_mark
        return Zmtp(
            # CURVE needs libsodium, which the libzmq of pyzmq has and that of pubstorm-zmq has not.
            player="pyzmq" if security == "curve" else "libzmq",
            high_water_mark=DEFAULT_HIGH_WATER_MARK if mark is None else mark,
            security=security,
        )


class Written(dict[str, Any]):
    """A population as it was written, with its kind."""

    def __init__(self, population: Mapping[str, Any], kind: str) -> None:
        super().__init__(population)
        self.kind = kind


def with_kinds(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the values of a scenario in which each population has its kind.

    A population with the key `publisher` is one of publishers. Others speak MQTT unless they
    connect to such a population, to a target of another protocol, or have a `protocol`.
    """
    root = At(data)
    populations = root["populations"]
    if not isinstance(populations.data, dict):
        return data
    publishers = {each.path[-1] for each in populations.named() if "publisher" in each}
    brokers = {each.path[-1] for each in root["topology"]["brokers"].named()}
    at_targets = dict[str, str | None]()
    for name, scheme in (written_schemes(root[TARGET].data) or {TARGET: None}).items():
        at_targets[name] = None if scheme is None else PROTOCOLS.get(scheme.name)
        (brokers if scheme is None or scheme.can.has_broker else publishers).add(name)

    def kind_of(population: At) -> str:
        at = population["at"]
        place = at["brokers"].data if isinstance(at.data, dict) else at.data
        place = next(iter(at_targets)) if place is None else str(place)
        says_so = "subscriber" in population or "high_water_mark" in population
        if "publisher" in population:
            return PUBLISHERS
        spoken = PROTOCOLS.get(str(population["protocol"].data))
        if kind := spoken or at_targets.get(place):
            return kind
        if place in publishers or (place not in brokers and says_so):
            is_real = population["subscriber"].data == "libzmq"
            return SOCKETS if is_real else SUBSCRIBERS
        return MQTT

    marked = {
        each.path[-1]: Written(each.data, kind_of(each))
        for each in populations.named()
        if isinstance(each.data, dict)
    }
    return {**data, "populations": {**populations.data, **marked}}


def _kind_of(value: object) -> str:
    if isinstance(value, Written):
        return value.kind
    tagged = map(get_args, get_args(get_args(AnyPopulation)[0]))
    return next((tag.tag for each, tag in tagged if isinstance(value, each)), MQTT)


MQTT = "MQTT clients"
NATS = "NATS clients"
KAFKA = "Kafka consumers"
AMQP = "AMQP clients"
AMQP1 = "AMQP 1.0 receivers"
PUBLISHERS = "ZeroMQ publishers"
SUBSCRIBERS = "simulated subscribers of ZeroMQ"
SOCKETS = "real sockets of ZeroMQ"
PROTOCOLS = {"nats": NATS, "kafka": KAFKA, "amqp": AMQP, "amqp1": AMQP1}
"""Kinds by the key `protocol`."""
AnyPopulation = Annotated[
    Annotated[MqttClients, Tag(MQTT)]
    | Annotated[NatsClients, Tag(NATS)]
    | Annotated[KafkaConsumers, Tag(KAFKA)]
    | Annotated[AmqpClients, Tag(AMQP)]
    | Annotated[Amqp1Receivers, Tag(AMQP1)]
    | Annotated[StartedPublishers, Tag(PUBLISHERS)]
    | Annotated[SimulatedSubscribers, Tag(SUBSCRIBERS)]
    | Annotated[RealSubscribers, Tag(SOCKETS)],
    Discriminator(_kind_of),
    AnyOf(),
]
"""A population of any kind."""
