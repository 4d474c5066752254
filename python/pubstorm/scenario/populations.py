"""Populations: clients that behave alike, with subscriptions and publications. The keys that all
kinds have, or several of them; the docstrings are the reference for users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pubstorm.contract.capabilities import CAPABILITIES, Capabilities, ProtocolName
from pubstorm.contract.plan import End
from pubstorm.contract.protocol import Protocol, SparkplugPayload
from pubstorm.quantities import (
    MILLISECOND_NS,
    SECOND_NS,
    UnfitError,
    bytes_text,
    write_duration,
)
from pubstorm.scenario.base import OrWord, Part, Variant
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.fields import (
    Bandwidth,
    Bytes,
    ClientData,
    Clients,
    ClientText,
    Duration,
    DurationOrNever,
    Flag,
    HostLabel,
    KeepAlive,
    Name,
    Number,
    PathText,
    PositiveDuration,
    QoS,
    Rate,
    ReadRate,
    Share,
    ShareBelowOne,
    SmallCount,
)
from pubstorm.scenario.flows import (
    Publication,
    Subscription,
    Traffic,
)
from pubstorm.scenario.stores import MAIN, Exchange, Stream

CARRIED_BYTES_MAX = 448 << 10
"""Bytes that the rate of a link carries in its delay at most: the engine holds them."""


class Attachment(Part):
    """Brokers that clients connect to; a plain name is all of that name."""

    SHORT_FOR: ClassVar[str | None] = "brokers"

    brokers: Name
    """A name under `topology.brokers` or `target`, a population of publishers, or `target` for
    targets without names."""
    first: Number = 0
    """Number of the first broker that has clients."""
    count: SmallCount | None = None
    """Number of brokers that have clients. Default: all from the first one on."""
    choice: Literal["turn", "random"] = "turn"
    """Client c connects to broker c modulo the number of brokers, or to a random one."""
    shift: Number = 0
    """In turn, client c connects to broker c + shift modulo the number of brokers. So clients of
    two populations with the same number are at different brokers if their shifts differ."""


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
    plain duration is the time of all clients. Give `from`, `rate` or `replay`."""

    SHORT_FOR: ClassVar[str | None] = "from"

    from_: PositiveDuration | None = Field(None, alias="from")
    """Shortest time."""
    to: PositiveDuration | None = None
    """Longest time. Default: the shortest."""
    rate: Rate | None = None
    """Instead of times: clients of the population that disconnect a second, all together. Each time
    is drawn between 0 and twice the mean that this rate needs."""
    offline: DurationOrNever = None
    """Time offline before a client connects again, or `never`. Default: never."""
    replay: PathText | None = None
    """Instead of times: path of a file of recorded sessions, from the folder of the scenario file.
    Clients connect and disconnect at its instants in publish stages. `pubstorm record` writes
    such files."""
    shift: Duration = SECOND_NS
    """With `replay`: clients beyond the recorded ones are later by a time of up to this one, the
    same as their messages with the same `shift`."""

    def rules(self) -> Iterator[Finding]:
        """Yields more than one of times, a rate and a recording, or none of them."""
        sources = (("from", self.from_), ("rate", self.rate), ("replay", self.replay))
        given = [key for key, value in sources if value]
        if len(given) != 1:
            found = " and ".join(given) or "none of from, rate and replay"
            yield (), f"found {found}, needed is one of from, rate and replay", None
        elif self.replay is not None and self.model_fields_set & {"to", "offline"}:
            hint = "the file says when clients leave and return"
            yield (), "found to or offline with replay, allowed is replay with shift", hint
        elif self.replay is None and "shift" in self.model_fields_set:
            yield ("shift",), "found shift without replay, allowed is shift with replay", None
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
    """Instead of times: clients of the population that unsubscribe a second, all together. Each
    time is drawn between 0 and twice the mean that this rate needs."""
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


class LinkKeys(Part):
    """Conditions of the links of clients."""

    delay: Duration = 0
    """Delay in each direction; a round trip takes twice that."""
    jitter: Duration = 0
    """Variation of the delay, at most the delay itself; bytes never overtake each other."""
    loss: ShareBelowOne = 0
    """Share of the segments of TCP that get lost. Nothing is missing: a retransmission brings each
    of them later, and what follows waits for it."""
    rate: Bandwidth | None = None
    """Rate in each direction, of each client, without the headers of TCP and IP; `1MB/s` is
    `8Mbit/s`."""

    def problems(self) -> Iterator[Finding]:
        """Yields a jitter above the delay, and more bytes under way than a link holds."""
        if self.jitter > self.delay:
            found = f"found {write_duration(self.jitter)}"
            yield ("jitter",), f"{found}, allowed is at most the delay, which varies", None
        under_way = (self.rate or 0) * (self.delay + self.jitter) // (8 * SECOND_NS)
        if under_way > CARRIED_BYTES_MAX:
            found = f"found a rate at which {bytes_text(under_way)} are under way during the delay"
            hint = "leave the rate out: without one a link holds 512 KiB in each direction"
            yield ("rate",), f"{found}, allowed are {bytes_text(CARRIED_BYTES_MAX)}", hint


class LinkChange(LinkKeys):
    """Other conditions from an instant of each publish and hold stage on: the keys written here
    replace those of the link."""

    at: PositiveDuration
    """Time after the start of the stage."""


class ClientLinks(LinkKeys):
    """A link between each client and its broker, which the engine plays in user space."""

    changes: tuple[LinkChange, ...] = ()
    """Conditions at later times of each publish and hold stage, in the order of time. A change
    without further keys restores the link."""

    def rules(self) -> Iterator[Finding]:
        """Yields what a link cannot be, at the start of a stage and after each change."""
        yield from self.problems()
        before_ns = 0
        for place, change in enumerate(self.changes):
            where = ("changes", place)
            if change.at <= before_ns:
                found = f"found {write_duration(change.at)}"
                allowed = f"allowed is more than {write_duration(before_ns)}"
                yield (*where, "at"), f"{found}, {allowed}: changes follow each other", None
            before_ns = change.at
            for path, message, hint in self.after(change).problems():
                yield (*where, *path), message, hint

    def after(self, change: LinkChange) -> LinkKeys:
        """Returns the conditions from a change on."""
        written = {name: getattr(change, name) for name in change.model_fields_set - {"at"}}
        own = {name: getattr(self, name) for name in LinkKeys.model_fields}
        return LinkKeys.model_construct(**{**own, **written})


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
Ending = End
TcpAcks = Literal["kernel", "delayed"]


class ShareKeys(Traffic, Part):
    """Clients of a population that differ in some keys: those written here replace those of the
    population. A plain share such as `10%` changes nothing, and is measured by itself."""

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
    link: ClientLinks | None = None
    """Delay, jitter, loss and rate between each client and its broker."""
    lifetime: OptionalLifetime = None
    """Time that a client stays connected, or `never` for no limit."""
    subscriptions: tuple[Subscription, ...] | None = None
    """Subscriptions of each client."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """Parts of a scenario that options of clients depend on."""

    publishers: Population | None
    """Publishers of the run that the clients connect to."""
    streams: Mapping[str, Stream]
    """Streams of JetStream that clients create."""
    exchanges: Mapping[str, Exchange]
    """Exchanges of AMQP that clients declare."""
    populations: Mapping[str, Population]
    """All populations."""
    drain_ns: int
    """Longest wait for messages in flight, in nanoseconds."""
    is_at_target: bool
    """True if some of the clients connect to a broker that already runs."""
    federates: bool
    """True if the run's broker gives messages of other virtual hosts to its own one."""
    virtual_host: str = MAIN
    """Virtual host that the targets name."""


class Population(Traffic, Variant):
    """Clients that behave alike."""

    HINTS: ClassVar[Mapping[str, str]] = {
        "shares": "put the clients that differ into a population of their own",
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
    password: ClientData | None = None
    """Password; `${env:NAME}` or `${file:PATH}` keep it out of the scenario."""

    @property
    def speaks(self) -> ProtocolName:
        """Protocol and version of the clients."""
        return self.SPEAKS

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol."""
        return CAPABILITIES[self.speaks]

    @abstractmethod
    def options(self, name: str, around: RunParts, /) -> Protocol:
        """Returns the options of the protocol in the plan. `name` is the template of the clients'
        names."""

    def named_stores(self) -> Iterator[tuple[Path, str, str]]:
        """Yields the streams and exchanges that its flows name, each with place and noun."""
        yield from ()

    def rules_within(self, _around: RunParts, /) -> Iterator[Finding]:
        """Yields what does not go with the rest of the run."""
        yield from ()

    def topic_of(self, flow: Subscription | Publication, _around: RunParts, /) -> str:
        """Returns the topic of a flow in the plan, without its group."""
        return flow.topic

    def named(self, text: str, _around: RunParts, /) -> str:
        """Returns the name in the plan that a declared flow has at these clients."""
        return text

    def filter_of(self, subscription: Subscription, _around: RunParts, /) -> str:
        """Returns the filter of a subscription in the plan."""
        return subscription.filter

    @property
    def is_publisher(self) -> bool:
        """True if the clients are processes that other clients connect to."""
        return False

    @property
    def keeps_session(self) -> bool:
        """True if the broker keeps the session of a client that is offline."""
        return getattr(self, "session", None) == "persistent"

    @property
    def data_of_sparkplug(self) -> SparkplugPayload | None:
        """The data of edge nodes of Sparkplug; None for other clients."""
        return None

    @property
    def differing(self) -> Mapping[str, ShareKeys]:
        """The shares of the population; empty for kinds without shares."""
        return self.shares if isinstance(self, Simulated) else {}

    @property
    def attached_to(self) -> Attachment | None:
        """The brokers or publishers that the clients connect to; None if it is all targets."""
        return self.at if isinstance(self, Connecting) else None

    def is_near(self, other: Population) -> bool:
        """Returns True if clients of both may be at one broker."""
        own, theirs = self.attached_to, other.attached_to
        return own is None or theirs is None or own.brokers == theirs.brokers

    @property
    def stay(self) -> Lifetime | None:
        """The session lifetime; None if clients stay connected until the run ends them."""
        return self.lifetime if isinstance(self, Simulated) else None

    @property
    def flaps(self) -> Flapping | None:
        """The times of flapping subscriptions; None if clients stay subscribed."""
        flapping: Flapping | None = getattr(self, "flapping", None)
        return flapping


class Connecting(Population):
    """Clients that connect to brokers or publishers."""

    at: Attachment | None = None
    """Brokers or publishers that they connect to. Default: all targets in turn."""
    rows: Rows | None = None
    """A file with a row for each client; `{row.NAME}` is the value of the client's row in the
    column of that name."""
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
    link: ClientLinks | None = None
    """Delay, jitter, loss and rate between each client and its broker. Default: no link."""
    lifetime: OptionalLifetime = None
    """Time that a client stays connected once it is ready. Default: until the run ends it."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts whose agents play them (`ray start --labels
    pubstorm=LABEL`), or the address of one. Default: those of `fleet.hosts`."""
    shares: Mapping[Name, ShareKeys] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""
