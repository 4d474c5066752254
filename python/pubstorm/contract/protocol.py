"""The model of a population that a plan holds, field by field as `crates/plan/src/model` has it:
protocols with their capabilities, properties, flows with their schedules and payloads, and the
addresses that clients connect to and from. It resolves no name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pubstorm.contract import U62, PositiveU62
from pubstorm.contract.capabilities import (
    CAPABILITIES,
    MQTT,
    MQTT_NAMES,
    U16_MAX,
    Capabilities,
    MqttVersion,
    ProtocolName,
)
from pubstorm.contract.template import STAMP_BYTES
from pubstorm.errors import REDACTED
from pubstorm.quantities import UnfitError

U32_MAX = 2**32 - 1
REPLICAS_MAX = 5
"""Largest number of servers that store a message of JetStream."""
IDENTIFIER_MAX = 268_435_455
"""Largest subscription identifier of MQTT 5."""

U16 = Annotated[int, Field(ge=0, le=U16_MAX)]
U32 = Annotated[int, Field(ge=0, le=U32_MAX)]
QoS = Annotated[int, Field(ge=0, le=2)]
SCRAM = "SCRAM-SHA-256"
"""Method of enhanced authentication that the engine plays."""
Player = Literal["engine", "libzmq", "pyzmq", "command"]
Template = Annotated[str, Field(description="Text with variables such as `{n}`.")]


class Frozen(BaseModel):
    """A value of the contract: immutable, and without room for unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


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


Protocol = Annotated[Mqtt | Zmtp | NatsProtocol, Field(discriminator="kind")]


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
    """The user's own text; without a stamp in it counted, but without latency or order. MQTT 5 has
    the stamp in a user property."""

    kind: Literal["text"] = "text"
    template: Template
    """Template of the text."""
    is_json: bool = False
    """True if the text is JSON: values from a file are escaped."""


class RecordedPayload(Frozen):
    """Sizes of recorded messages, whose instants and topics are recorded too. Smaller sizes are
    raised to that of a stamp."""

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


Pace = Annotated[OpenPace | ClosedPace, Field(discriminator="kind")]
Payload = Annotated[
    FixedPayload
    | GaussianPayload
    | HistogramPayload
    | RecordsPayload
    | TextPayload
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


class Target(BaseModel):
    """One broker address."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    host: str
    """Host name or address."""
    port: int = Field(ge=0, le=65535)
    """TCP port; with QUIC, the port of UDP."""
    tls: bool = False
    """True if connections to it are under TLS, by each population's `tls`."""
    websocket: str | None = None
    """Path of the WebSocket, with a query if there is one; null: MQTT over TCP."""
    quic: bool = False
    """True if connections use QUIC. Its TLS has the settings of each population's `tls`."""
    ports: Mapping[str, Annotated[int, Field(ge=0, le=65535)]] = Field(default_factory=dict)
    """Ports of the same broker for clients of other protocols, by the kind of the protocol."""
    addresses: tuple[str, ...] = ()
    """Addresses of the host; empty: each agent resolves it at its start."""

    def __str__(self) -> str:
        host = self.host_in_url
        if self.websocket is not None:
            return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{self.websocket}"
        scheme = QUIC_SCHEME if self.quic else "mqtts://" if self.tls else ""
        return f"{scheme}{host}:{self.port}"

    @property
    def host_in_url(self) -> str:
        """The host as a URL has it: an address of IPv6 in brackets, with %25 before its zone
        [RFC 6874, 2]."""
        return f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host

    @property
    def reachable_at(self) -> str:
        """The address that clients of the controller connect to: the first one that is given, else
        the host."""
        return self.addresses[0] if self.addresses else self.host

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol that clients speak here; of MQTT, those of all its versions."""
        return MQTT

    @property
    def speaks_mqtt(self) -> bool:
        """True if it is the address of a listener for MQTT."""
        return self.can is MQTT

    @property
    def is_loopback(self) -> bool:
        """True if it is surely on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def ip_version(self) -> int | None:
        """4 or 6; None if the host is a name."""
        try:
            return ip_address(self.host).version
        except ValueError:
            return None


class PublisherTarget(Target):
    """The address of a ZeroMQ publisher that already runs."""

    def __str__(self) -> str:
        return f"{ZMQ_SCHEME}{super().__str__()}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["zmtp-3.1"]


class NatsTarget(Target):
    """The address of a NATS server that already runs, for clients of its own protocol."""

    def __str__(self) -> str:
        return f"{'natss' if self.tls else 'nats'}://{self.host_in_url}:{self.port}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["nats"]


def parse_target(text: object) -> Target:
    """The address in `mqtt://HOST[:PORT]`, under TLS `mqtts://HOST[:PORT]`, over WebSocket
    `ws://HOST[:PORT][/PATH]` and `wss://`, over QUIC `quic://HOST[:PORT]`, for a NATS server
    `nats://HOST[:PORT]`, or for a publisher of ZeroMQ `zmq://HOST:PORT`."""
    found = _URL.fullmatch(text.strip()) if isinstance(text, str) else None
    scheme = found["scheme"] if found is not None else ""
    if found is None or (not scheme.startswith("ws") and found["path"] not in {"", "/"}):
        raise UnfitError(text, f"is {TARGET_ALLOWED}", _target_hint(text))
    if scheme == "zmq" and not found["port"]:
        raise UnfitError(text, "is zmq://HOST:PORT", "publishers of ZeroMQ have no usual port")
    port = int(found["port"] or DEFAULT_PORTS[scheme])
    if not 0 < port <= 65535:
        raise UnfitError(text, "is a port of 1 to 65535")
    host = found["address"] or found["host"]
    if found["address"]:
        _address(found["address"], text)
    if found["zone"]:
        host = _with_zone(found["address"], found["zone"], text)
    if scheme == "zmq":
        return PublisherTarget(host=host, port=port)
    if scheme in {"nats", "natss"}:
        return NatsTarget(host=host, port=port, tls=scheme in UNDER_TLS)
    path = found["path"] if found["path"].startswith("/") else f"/{found['path']}"
    websocket = path if scheme.startswith("ws") else None
    quic = scheme == "quic"
    return Target(host=host, port=port, tls=scheme in UNDER_TLS, websocket=websocket, quic=quic)


def parse_targets(value: object) -> tuple[Target, ...]:
    """The addresses in one URL or a list of them."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise UnfitError(value, f"is {TARGET_ALLOWED}, or a list of them")
        targets = tuple(parse_target(item) for item in value)
        if len({target.can.title for target in targets}) > 1:
            raise UnfitError(value, "are targets of one protocol: zmq://, nats://, or of MQTT")
        return targets
    return (parse_target(value),)


def parse_sources(value: object) -> tuple[str, ...] | None:
    """Source addresses in addresses and ranges; `auto` is `None`, and so is nothing at all."""
    if value is None or value == "auto":
        return None
    items = value if isinstance(value, (list, tuple)) else [value]
    addresses: list[str] = []
    for item in items:
        addresses.extend(_addresses(item))
    if len(addresses) > SOURCES_MAX:
        raise UnfitError(value, f"are at most {SOURCES_MAX} source addresses")
    return tuple(addresses)


def _addresses(item: object) -> list[str]:
    if not isinstance(item, str):
        raise UnfitError(item, SOURCES_ALLOWED)
    low, dash, high = item.partition("-")
    first = _address(low.strip(), item)
    if not dash:
        return [str(first)]
    last = _address(high.strip(), item)
    if not (isinstance(first, IPv4Address) and isinstance(last, IPv4Address)) or first > last:
        raise UnfitError(item, "is a range of IPv4 addresses, lowest first")
    if int(last) - int(first) >= SOURCES_MAX:
        raise UnfitError(item, f"is a range of at most {SOURCES_MAX} addresses")
    return [str(IPv4Address(number)) for number in range(int(first), int(last) + 1)]


def _address(text: str, shown: object) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise UnfitError(shown, SOURCES_ALLOWED) from None


def _with_zone(address: str, zone: str, shown: object) -> str:
    """Returns an address with its zone [RFC 6874, 2]. Raises UnfitError if it can have none."""
    if not ip_address(address).is_link_local:
        hint = "a zone chooses the interface of a link-local address: leave %25ZONE out"
        raise UnfitError(shown, "with a zone is an address of fe80::/10", hint)
    return f"{address}%{zone}"


def _target_hint(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    scheme, separator, rest = text.partition("://")
    if not separator:
        return f"write mqtt://{text}" if _URL.fullmatch(f"mqtt://{text}") else None
    if rest.count(":") > 1 and "[" not in rest:
        return f"write an address of IPv6 in brackets: {scheme}://[::1]:1883"
    if "%" in rest.partition("]")[0]:
        return f"write a zone after %25: {scheme}://[fe80::1%25eth0]:1883"
    if scheme == "tcp":
        return f"write mqtt://{rest} for a broker, zmq://{rest} for a publisher of ZeroMQ"
    known = _SCHEMES.get(scheme)
    if known is None:
        return (
            "this version speaks MQTT (mqtt://, under TLS mqtts://), MQTT over WebSocket (ws://, "
            "under TLS wss://), MQTT over QUIC (quic://), NATS (nats://, under TLS natss://) and "
            "ZeroMQ (zmq://)"
        )
    if "@" in rest:
        return "write username and password as keys: of the population, or of the source"
    if scheme != known:
        return f"write {known}://{rest}"
    if scheme.startswith("ws"):
        return "a path has no spaces and no #: write %20 and %23"
    return "only ws:// and wss:// have a path" if "/" in rest.rstrip("/") else None


DEFAULT_PORT = 1883
DEFAULT_TLS_PORT = 8883
NATS_PORT = 4222
QUIC_PORT = 14567
"""Port of EMQX; MQTT over QUIC has no registered one."""
QUIC_SCHEME = "quic://"
DEFAULT_PORTS = {
    **{"mqtt": DEFAULT_PORT, "mqtts": DEFAULT_TLS_PORT, "ws": 80, "wss": 443},
    "quic": QUIC_PORT,
    **{"nats": NATS_PORT, "natss": NATS_PORT},
}
UNDER_TLS = frozenset({"mqtts", "wss", "quic", "natss"})
ZMQ_SCHEME = "zmq://"
NATS_SCHEMES = ("nats://", "natss://")
TARGET_ALLOWED = (
    "mqtt[s]://HOST[:PORT], ws[s]://HOST[:PORT][/PATH], quic://HOST[:PORT], nats[s]://HOST[:PORT] "
    "or zmq://HOST:PORT"
)
SOURCES_MAX = 4096
SOURCES_ALLOWED = 'is "auto", or addresses and ranges such as 127.0.0.1-127.0.0.8'

_SCHEMES = {
    **{scheme: scheme for scheme in ("mqtt", "mqtts", "ws", "wss", "quic", "zmq", "nats", "natss")},
    **{"ssl": "mqtts", "tls": "mqtts", "http": "ws", "https": "wss"},
}
_URL = re.compile(
    r"(?P<scheme>mqtts?|wss?|quic|zmq|natss?)://(?:\[(?P<address>[0-9A-Fa-f:.]+)"
    r"(?:%25(?P<zone>[A-Za-z0-9._~-]{1,15}))?\]"
    r"|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))(?::(?P<port>\d{1,6}))?"
    r"(?P<path>(?:[/?][!-\"$-~]*)?)",
    re.ASCII,
)
