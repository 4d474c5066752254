"""Populations: clients that behave alike, with subscriptions and publications. Each kind is a
class, and the docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pubstorm.contract.plan import End
from pubstorm.contract.protocol import CAPABILITIES, MQTT_NAMES, Capabilities, ProtocolName
from pubstorm.quantities import MILLISECOND_NS, SECOND_NS, UnfitError, write_duration
from pubstorm.scenario.base import OrWord, Part, Variant
from pubstorm.scenario.credentials import Authentication, Headers, Tls
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    Bytes,
    Clients,
    ClientText,
    Duration,
    DurationOrNever,
    Flag,
    HighWaterMark,
    HostLabel,
    KeepAlive,
    Name,
    Number,
    PacketBytes,
    PathText,
    PortNumber,
    PositiveDuration,
    QoS,
    Rate,
    ReadRate,
    ReceiveMaximum,
    SessionExpiry,
    Share,
    SmallCount,
    Text,
    TopicAliases,
    Version,
    Words,
)
from pubstorm.scenario.flows import (
    MqttPublication,
    MqttSubscription,
    NatsPublication,
    NatsSubscription,
    Publication,
    Subscription,
    Traffic,
    Will,
)

TARGET = "target"
"""The name of the targets that already run."""
DEFAULT_HIGH_WATER_MARK = 1000
"""The high-water mark of libzmq, unless it is set."""


class Attachment(Part):
    """Brokers that clients connect to; a plain name is all of that name."""

    SHORT_FOR: ClassVar[str | None] = "brokers"

    brokers: Name
    """A name under `topology.brokers`, a population of publishers, or `target`."""
    first: Number = 0
    """Number of the first of them that has clients."""
    count: SmallCount | None = None
    """Number of them that have clients. Default: all from the first on."""
    choice: Literal["turn", "random"] = "turn"
    """Client c goes to the broker number c modulo how many there are, or to one at random."""
    shift: Number = 0
    """In turn, client c goes to the broker number c + shift modulo how many there are: clients of
    two populations with the same number are at different brokers where their shifts differ."""


class Rows(Part):
    """A file of comma-separated values with a line of headings; a plain text is its path."""

    SHORT_FOR: ClassVar[str | None] = "file"

    file: PathText
    """Its path, from the folder of the scenario file."""
    repeat: Flag = False
    """Clients beyond the last row begin with the first row again."""


class Responds(Part):
    """Answers of the clients; `true` means all defaults."""

    qos: QoS = 0
    """QoS of the answers."""
    size: Bytes = 100
    """Payload size of the answers."""


class Reconnect(Part):
    """Waits between attempts to connect, doubling from the first to the longest."""

    after: Duration = 100 * MILLISECOND_NS
    """First wait."""
    up_to: Duration = 10 * SECOND_NS
    """Longest wait; at least the first."""


class Lifetime(Part):
    """Session lifetime: each client draws a time anew whenever it is ready, then disconnects. A
    plain duration is the time of all clients. Give `from` or `rate`."""

    SHORT_FOR: ClassVar[str | None] = "from"

    from_: PositiveDuration | None = Field(None, alias="from")
    """Shortest time."""
    to: PositiveDuration | None = None
    """Longest time. Default: the shortest."""
    rate: Rate | None = None
    """Instead of times: how many of these clients go a second, all together. The times are drawn
    from nothing to twice what that needs."""
    offline: DurationOrNever = None
    """Time offline before a client connects again, or `never`. Default: never."""

    def rules(self) -> Iterator[Finding]:
        """Yields times and a rate together, or none of both."""
        given = [key for key, value in (("from", self.from_), ("rate", self.rate)) if value]
        if len(given) != 1:
            found = " and ".join(given) or "neither from nor rate"
            yield (), f"found {found}, needed is one of from and rate", None
        elif self.rate is not None and self.to is not None:
            hint = "the rate says how long they stay"
            yield ("to",), "found to with rate, allowed is to with from", hint


class Flapping(Part):
    """Flapping subscriptions: each client unsubscribes from all of its filters, and subscribes
    again on the same connection. It draws a time anew whenever it is subscribed. A plain duration
    is the time of all clients. Give `from` or `rate`."""

    SHORT_FOR: ClassVar[str | None] = "from"

    from_: PositiveDuration | None = Field(None, alias="from")
    """Shortest time that a client stays subscribed."""
    to: PositiveDuration | None = None
    """Longest time. Default: the shortest."""
    rate: Rate | None = None
    """Instead of times: how many of these clients unsubscribe a second, all together. The times are
    drawn from nothing to twice what that needs."""
    unsubscribed: Duration = 0
    """Time from UNSUBSCRIBE to the next SUBSCRIBE, which waits for UNSUBACK in any case."""

    def rules(self) -> Iterator[Finding]:
        """Yields times and a rate together, or none of both, and a range that is none."""
        given = [key for key, value in (("from", self.from_), ("rate", self.rate)) if value]
        if len(given) != 1:
            found = " and ".join(given) or "neither from nor rate"
            hint = "write from: 10s, the time that a client stays subscribed, or rate: 10/s of all"
            yield (), f"found {found}, needed is one of from and rate", hint
        elif self.to is not None and self.rate is not None:
            hint = "the rate says how long clients stay subscribed"
            yield ("to",), "found to with rate, allowed is to with from", hint
        elif self.to is not None and self.to < (self.from_ or 0):
            least = write_duration(self.from_ or 0)
            message = f"found {write_duration(self.to)}, allowed is at least {least}"
            yield ("to",), message, "the longest time is at least as long as the shortest"


def _or_never(value: object) -> object:
    return None if value == "never" else value


OptionalLifetime = Annotated[Lifetime | None, BeforeValidator(_or_never), OrWord("never")]
OptionalFlapping = Annotated[Flapping | None, BeforeValidator(_or_never), OrWord("never")]


def _reconnect(value: object) -> object:
    if value == "never":
        return None
    if value is None or not isinstance(value, (dict, Reconnect)):
        raise UnfitError(value, "is {after: 100ms, up_to: 10s} or never")
    return value


def _responds(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else None
    if value is None or not isinstance(value, (dict, Responds)):
        raise UnfitError(value, "is true, false or {qos: 1, size: 100B}")
    return value


OptionalResponds = Annotated[
    Responds | None, BeforeValidator(_responds), OrWord(True), OrWord(False)
]
OptionalReconnect = Annotated[Reconnect | None, BeforeValidator(_reconnect), OrWord("never")]
Session = Literal["clean", "persistent"]
Ending = End
TcpAcks = Literal["kernel", "delayed"]
SubscriberKind = Literal["simulated", "libzmq"]


class Publisher(Part):
    """Processes with one ZeroMQ PUB socket each, started by the run: what is under test. A plain
    text is the kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"

    kind: Literal["libzmq", "pyzmq", "command"]
    """`libzmq` comes with Pubstorm and is its C++ library behind a thin program; `pyzmq` is the
    same in Python; `command` is any other program that speaks the contract of agents."""
    high_water_mark: HighWaterMark = DEFAULT_HIGH_WATER_MARK
    """Messages that it queues for one subscriber at most (ZMQ_SNDHWM); it drops the next ones
    without a word. 0: no limit, and its memory grows instead."""
    io_threads: SmallCount = 1
    """Threads of libzmq that write to sockets."""
    port: PortNumber | None = None
    """Port of the first of them; the others count up from it. Default: free ports."""
    command: Words = ()
    """For kind `command`: the program and its arguments, with `{host}`, `{port}` and `{folder}` in
    them; `{{` and `}}` are braces. The options of an agent come after them."""
    security: Literal["none", "plain", "curve"] = "none"
    """`plain`: it takes subscribers with the `username` and `password` of its population alone;
    `curve`: connections are encrypted, with keys that the run makes."""


class ShareKeys(Traffic, Part):
    """Clients of a population that differ in something; what is written here replaces what the
    population says. A plain share changes nothing, and is measured by itself."""

    SHORT_FOR: ClassVar[str | None] = "part"

    part: Share
    """Part of the clients, such as `1%`."""
    keep_alive: KeepAlive | None = None
    """Keep-alive in whole seconds; 0 turns it off."""
    connect_timeout: PositiveDuration | None = None
    """Longest wait for the connection and all subscriptions of a client."""
    reconnect: OptionalReconnect = None
    """Waits before a lost or refused connection is tried again, or `never`."""
    read_rate: ReadRate | None = None
    """Messages a second that a client takes from its socket at most: a slow subscriber. At a
    publisher of ZeroMQ it can be a share, such as `50%`, of what is scheduled for the client."""
    tcp_acks: TcpAcks | None = None
    """TCP acknowledgements of received bytes: see `tcp_acks` of a population."""
    lifetime: OptionalLifetime = None
    """Time that a client stays connected, or `never` for no limit."""
    subscriptions: tuple[Subscription, ...] | None = None
    """Subscriptions of each client."""


class MqttDifference(ShareKeys):
    """Clients of a population that differ in something; what is written here replaces what the
    population says. A plain share changes nothing, and is measured by itself."""

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


class Population(Traffic, Variant):
    """Clients that behave alike."""

    HINTS: ClassVar[Mapping[str, str]] = {
        "will": "wills are MQTT's",
        "session": "sessions are MQTT's: what a subscriber missed is gone",
        "bridge": "bridges are MQTT's",
        "flapping": "sockets of ZeroMQ do not flap: write lifetime, after which a client returns",
        "subscriber": "write at: and a population of publishers, or target: zmq://HOST:PORT",
        "high_water_mark": "write at: and a population of publishers, or target: zmq://HOST:PORT",
        "shares": "put the clients that differ into a population of their own",
        **dict.fromkeys(("echo", "token", "nkey", "jwt"), "write protocol: nats"),
        "group": "a shared subscription of MQTT has the topic $share/GROUP/FILTER",
    }
    SPEAKS: ClassVar[ProtocolName]
    """Protocol and version of the clients, where a kind has only one."""

    clients: Clients
    """Number of clients."""
    first: Number = 0
    """The number `{n}` of the first client; the others count up from it."""
    scales: Flag = True
    """The number of clients follows `scale`. `false` is for observers and backends, which stay as
    many as written. Publishers of ZeroMQ always do."""
    username: ClientText | None = None
    """User name."""
    password: ClientText | None = None
    """Password; `${env:NAME}` or `${file:PATH}` keep it out of the scenario."""

    @property
    def speaks(self) -> ProtocolName:
        """Protocol and version of the clients."""
        return self.SPEAKS

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol."""
        return CAPABILITIES[self.speaks]

    @property
    def is_publisher(self) -> bool:
        """True if the clients are processes that other clients connect to."""
        return False

    @property
    def keeps_session(self) -> bool:
        """True if the broker keeps the session of a client that is offline."""
        return isinstance(self, MqttClients) and self.session == "persistent"

    @property
    def differing(self) -> Mapping[str, ShareKeys]:
        """The shares of the population; empty for kinds without shares."""
        return self.shares if isinstance(self, Simulated) else {}

    @property
    def attached_to(self) -> Attachment | None:
        """The brokers or publishers that the clients connect to; None if it is all targets."""
        return self.at if isinstance(self, Connecting) else None

    @property
    def stay(self) -> Lifetime | None:
        """The session lifetime; None if clients stay connected until the run ends them."""
        return self.lifetime if isinstance(self, Simulated) else None

    @property
    def flaps(self) -> Flapping | None:
        """The times of flapping subscriptions; None if clients stay subscribed."""
        return self.flapping if isinstance(self, MqttClients | NatsClients) else None


class Connecting(Population):
    """Clients that connect to brokers or publishers."""

    at: Attachment | None = None
    """Brokers or publishers that they connect to. Default: all targets in turn."""
    rows: Rows | None = None
    """A file with a row for each client; `{row.NAME}` is what it has in the column of that name."""
    connect_timeout: PositiveDuration = 10 * SECOND_NS
    """Longest wait for the connection and all subscriptions of a client."""
    reconnect: OptionalReconnect = Reconnect()
    """Waits before a lost or refused connection is tried again, or `never`."""
    subscriptions: tuple[Subscription, ...] = ()
    """Subscriptions of each client."""


class Simulated(Connecting):
    """Clients that the engine plays."""

    keep_alive: KeepAlive = 60 * SECOND_NS
    """Keep-alive in whole seconds; 0 turns it off."""
    read_rate: ReadRate | None = None
    """Messages a second that a client takes from its socket at most: a slow subscriber. At a
    publisher of ZeroMQ it can be a share, such as `50%`, of what is scheduled for the client."""
    tcp_acks: TcpAcks = "kernel"
    """TCP acknowledgements of bytes that a client receives: as the kernel chooses, or `delayed`
    (`TCP_QUICKACK` off), which costs less if messages come fast."""
    lifetime: OptionalLifetime = None
    """Time that a client stays connected once it is ready. Default: until the run ends it."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts whose agents play them (`ray start --labels
    pubstorm=LABEL`), or the address of one. Default: those of `fleet.hosts`."""
    shares: Mapping[Name, ShareKeys] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""


class MqttClients(Simulated):
    """Clients of MQTT that behave alike, except for what its shares change."""

    client_id: ClientText | None = None
    """Client identifier, different for each client. Default: NAME-{n}."""
    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again. Default: they stay
    subscribed."""
    takes_over: Name | None = None
    """Another population, whose client identifiers these clients use: each ends the connection of
    the client with its number."""
    version: Version = "3.1.1"
    """Version of MQTT: 3.1, 3.1.1 or 5."""
    session_expiry: SessionExpiry | None = None
    """MQTT 5: session expiry interval in whole seconds, or `never`. Default: `never` for persistent
    sessions, otherwise the session ends with the connection."""
    receive_maximum: ReceiveMaximum | None = None
    """MQTT 5: messages of QoS 1 and 2 that the broker may have in flight to a client."""
    maximum_packet_size: PacketBytes | None = None
    """MQTT 5: largest packet that the broker may send to a client. The broker drops larger
    messages, which count as lost."""
    topic_aliases: TopicAliases | None = None
    """MQTT 5: topic aliases that the broker may use."""
    user_properties: Mapping[Text, ClientText] = Field(default_factory=dict)
    """MQTT 5: user properties of CONNECT, by name."""
    authentication: Authentication | None = None
    """MQTT 5: enhanced authentication, with AUTH packets."""
    bridge: Flag = False
    """Clients set the bridge bit in the protocol level, as mosquitto's bridges do. A broker that
    knows the bit sends a client nothing that the client published."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
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
    responds: OptionalResponds = None
    """MQTT 5: clients answer messages that have a Response Topic, with their correlation data."""
    shares: Mapping[Name, MqttDifference] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""

    @property
    def speaks(self) -> ProtocolName:
        """Protocol and version of the clients."""
        return MQTT_NAMES[self.version]


class NatsDifference(ShareKeys):
    """Clients of a population that differ in something; what is written here replaces what the
    population says. A plain share changes nothing, and is measured by itself."""

    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again, or `never`."""
    subscriptions: tuple[NatsSubscription, ...] | None = None
    """Subscriptions of each client."""
    publications: tuple[NatsPublication, ...] | None = None
    """Publications of each client in publish stages."""


class NatsClients(Simulated):
    """Clients of NATS that behave alike, except for what its shares change. They connect to a
    target `nats://HOST`, or with `protocol: nats` to brokers of kind `nats` that the run starts."""

    SPEAKS: ClassVar[ProtocolName] = "nats"
    HINTS: ClassVar[Mapping[str, str]] = {
        "qos": "core NATS acknowledges nothing",
        "retain": "core NATS keeps no message",
        "session": "core NATS keeps no session: what a subscriber missed is gone",
        "client_id": "clients have the name of their population and a number",
        "user_properties": "write headers",
        "end": "a client of NATS closes its connection without a word",
        "window": "core NATS has no feedback: what is scheduled is sent",
        "version": "only MQTT has versions",
    }

    protocol: Literal["nats"] = "nats"
    """`nats`: clients use the port of NATS' own protocol. Not needed with a target `nats://HOST`.
    Without it, clients of a broker that the run starts speak MQTT."""
    echo: Flag = True
    """The server sends a client its own messages."""
    token: ClientText | None = None
    """Token of the login; `${env:NAME}` or `${file:PATH}` keep it out of the scenario."""
    nkey: ClientText | None = None
    """Seed of the user's nkey (`SU...`), with which clients sign; `${env:NAME}` or `${file:PATH}`
    keep it out of the scenario."""
    jwt: ClientText | None = None
    """JSON Web Token of the user with that nkey; `${env:NAME}` or `${file:PATH}` keep it out of the
    scenario."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    flapping: OptionalFlapping = None
    """Times between which clients unsubscribe and subscribe again. Default: they stay
    subscribed."""
    subscriptions: tuple[NatsSubscription, ...] = ()
    """Subscriptions of each client."""
    publications: tuple[NatsPublication, ...] = ()
    """Publications of each client in publish stages."""
    shares: Mapping[Name, NatsDifference] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""


OF_SOCKETS = {
    "end": "a socket of ZeroMQ always closes in order",
    "client_id": "a socket of ZeroMQ has no name of its own",
    "qos": "PUB and SUB know no acknowledgement",
    "retain": "ZeroMQ keeps no message",
    "tls": "ZeroMQ has security: curve at the publisher",
    "keep_alive": "libzmq sends no heartbeats by itself; simulated subscribers do",
    "publications": "a SUB socket only receives",
}
"""Hints of all kinds of ZeroMQ for keys of others."""
SIMULATED_ONLY = "only simulated subscribers have it: leave subscriber out"
ONLY_SENDS = "a PUB socket only sends"
EVEN = "a publisher sends on an even schedule, or in bursts"
AT_THE_CONTROLLER = ("pyzmq", "command")
"""Kinds of publishers that are on the controller's host: on others they cannot follow its clock."""


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
    """On a cluster: label of the hosts that publishers are on in turn (`ray start --labels
    pubstorm=LABEL`), or the address of one. Default: the controller's host, where those of another
    kind than `libzmq` always are, since they read its clock."""
    publications: tuple[Publication, ...] = ()
    """The one flow that each publisher sends in publish stages."""

    @property
    def is_publisher(self) -> bool:
        """True: subscribers connect to these processes."""
        return True


class SimulatedSubscribers(Simulated):
    """Simulated subscribers of ZeroMQ, many in a process. Their `at` names a population of
    publishers, or the target is a publisher that already runs (`zmq://HOST:PORT`)."""

    SPEAKS: ClassVar[ProtocolName] = "zmtp-3.1"
    HINTS: ClassVar[Mapping[str, str]] = {
        **OF_SOCKETS,
        "high_water_mark": "simulated subscribers queue nothing; write subscriber: libzmq for real "
        "sockets",
    }

    subscriber: SubscriberKind = "simulated"
    """Program that plays the subscribers: the engine, or real sockets of `libzmq`, which take more
    of the host each. A publisher with security `curve` needs `libzmq`."""


class RealSubscribers(Connecting):
    """Subscribers of ZeroMQ that are real SUB sockets."""

    SPEAKS: ClassVar[ProtocolName] = "zmtp-3.1"
    HINTS: ClassVar[Mapping[str, str]] = {
        **OF_SOCKETS,
        **dict.fromkeys(("lifetime", "read_rate", "tcp_acks"), SIMULATED_ONLY),
    }

    subscriber: SubscriberKind
    """Program that plays the subscribers: the engine, or real sockets of `libzmq`, which take more
    of the host each. A publisher with security `curve` needs `libzmq`."""
    high_water_mark: HighWaterMark | None = None
    """Messages that a socket queues at most (ZMQ_RCVHWM); 0: no limit. Default: 1000."""
    hosts: HostLabel | None = None
    """On a cluster: label of the host that they are on (`ray start --labels pubstorm=LABEL`), or
    its address; of several hosts, the first one. Default: the controller's host."""
