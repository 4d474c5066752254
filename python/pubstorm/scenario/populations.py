"""Populations: clients that behave alike, what they subscribe to and what they publish. The
docstrings are the reference that users read. It knows neither stages nor targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pubstorm.scenario.base import OrWord, Part
from pubstorm.scenario.fields import (
    Burst,
    Bytes,
    Clients,
    ClientText,
    ClientTopic,
    Duration,
    DurationOrNever,
    Flag,
    FlowFilter,
    FlowTopic,
    HighWaterMark,
    KeepAlive,
    Name,
    Number,
    PositiveDuration,
    PublicationRate,
    QoS,
    Rate,
    ReadRate,
    Share,
    ShareBelowOne,
    SmallCount,
    Text,
    Window,
    one_of,
)
from pubstorm.scenario.payloads import Payload
from pubstorm.scenario.tls import Tls
from pubstorm.scenario.zeromq import Publisher, SubscriberKind
from pubstorm.units import UnfitError

MILLISECOND_NS = 10**6
SECOND_NS = 10**9


class Subscription(Part):
    """One topic filter of every client; a plain text is the topic."""

    SHORT_FOR: ClassVar[str | None] = "topic"

    topic: FlowFilter
    """Topic filter; a range `{a..b}` or a choice `{red|green}` makes one filter for each value. At
    a publisher of ZeroMQ it is what topics begin with, and `""` means all of them."""
    qos: QoS = 0
    """Highest QoS wanted."""


class Size(Part):
    """Sizes around a mean; a plain size is the mean, without spread."""

    SHORT_FOR: ClassVar[str | None] = "mean"

    mean: Bytes
    """Mean size of a payload."""
    spread: Share = 0.0
    """Standard deviation of a normal distribution, as a share of the mean."""


class Publication(Part):
    """A flow of messages that every client sends in publish stages."""

    topic: FlowTopic
    """Topic; a range `{a..b}` or a choice `{red|green}` is gone through, message by message. A
    publisher of ZeroMQ sends it as a frame of its own before the payload, and with `""` the
    payload alone."""
    order: Annotated[Literal["turn", "shuffled"], BeforeValidator(one_of("turn", "shuffled"))] = (
        "turn"
    )
    """How a range or choice is gone through: in turn, or in an order of each client's own that is
    drawn anew for each round."""
    rate: PublicationRate | None = None
    """Messages a second of each client; `max`: as fast as window and socket take them."""
    interval: PositiveDuration | None = None
    """Time between two messages of a client, instead of a rate."""
    burst: Burst = 1
    """How many messages of a client are due at once; bursts are that many times as far apart, so
    that the rate stays the same."""
    size: Size = Size.model_validate("100B")
    """Payload size: fixed, or a mapping of mean and spread. Payloads below 32 bytes carry no
    stamp: they are counted, without latency."""
    payload: Payload | None = None
    """Payload text instead of a size, or a mapping or list that becomes JSON. With `{stamp}` in it
    messages have latency and order, without it they are counted."""
    qos: QoS = 0
    """QoS of the messages."""
    retain: Flag = False
    """Whether the broker keeps the last message of a topic."""
    jitter: Share = 0.0
    """Each message moves by up to half this share of the period."""
    spread: ShareBelowOne = 0.0
    """Each client's period differs from the given one by up to this share."""
    phase: Annotated[
        Literal["spread", "random", "aligned"],
        BeforeValidator(one_of("spread", "random", "aligned")),
    ] = "spread"
    """Where in the period clients send: evenly spread, at random, or all at once."""
    late: Annotated[Literal["send", "skip"], BeforeValidator(one_of("send", "skip"))] = "send"
    """A message that could not leave in time is sent late, or left out and counted as skipped."""
    window: Window = 65535
    """Messages of a client in flight at most, for QoS 1 and 2."""

    @property
    def rate_per_s(self) -> float | None:
        """Messages a second of each client; `None` in a closed loop."""
        return self.rate if self.interval is None else SECOND_NS / self.interval


class Attachment(Part):
    """Which brokers clients connect to; a plain name is all of that name."""

    SHORT_FOR: ClassVar[str | None] = "brokers"

    brokers: Name
    """A name under `topology.brokers`, a population of publishers, or `target`."""
    first: Number = 0
    """Number of the first of them that has clients."""
    count: SmallCount | None = None
    """How many of them have clients. Default: all from the first on."""
    choice: Annotated[Literal["turn", "random"], BeforeValidator(one_of("turn", "random"))] = "turn"
    """Client c goes to the broker number c modulo how many there are, or to one at random."""
    shift: Number = 0
    """In turn, client c goes to the broker number c + shift modulo how many there are: clients of
    two populations with the same number are at different brokers where their shifts differ."""


class Rows(Part):
    """A file of comma-separated values with a line of headings; a plain text is its path."""

    SHORT_FOR: ClassVar[str | None] = "file"

    file: Text
    """Its path, from the folder of the scenario file."""
    repeat: Flag = False
    """Whether clients beyond the last row begin with the first again."""


class Will(Part):
    """The message that the broker sends when a client dies."""

    topic: ClientTopic
    """Topic of the message."""
    payload: ClientText = ""
    """Text of the message."""
    qos: QoS = 0
    """QoS of the message."""
    retain: Flag = False
    """Whether the broker keeps it."""


class Reconnect(Part):
    """Waits between attempts to connect, doubling from the first to the longest."""

    after: Duration = 100 * MILLISECOND_NS
    """First wait."""
    up_to: Duration = 10 * SECOND_NS
    """Longest wait; at least the first."""


class Lifetime(Part):
    """How long clients stay: each draws a time anew whenever it is ready, then disconnects. A plain
    duration is that time for all. Give `from` or `rate`."""

    SHORT_FOR: ClassVar[str | None] = "from"

    from_: PositiveDuration | None = Field(None, alias="from")
    """Shortest time."""
    to: PositiveDuration | None = None
    """Longest time. Default: the shortest."""
    rate: Rate | None = None
    """Instead of times: how many of these clients go a second, all together. The times are drawn
    from nothing to twice what that needs."""
    again: DurationOrNever = None
    """How long after it has gone a client comes back, or `never`. Default: never."""


def _lifetime(value: object) -> object:
    return None if value == "never" else value


OptionalLifetime = Annotated[Lifetime | None, BeforeValidator(_lifetime), OrWord("never")]


def _reconnect(value: object) -> object:
    if value == "never":
        return None
    if value is None or not isinstance(value, (dict, Reconnect)):
        raise UnfitError(value, "is {after: 100ms, up_to: 10s} or never")
    return value


OptionalReconnect = Annotated[Reconnect | None, BeforeValidator(_reconnect), OrWord("never")]
Session = Annotated[Literal["clean", "persistent"], BeforeValidator(one_of("clean", "persistent"))]
Ending = Annotated[Literal["disconnect", "abort"], BeforeValidator(one_of("disconnect", "abort"))]
TcpAcks = Annotated[Literal["kernel", "delayed"], BeforeValidator(one_of("kernel", "delayed"))]


class PopulationShare(Part):
    """Clients of a population that differ in something; what is written here replaces what the
    population says. A plain share changes nothing, and is measured by itself."""

    SHORT_FOR: ClassVar[str | None] = "part"

    part: Share
    """How many of the clients, such as `1%`."""
    qos: QoS | None = None
    """QoS of all their publications and subscriptions."""
    lifetime: OptionalLifetime = None
    """How long a client stays, or `never` for as long as it can."""
    keep_alive: KeepAlive | None = None
    """Keep-alive in whole seconds; 0 turns it off."""
    session: Session | None = None
    """Whether the broker forgets a client when it disconnects."""
    will: Will | None = None
    """Message that the broker sends when a client dies."""
    end: Ending | None = None
    """The end of a client's connection: see `end` of a population."""
    connect_timeout: PositiveDuration | None = None
    """Longest wait for the connection and all subscriptions of a client."""
    reconnect: OptionalReconnect = None
    """How a lost or refused connection is tried again, or `never`."""
    read_rate: ReadRate | None = None
    """Messages a second that a client takes from its socket at most: a slow subscriber. At a
    publisher of ZeroMQ it can be a share, such as `50%`, of what is due to the client."""
    tcp_acks: TcpAcks | None = None
    """TCP acknowledgements of received bytes: see `tcp_acks` of a population."""
    subscriptions: tuple[Subscription, ...] | None = None
    """What each client subscribes to."""
    publications: tuple[Publication, ...] | None = None
    """What each client publishes in publish stages."""


class Population(Part):
    """Clients that behave alike, but for what its shares say."""

    clients: Clients
    """How many clients."""
    first: Number = 0
    """The number `{n}` of the first client; the others count up from it."""
    at: Attachment | None = None
    """Which brokers or publishers they connect to. Default: all targets in turn."""
    publisher: Publisher | None = None
    """Makes each client a process with a ZeroMQ PUB socket, which is under test; populations whose
    `at` names this one are its subscribers."""
    subscriber: SubscriberKind = "simulated"
    """Who plays subscribers of ZeroMQ: the engines, many in a process, or real sockets of `libzmq`
    or `pyzmq`, which take more of the host each."""
    high_water_mark: HighWaterMark | None = None
    """Messages that a real SUB socket queues at most (ZMQ_RCVHWM); 0: no limit. Default: 1000."""
    bridge: Flag = False
    """Whether clients connect as mosquitto's bridges do: with the bridge bit in the protocol level,
    so that a broker that knows it sends them nothing of what they published."""
    client_id: ClientText | None = None
    """Client identifier, different for each client. Default: NAME-{n}."""
    username: ClientText | None = None
    """User name."""
    password: ClientText | None = None
    """Password; `${env:NAME}` or `${file:PATH}` keep it out of the scenario."""
    rows: Rows | None = None
    """A file with a row for each client; `{row.NAME}` is what it has in the column of that name."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    keep_alive: KeepAlive = 60 * SECOND_NS
    """Keep-alive in whole seconds; 0 turns it off."""
    session: Session = "clean"
    """Whether the broker forgets a client when it disconnects."""
    will: Will | None = None
    """Message that the broker sends when a client dies. Subscribers of its topic are expected to
    receive it whenever a connection ends without DISCONNECT."""
    end: Ending = "disconnect"
    """The end of a client's connection by a stage, a change or its lifetime: with DISCONNECT, or
    with `abort`, a reset of the connection as from a device that loses power."""
    connect_timeout: PositiveDuration = 10 * SECOND_NS
    """Longest wait for the connection and all subscriptions of a client."""
    reconnect: OptionalReconnect = Reconnect()
    """How a lost or refused connection is tried again, or `never`."""
    read_rate: ReadRate | None = None
    """Messages a second that a client takes from its socket at most: a slow subscriber. At a
    publisher of ZeroMQ it can be a share, such as `50%`, of what is due to the client."""
    tcp_acks: TcpAcks = "kernel"
    """TCP acknowledgements of bytes that a client receives: as the kernel chooses, or `delayed`
    (`TCP_QUICKACK` off), which costs less if messages come fast."""
    subscriptions: tuple[Subscription, ...] = ()
    """What each client subscribes to."""
    publications: tuple[Publication, ...] = ()
    """What each client publishes in publish stages."""
    lifetime: OptionalLifetime = None
    """How long a client stays once it is ready. Default: never over, until it is told to go."""
    shares: Mapping[Name, PopulationShare] = Field(default_factory=dict)
    """Clients of it that differ, by name: the last ones by number, in the order written; the first
    ones are the `rest`. Each is played, measured and judged as a population called
    `POPULATION/SHARE`; `POPULATION` means all of them."""
