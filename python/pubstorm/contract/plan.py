"""The plan as it travels to every agent: one JSON object, field by field the types of
`crates/plan/src/model.rs`. It knows nothing of shards, time of day, or how a scenario is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pubstorm.contract import U16, U32, U32_MAX, U62, U64, Frozen, PositiveU62, Rate, Template
from pubstorm.contract.capabilities import CAPABILITIES, Capabilities
from pubstorm.contract.protocol import (
    PLAYERS,
    Mqtt,
    PlannedFlow,
    PlannedPublication,
    PlannedSubscription,
    PlannedWill,
    Player,
    Protocol,
    QoS,
    Zmtp,
)
from pubstorm.contract.sessions import SessionsRecording
from pubstorm.contract.target import Target
from pubstorm.errors import REDACTED
from pubstorm.quantities import SECOND_NS


class PlannedReconnect(Frozen):
    """Exponential back-off with jitter, from `min_ns` doubling up to `max_ns`."""

    min_ns: U62
    """First wait, in nanoseconds."""
    max_ns: U62
    """Longest wait, in nanoseconds."""


class PlannedPsk(Frozen):
    """Pre-shared keys: one identity for each client."""

    file: str
    """File of lines `identity:key`, the key in hexadecimal."""
    identity: Template
    """Template of a client's identity, which the file must have."""


class Header(Frozen):
    """A header of HTTP."""

    name: str
    """Name of the header."""
    value: Template
    """Template of the value."""


class PlannedAddressUse(Frozen):
    """Use of several addresses of a name."""

    use: Literal["first", "in_turn", "random"]
    """Address of an attempt to connect: always the first; the next one of the client, whose first
    attempt follows from its number; or one that is drawn."""
    failover: bool
    """True if a client tries the next address at once after an attempt that the address did not
    answer, until it has tried each address once."""


class PlannedProxyProtocol(Frozen):
    """Header of the PROXY protocol: a load balancer states the address of its client."""

    version: Literal["v1", "v2"]
    """Version of the header: a line of text, or binary."""
    first: str
    """Source address of the client with number 0."""
    count: Annotated[int, Field(ge=1, le=U32_MAX)]
    """Number of source addresses from the first one on. Clients use them in turn, by number."""


class PlannedTls(Frozen):
    """TLS of the clients of a population. Paths are read by the engine, at its start where they
    are the same for all clients, else at each client's first connection."""

    ca: str | None = None
    """File of the authorities that verify a broker's certificate; null: those of the system."""
    verify: bool = True
    """True if agents verify the broker's certificate and its name."""
    server_name: Template | None = None
    """Template of the name that the client asks for (SNI), and that the certificate must have;
    null: the target's host."""
    certificate: Template | None = None
    """Template of the path of a client's certificate chain (PEM)."""
    key: Template | None = None
    """Template of the path of its private key (PEM)."""
    passphrase: Template | None = None
    """Template of the passphrase of an encrypted private key; null: the key is not encrypted."""
    reread: bool = False
    """True if a client reads certificate and key again when the files have changed."""
    psk: PlannedPsk | None = None
    """A pre-shared key instead of certificates."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Lowest version."""
    max_version: Literal["1.2", "1.3"] = "1.3"
    """Highest version."""
    ciphers: str | None = None
    """Cipher list of TLS 1.2 in OpenSSL's words; null: OpenSSL's own, or with pre-shared keys those
    without a Diffie-Hellman exchange in a finite field."""
    suites: tuple[str, ...] = ()
    """Cipher suites of TLS 1.3, in order of preference; empty: OpenSSL's own."""
    groups: tuple[str, ...] = ()
    """Groups of the key exchange, in order of preference; empty: those of the engine."""
    alpn: tuple[str, ...] = ()
    """Protocols that the client offers by ALPN, in order of preference; empty: no ALPN."""
    resume: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the connections that offer the session of the client's last connection; 0: the agent
    keeps no session."""
    early_data: bool = False
    """True if clients that offer a session over QUIC send their first packets in 0-RTT."""
    key_log: str | None = None
    """File for the keys of all connections, to which agents append; null: no such file."""

    def without_secrets(self) -> PlannedTls:
        """The same without the passphrase, to be stored."""
        return self if self.passphrase is None else self.model_copy(update={"passphrase": REDACTED})


class PlannedLifetime(Frozen):
    """Session lifetime: each client draws a time for each session, and then disconnects."""

    min_ns: U62
    """Shortest time, in nanoseconds."""
    max_ns: U62
    """Longest time, in nanoseconds."""
    offline_ns: U62 | None
    """Time offline between two sessions of a client, in nanoseconds; null: it does not return."""
    recorded: SessionsRecording | None = None
    """Recorded sessions, which clients play in publish stages instead of times that they draw. The
    other times are then means. Null: clients draw."""

    @property
    def share_there(self) -> float:
        """Mean share of the time that a client is connected; 1 for a client that does not return,
        because such a client counts until it has left."""
        if self.offline_ns is None:
            return 1.0
        life_ns = (self.min_ns + self.max_ns) / 2
        return life_ns / (life_ns + self.offline_ns)


class PlannedFlapping(Frozen):
    """Flapping subscriptions: each client draws a time whenever it is subscribed, and then
    unsubscribes from all of its filters."""

    min_ns: U62
    """Shortest time subscribed, in nanoseconds."""
    max_ns: U62
    """Longest time subscribed, in nanoseconds."""
    unsubscribed_ns: U62
    """Time from UNSUBSCRIBE to SUBSCRIBE, in nanoseconds; longer if UNSUBACK comes later."""


class LinkConditions(Frozen):
    """Conditions of the links of clients from an instant of a stage on, in both directions."""

    after_ns: U62
    """Time after the start of a publish or hold stage, in nanoseconds. The first conditions, at 0,
    hold in all other stages too."""
    delay_ns: U62
    """Delay in each direction, in nanoseconds."""
    jitter_ns: U62
    """Largest difference from the delay, in nanoseconds, at most the delay."""
    loss: Annotated[float, Field(ge=0, lt=1)]
    """Share of the segments that come one retransmission later."""
    bits_per_s: Annotated[int, Field(ge=8_000, le=10**11)] | None
    """Rate in each direction, in bits a second; null: no limit."""


class PlannedRows(Frozen):
    """A file of comma-separated values with a line of headings: one row for each client."""

    file: str
    """Its path."""
    first: U62
    """The client number `{n}` that has the first row."""
    repeat: bool
    """True if clients beyond the last row begin with the first row again."""


class PlannedResponds(Frozen):
    """Answers of the clients of a population."""

    qos: QoS
    """QoS 0, 1 or 2."""
    bytes: U32
    """Size of the payload, in bytes."""


class PlannedAttachment(Frozen):
    """Targets of the clients of a population."""

    first: U32
    """Index of the first target."""
    count: Annotated[int, Field(ge=1, le=U32_MAX)]
    """Number of targets, from the first on."""
    choice: Literal["turn", "random"] = "turn"
    """Client `c` goes to target `first + (c + shift) % count`, or to one of them at random."""
    shift: U32 = 0
    """The place among them that client 0 goes to, where they are gone through in turn."""

    @property
    def targets(self) -> range:
        """Indices of the targets."""
        return range(self.first, self.first + self.count)


End = Literal["disconnect", "disconnect_with_will", "abort", "vanish"]
"""The end of a client's connection: with DISCONNECT; with DISCONNECT and the reason code 0x04 of
MQTT 5, after which the broker publishes the will; with a reset; with silence on an open
connection."""


class PlannedPopulation(Frozen):
    """Clients that behave alike."""

    name: str
    """Its name in the scenario; that of a share is `WHOLE/SHARE`."""
    whole: str | None = None
    """The population that it is a share of; null: it is one by itself."""
    protocol: Protocol
    """Protocol and its options."""
    clients: U32
    """Number of clients; client `c` has number `n = first + c`."""
    first: U62
    """Number `{n}` of the first client."""
    at: PlannedAttachment
    """Targets of the clients."""
    username: Template | None
    """Template of the user name."""
    password: Template | None
    """Template of the password."""
    tls: PlannedTls | None
    """Options of connections to targets under TLS; null if there is no such target."""
    proxy_protocol: PlannedProxyProtocol | None = None
    """Header of the PROXY protocol that begins each connection; null: no header."""
    headers: tuple[Header, ...] = ()
    """Headers of the request with which a client opens a WebSocket."""
    keep_alive_s: U16
    """Keep-alive in seconds; 0 turns it off."""
    end: End = "disconnect"
    """The end of a client's connection when the client leaves."""
    connect_timeout_ns: U62
    """Longest wait for TCP, CONNACK and SUBACK together, in nanoseconds."""
    reconnect: PlannedReconnect | None
    """Retries of a lost or refused connection; null: no retries."""
    read_rate_per_s: Rate | None
    """Messages a second that a client takes from its socket at most; null: no limit."""
    delayed_acks: bool = False
    """True if the kernel delays acknowledgements to the broker (`TCP_QUICKACK` off)."""
    link: tuple[LinkConditions, ...] = ()
    """Conditions of the link of each client, in the order of time; empty: no link."""
    lifetime: PlannedLifetime | None = None
    """Session lifetime of a ready client; null: until a stage or a change ends the session."""
    flapping: PlannedFlapping | None = None
    """Times between which a client unsubscribes and subscribes again; null: it stays subscribed."""
    takes_over: int | None = Field(None, ge=0)
    """Index of the population whose client identifiers its clients use: client `c` ends the
    connection of that population's client `c`; null: it has identifiers of its own."""
    rows: PlannedRows | None = None
    """A file whose rows the clients' templates refer to; null: there is none."""
    subscriptions: tuple[PlannedSubscription, ...]
    """Topic filters of each client."""
    publications: tuple[PlannedPublication, ...]
    """Flows that each client publishes in publish stages."""
    responds: PlannedResponds | None = None
    """Answers to messages with a Response Topic; null: no answers. Only MQTT 5."""

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES[self.protocol.name]

    @property
    def mqtt(self) -> Mqtt | None:
        """Options of its MQTT clients; None for others."""
        return self.protocol if isinstance(self.protocol, Mqtt) else None

    @property
    def zmtp(self) -> Zmtp | None:
        """Options of its ZeroMQ sockets; None for others."""
        return self.protocol if isinstance(self.protocol, Zmtp) else None

    @property
    def player(self) -> Player:
        """Program that plays its clients."""
        if self.zmtp is not None:
            return self.zmtp.player
        return PLAYERS.get(self.protocol.kind, "engine")

    @property
    def client_id(self) -> str:
        """Template of the identifier of its MQTT clients; empty for others."""
        return "" if self.mqtt is None else self.mqtt.client_id

    @property
    def connections_max(self) -> int:
        """Most connections that its clients have open at once. A client that has vanished can
        return while its silent connection is still open."""
        return self.clients * (2 if self.end == "vanish" else 1)

    @property
    def sets_bridge_bit(self) -> bool:
        """True if its clients set the bridge bit of MQTT."""
        return self.mqtt is not None and self.mqtt.bridge

    @property
    def keeps_session(self) -> bool:
        """True if the broker keeps the session of a client that is offline, or a server its durable
        consumers."""
        return self.protocol.keeps_session

    @property
    def will(self) -> PlannedWill | None:
        """Will of its clients; None if they have none."""
        return None if self.mqtt is None else self.mqtt.will

    @property
    def will_wait_ns(self) -> int:
        """Longest time from the end of a connection to the publication of its will: the rest of
        the keep-alive of a client that vanishes, and the will delay."""
        if self.mqtt is None or self.mqtt.will is None:
            return 0
        silence_ns = self.keep_alive_s * SECOND_NS * 3 // 2 if self.end == "vanish" else 0
        return silence_ns + self.mqtt.will_delay_s * SECOND_NS

    @property
    def is_publisher(self) -> bool:
        """True if its clients are what other clients connect to."""
        return not self.can.has_broker and bool(self.publications)

    @property
    def of(self) -> str:
        """The scenario's population that they belong to: the whole of a share, else itself."""
        return self.whole or self.name


class ConnectAction(Frozen):
    """Connects and subscribes the clients of its populations."""

    kind: Literal["connect"] = "connect"
    rate_per_s: Rate | None
    """Connections started a second over all agents; null: as parallelism allows."""
    parallelism: U32 | None
    """Connections under way at once over all agents; null: no limit."""
    timeout_ns: U62
    """Wait of the barrier after the last start, in nanoseconds."""
    clients: tuple[U32, ...] | None = None
    """Active clients of each population after the stage, from the lowest index; null: all."""


class _ClientsChange(Frozen):
    kind: str
    clients: U32
    """Number of clients over all agents."""
    over_ns: U62
    """Time over which the clients make the change, in nanoseconds."""


class AddClients(_ClientsChange):
    """Inactive clients join: they connect, subscribe and publish; the lowest indices first."""

    kind: Literal["add"] = "add"


class RemoveClients(_ClientsChange):
    """Clients disconnect and stop publishing; those with the highest indices first."""

    kind: Literal["remove"] = "remove"


class MigrateClients(_ClientsChange):
    """Connections of QUIC change to another port; those with the lowest indices first."""

    kind: Literal["migrate"] = "migrate"


class ChangeRate(Frozen):
    """All clients publish at `factor` times the rate of the plan from here on; 0 pauses them."""

    kind: Literal["rate"] = "rate"
    factor: Annotated[float, Field(ge=0, le=1e9)]
    """Times the planned rate."""


AnyChangeAction = AddClients | RemoveClients | MigrateClients | ChangeRate
ChangeAction = Annotated[AnyChangeAction, Field(discriminator="kind")]


class PlannedChange(Frozen):
    """A change of a population during a publish stage."""

    name: str
    """Name of the phase that begins with it."""
    after_ns: U62
    """Time from the start of the stage to the change, in nanoseconds."""
    population: U32
    """Index of the population."""
    action: ChangeAction
    """The change."""


class PlannedRatePoint(Frozen):
    """Point of a rate profile. Two points of one instant are a step."""

    after_ns: U62
    """Time after the start of the stage, in nanoseconds."""
    factor: Annotated[float, Field(ge=0, le=1e6)]
    """Factor of the planned rate."""


class PublishAction(Frozen):
    """Publishes for a time, or up to a number of messages, then drains."""

    kind: Literal["publish"] = "publish"
    duration_ns: U62
    """In nanoseconds; with a number of messages the longest."""
    changes: tuple[PlannedChange, ...] = ()
    """Changes of populations during the stage, in the order of time."""
    rate_profile: tuple[PlannedRatePoint, ...] = ()
    """Factor of the planned rates of all populations over time, linear between two points, which
    changes of a rate multiply. Empty: always 1."""
    messages: tuple[U62, ...] | None = None
    """Messages of each population of the stage, divided evenly among the clients that are active at
    its start. An agent ends the stage when its clients have sent theirs. Null: as many as are
    scheduled."""


class HoldAction(Frozen):
    """Publishes nothing, and keeps the connections of clients that no change removes."""

    kind: Literal["hold"] = "hold"
    duration_ns: U62
    """In nanoseconds."""
    changes: tuple[PlannedChange, ...] = ()
    """Clients that join or leave during the stage, in the order of time."""


class DisconnectAction(Frozen):
    """Disconnects the clients of its populations."""

    kind: Literal["disconnect"] = "disconnect"
    rate_per_s: Rate | None
    """Disconnections a second over all agents; null: all at once."""


Action = Annotated[
    ConnectAction | PublishAction | HoldAction | DisconnectAction, Field(discriminator="kind")
]


class PlannedStage(Frozen):
    """A named span of the run."""

    name: str
    """Its name in the scenario."""
    action: Action
    """Action of the stage."""
    populations: tuple[U32, ...]
    """Indices of the populations that take part; the others stay as they are and do not publish."""


class Route(Frozen):
    """Topics that cross a bridge; `{n}` is the number of the small broker."""

    filter: Template
    """Topic filter, without the prefixes."""
    direction: Literal["out", "in", "both"]
    """`out`: from the small broker to the main one; `in`: the other way."""
    local_prefix: Template
    """Prefix of the topic on the small broker."""
    remote_prefix: Template
    """Prefix of the topic on the main broker."""


class PlannedBridges(Frozen):
    """Bridges from small brokers to one main broker: agents compute expected deliveries from them.
    A message never goes back over the bridge that it came by."""

    main: U32
    """Index of the main broker's target."""
    first: U32
    """Index of the first small broker's target."""
    count: U32
    """Number of small brokers; the broker with number `n` is target `first + n`."""
    routes: tuple[Route, ...]
    """Topics that cross each bridge."""


class Plan(Frozen):
    """A scenario with every choice made; what will be done, before sharding."""

    FORMAT: ClassVar[int] = 2

    format: Literal[2] = 2
    """Version of this format."""
    name: str
    """The scenario's name."""
    run_tag: U32
    """Marks this run's payloads; earlier runs' retained messages carry another."""
    seed: U64
    """Seed of every random choice: the same plan makes the same load."""
    targets: Annotated[tuple[Target, ...], Field(min_length=1)]
    """Addresses for clients; each population's `at` selects among them."""
    targets_joined: bool
    """True if a message published at one target reaches subscribers at the others."""
    bridges: tuple[PlannedBridges, ...] = ()
    """Bridges between the targets."""
    flows: tuple[PlannedFlow, ...] = ()
    """Flows that programs beside the brokers carry."""
    sources: tuple[str, ...]
    """Source addresses, used in turn; empty leaves the choice to the kernel."""
    addresses: PlannedAddressUse | None = None
    """Use of several addresses of a target's name; null: each target has one address."""
    snapshot_interval_ns: PositiveU62
    """Time between two snapshots, in nanoseconds."""
    drain_ns: U62
    """Longest time without progress in the drain after a publish stage, in nanoseconds."""
    coalescing_ns: U62 = 0
    """Longest time that timers of clients wait to be handled together, in nanoseconds: the lateness
    that an agent adds by itself. 0: each timer is handled by itself."""
    stall_ns: PositiveU62 | None = None
    """Time without a delivery, though deliveries are expected, after which a subscriber counts as
    stalled, in nanoseconds; null: stalls are not counted."""
    max_packet_bytes: Annotated[U32, Field(gt=0)] = 64 * 1024 * 1024
    """Largest MQTT packet that a client accepts, in bytes."""
    populations: tuple[PlannedPopulation, ...]
    """Clients that behave alike."""
    stages: tuple[PlannedStage, ...]
    """Stages in the order of time."""

    @property
    def clients(self) -> int:
        """Clients of all populations together."""
        return sum(population.clients for population in self.populations)

    @property
    def wholes(self) -> dict[str, tuple[int, ...]]:
        """Indices of the shares of each population that has any, by its name."""
        shares: dict[str, tuple[int, ...]] = {}
        for index, population in enumerate(self.populations):
            if population.whole is not None:
                shares[population.whole] = (*shares.get(population.whole, ()), index)
        return shares

    @property
    def alone(self) -> dict[str, tuple[int, ...]]:
        """Index of each population by its name; shares have names of their own."""
        return {population.name: (n,) for n, population in enumerate(self.populations)}

    @property
    def members(self) -> dict[str, tuple[int, ...]]:
        """Indices of the populations behind each name: `alone` and `wholes` together."""
        return {**self.alone, **self.wholes}

    @property
    def contested(self) -> frozenset[int]:
        """Indices of the populations that share client identifiers with another one."""
        takers = {n: each.takes_over for n, each in enumerate(self.populations)}
        pairs = ((n, of) for n, of in takers.items() if of is not None)
        return frozenset(n for pair in pairs for n in pair)

    def at_targets(self, targets: Sequence[Target]) -> Plan:
        """The same plan elsewhere, as observers see it; itself where there are no such targets."""
        return self.model_copy(update={"targets": tuple(targets)}) if targets else self

    def without_secrets(self) -> Plan:
        """The same without passwords, passphrases, headers and data of authentications, to be
        stored."""
        populations = tuple(
            each.model_copy(
                update={
                    "password": None if each.password is None else REDACTED,
                    "headers": tuple(Header(name=h.name, value=REDACTED) for h in each.headers),
                    "protocol": each.protocol.without_secrets(),
                    "tls": None if each.tls is None else each.tls.without_secrets(),
                }
            )
            for each in self.populations
        )
        return self.model_copy(update={"populations": populations})

    def to_line(self) -> str:
        """The plan as the one line of JSON that an agent reads first, with its newline."""
        return self.model_dump_json() + "\n"
