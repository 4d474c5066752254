"""The brokers that a run starts, the services beside them and the bridges between them. The
docstrings are the reference that users read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag

from pubstorm.contract.capabilities import CAPABILITIES, ProtocolName
from pubstorm.contract.template import Template
from pubstorm.contract.template import VariableKind as TemplateKind
from pubstorm.quantities import SECOND_NS, UnfitError, describe, write_duration
from pubstorm.scenario.base import AnyOf, OrWord, Part, Variant
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    AMQP1_PORT,
    Bandwidth,
    ClientText,
    Duration,
    FileName,
    Flag,
    HostLabel,
    HostsTimeout,
    KeepAlive,
    MemoryLimit,
    Name,
    PathText,
    PortNumber,
    PositiveDuration,
    Processor,
    QoS,
    ShareBelowOne,
    SmallCount,
    Text,
    TopicFilter,
    Words,
)
from pubstorm.scenario.services import AnyService, Settings
from pubstorm.scenario.stores import DeclaredName, Exchange, Stream

EMBEDDED_OPTIONS = (
    "max-connections",
    "max-queued",
    "max-inflight",
    "max-packet-size",
    "quic-idle-timeout",
    "quic-no-migration",
    "listen",
    "log",
)
"""Settings of the embedded broker; the run itself gives the other options."""


class Restart(Part):
    """Restarts of a broker that ends unexpectedly."""

    at_most: SmallCount = 3
    """Most restarts within the time `within`; a broker that needs more stays down."""
    within: PositiveDuration = 60 * SECOND_NS
    """Time in which restarts are counted."""


def _restart(value: object) -> object:
    if value == "never":
        return None
    if value is None or not isinstance(value, (dict, Restart)):
        raise UnfitError(value, "is {at_most: 3, within: 1min} or never")
    return value


class Federation(Part):
    """Virtual hosts of a RabbitMQ broker beside its own one, and federation of messages between
    them: `customer-0`, `customer-1` and so on. A client chooses one by its user name, such as
    `customer-{n}:guest` with the password `guest`; without, it is in the broker's own."""

    vhosts: SmallCount
    """Number of virtual hosts."""
    direction: Literal["out", "in", "both"]
    """`out`: what clients of a virtual host publish reaches subscribers of the broker's own; `in`:
    the other way."""


TlsMode = Literal["none", "server", "mutual", "psk"]
Transport = Literal["tcp", "websocket", "quic"]
AMQP1_PLUGIN = "rabbitmq_amqp1_0"
WEBSOCKET_PATH = "/mqtt"
"""Path of WebSockets at brokers that the run starts."""


class Broker(Variant):
    """Brokers of one kind that the run starts and stops itself; a plain text is the kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"
    KNOWS_BRIDGES: ClassVar[bool] = False
    """It knows a bridge by a bit of its protocol level, and sends it nothing that came by it."""
    REFUSES_BRIDGES: ClassVar[bool] = True
    """It takes a client with that bit for one that speaks no MQTT."""
    QOS_MAX: ClassVar[int] = 2
    """Highest QoS that it takes."""
    SPEAKS: ClassVar[str] = "MQTT"
    """Title of the protocol of its port."""
    OTHER_PORTS: ClassVar[Mapping[ProtocolName, str]] = {}
    """Protocols whose clients have another port, each with the condition of that; empty: none."""
    HINTS: ClassVar[Mapping[str, str]] = {
        "tls": "the run makes keys for mosquitto only: use kind: mosquitto",
        "passwords": "the run makes passwords for mosquitto and rabbitmq only",
        "acl": "these are lines of mosquitto's ACL file: use kind: mosquitto",
        "auth": "mosquitto has passwords and acl; other brokers have settings",
        "plugins": "plugins are RabbitMQ's: use kind: rabbitmq",
        "federation": "virtual hosts and federation are RabbitMQ's: use kind: rabbitmq",
        "cluster": "RabbitMQ makes clusters; mosquitto is connected with topology.bridges",
        "command": "binary names another program of this kind",
        "files": "settings has the configuration of this kind",
        "environment": "only kind: command has variables",
        "version": "this kind states its version itself",
        "binary": "the program is the first word of command",
        "settings": "command has the options of the program",
    }

    kind: str
    """The program."""
    count: Annotated[SmallCount, OrWord("auto")] = 1
    """Number of brokers. `auto`: as many as their clients need, by the open files that a process
    may have."""
    port: PortNumber | None = None
    """Port of the first broker; the others have the ports after it. Default: free ports."""
    hosts: HostLabel | None = None
    """On a cluster: label of the hosts of the brokers (`ray start --labels pubstorm=LABEL`), or the
    address of one host. Several hosts are used in turn. Default: the controller's host. With
    `fleet.on: local`, everything is on this host."""
    transport: Transport = "tcp"
    """Connections of clients: TCP alone, or WebSocket, for which the broker has a second listener
    with the same `tls`, or QUIC, which always has TLS. Monitors and bridges use TCP."""
    cpus: tuple[Processor, ...] = ()
    """Processors that each broker may use, with all processes that it starts, such as `[0]`.
    Default: all of its host."""
    memory: MemoryLimit | None = None
    """Memory that each broker may use, with all processes that it starts. A cgroup of version 1 or
    2 limits it; the result says if the host allows no cgroup. Not with `hosts`. Default: no
    limit."""
    restart: Annotated[Restart | None, BeforeValidator(_restart), OrWord("never")] = None
    """Restarts of a broker that ends unexpectedly. Default: never, and the run fails."""

    def rules(self) -> Iterator[Finding]:
        """Yields shares of a host that it cannot have."""
        for number, cpu in enumerate(self.cpus):
            if cpu in self.cpus[:number]:
                message = f"found processor {cpu} again, allowed is each once"
                yield ("cpus", number), message, "leave it out"
        if self.memory is not None and self.hosts is not None:
            message = "found memory with hosts, allowed is one of them"
            yield ("memory",), message, "cpus goes with hosts; memory is limited here only"

    @property
    def other_ports(self) -> Collection[ProtocolName]:
        """Protocols whose clients have another port of this broker."""
        return [each for each, condition in self.OTHER_PORTS.items() if not condition]

    @property
    def speaks(self) -> Collection[str]:
        """Titles of the protocols that this broker speaks."""
        return {self.SPEAKS, *(CAPABILITIES[each].title for each in self.other_ports)}

    @property
    def tls_mode(self) -> TlsMode:
        """TLS for clients and bridges."""
        if self.serves_quic:
            return "server"
        return self.tls if isinstance(self, Mosquitto) else "none"

    @property
    def serves_quic(self) -> bool:
        """True if clients connect over QUIC."""
        return self.transport == "quic"

    @property
    def serves_websocket(self) -> bool:
        """True if clients connect over WebSocket."""
        return self.transport == "websocket"

    @property
    def has_passwords(self) -> bool:
        """True if the run makes user names and passwords for clients and bridges."""
        return isinstance(self, Mosquitto | Rabbitmq) and self.passwords

    @property
    def is_cluster(self) -> bool:
        """True if the brokers of this name are the nodes of one cluster."""
        return isinstance(self, Rabbitmq) and self.cluster

    @property
    def user_store(self) -> str | None:
        """The service or address where the broker looks up users; None if it looks up none."""
        return self.auth if isinstance(self, Embedded) else None


class InstalledBroker(Broker):
    """Brokers of a program that Pubstorm knows."""

    binary: PathText | None = None
    """Path of the program, to compare two builds; a relative one is from the folder of the scenario
    file. Default: the one that is installed."""
    settings: Settings = Field(default_factory=dict)
    """Settings in the broker's own words."""

    def unfit_settings(self) -> Iterator[tuple[str, str, str | None]]:
        """Yields the settings that it cannot have: their key, what is wrong, and a hint."""
        yield from ()


class Embedded(InstalledBroker):
    """The broker that comes with Pubstorm. Its settings are options such as `max-queued`."""

    kind: Literal["embedded"]
    """`embedded`."""
    auth: Text | None = None
    """Store of users, passwords and rights: a name under `services`, or redis://HOST:PORT/DB.
    Default: every client may do everything."""

    def unfit_settings(self) -> Iterator[tuple[str, str, str | None]]:
        """Yields the settings that are no option."""
        for key in self.settings:
            name = key.replace("_", "-")
            if name not in EMBEDDED_OPTIONS:
                close = get_close_matches(name, EMBEDDED_OPTIONS, n=1)
                hint = f"did you mean {close[0]}?" if close else None
                allowed = ", ".join(EMBEDDED_OPTIONS)
                yield key, f"found the unknown setting {key!r}, allowed are {allowed}", hint


class Mosquitto(InstalledBroker):
    """mosquitto, which has to be installed. Its settings are lines of `mosquitto.conf`."""

    KNOWS_BRIDGES: ClassVar[bool] = True
    REFUSES_BRIDGES: ClassVar[bool] = False
    kind: Literal["mosquitto"]
    """`mosquitto`."""
    tls: TlsMode = "none"
    """TLS for clients and bridges: none, with the broker's certificate, with certificates on both
    sides, or with pre-shared keys. The run makes keys for all of them."""
    passwords: Flag = False
    """Clients and bridges need a user name and a password. The run makes both for all that have
    none of their own, and gives them to the broker."""
    acl: tuple[Text, ...] = ()
    """Lines of mosquitto's ACL file, such as `pattern readwrite box/%u/#`. Populations and
    monitors may read and write everything."""

    def rules(self) -> Iterator[Finding]:
        """Yields rights without passwords."""
        yield from super().rules()
        if self.acl and not self.passwords:
            hint = "without passwords everybody can be anybody"
            yield ("acl",), "found acl without passwords, needed is passwords: true", hint


class Rabbitmq(InstalledBroker):
    """RabbitMQ, which has to be installed. Its settings are lines of `rabbitmq.conf`."""

    OTHER_PORTS: ClassVar[Mapping[ProtocolName, str]] = {
        "amqp": "",
        "amqp1": f"with plugins: [{AMQP1_PLUGIN}]",
    }
    kind: Literal["rabbitmq"]
    """`rabbitmq`."""
    passwords: Flag = False
    """Clients and bridges need a user name and a password. The run makes both for all that have
    none of their own, and gives them to the broker."""
    plugins: tuple[Text, ...] = ()
    """Plugins beside the one for MQTT. The figures of `rabbitmq_prometheus` are among the broker's
    samples. With `rabbitmq_amqp1_0`, clients of AMQP 1.0 use the port of AMQP."""
    federation: Federation | None = None
    """A virtual host for each customer, federated. Default: none."""
    cluster: Flag = False
    """The brokers of this name are the nodes of one cluster, each on an address of its own:
    127.0.0.1, 127.0.0.2 and so on."""

    @property
    def other_ports(self) -> Collection[ProtocolName]:
        """Protocols whose clients have another port of this broker."""
        return ["amqp", "amqp1"] if AMQP1_PLUGIN in self.plugins else ["amqp"]


class Nats(InstalledBroker):
    """NATS, which has to be installed. Its settings are those of NATS' configuration."""

    QOS_MAX: ClassVar[int] = 1
    OTHER_PORTS: ClassVar[Mapping[ProtocolName, str]] = {"nats": ""}
    kind: Literal["nats"]
    """`nats`."""

    def unfit_settings(self) -> Iterator[tuple[str, str, str | None]]:
        """Yields the settings beside which their own block stands."""
        for key in self.settings:
            inner = next((other for other in self.settings if other.startswith(f"{key}.")), None)
            if inner is not None:
                message = f"found {key} beside {inner}, allowed is one of them"
                yield key, message, "a dot stands for a block"


class Kafka(InstalledBroker):
    """Kafka without ZooKeeper, which has to be installed (`scripts/install-brokers kafka`), with
    Java. Its settings are lines of `server.properties`."""

    SPEAKS: ClassVar[str] = "Kafka"
    kind: Literal["kafka"]
    """`kafka`."""


class Command(Broker):
    """Any other program."""

    REFUSES_BRIDGES: ClassVar[bool] = False
    OTHER_PORTS: ClassVar[Mapping[ProtocolName, str]] = {
        "amqp1": f"with {{{AMQP1_PORT}}} in its texts"
    }
    kind: Literal["command"]
    """`command`."""
    command: Words = ()
    """The program and its arguments; relative paths are from the folder of the scenario file. Texts
    in them, in `files`, `environment` and `version` are replaced: `{host}`, `{port}`,
    `{websocket_port}`, `{amqp1_port}` for clients of AMQP 1.0, `{folder}` of the broker, and
    `{brokers}`, the folder of `scripts/install-brokers`. `{{` and `}}` are braces. The program
    listens on the address `{host}`, with `transport: websocket` on both ports, and stays in the
    foreground."""
    files: Mapping[FileName, Text] = Field(default_factory=dict)
    """Files that the run writes into `{folder}` before the start: name and text, such as a
    configuration. A name can begin with folders: `etc/broker.xml`."""
    environment: Mapping[Name, Text] = Field(default_factory=dict)
    """Environment variables of the program, beside those of the run."""
    version: Words = ()
    """A command that prints the version of the program; the first line with a version counts.
    Default: the version is not known."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts that the program finds its ports in."""
        return (*self.command, *self.files.values(), *self.environment.values())

    @property
    def other_ports(self) -> Collection[ProtocolName]:
        """Protocols whose clients have another port of this broker: its texts ask for them."""
        return ["amqp1"] if any(f"{{{AMQP1_PORT}}}" in text for text in self.texts) else []


def _kind_of(value: object) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", value)
    return f"kind {kind}" if isinstance(kind, str) else None


AnyBroker = Annotated[
    Annotated[Embedded, Tag("kind embedded")]
    | Annotated[Mosquitto, Tag("kind mosquitto")]
    | Annotated[Rabbitmq, Tag("kind rabbitmq")]
    | Annotated[Nats, Tag("kind nats")]
    | Annotated[Kafka, Tag("kind kafka")]
    | Annotated[Command, Tag("kind command")],
    Discriminator(_kind_of),
    AnyOf(),
]
"""A broker of any kind."""


def kinds_that_speak(protocol: str) -> list[str]:
    """Returns the kinds of brokers that speak a protocol, with the conditions of that."""
    found = list[str]()
    for broker in (get_args(each)[0] for each in get_args(get_args(AnyBroker)[0])):
        conditions = {CAPABILITIES[each].title: text for each, text in broker.OTHER_PORTS.items()}
        if protocol in {broker.SPEAKS, *conditions}:
            kind = get_args(broker.model_fields["kind"].annotation)[0]
            found.append(f"{kind} {conditions.get(protocol, '')}".strip())
    return found


class BridgeTopic(Part):
    """Topics that cross a bridge, in mosquitto's words."""

    topic: TopicFilter
    """Topic filter, without the prefixes."""
    direction: Literal["out", "in", "both"]
    """`out`: from the small broker to the main one; `in`: the other way."""
    qos: QoS = 0
    """Highest QoS on the bridge."""
    local_prefix: ClientText = ""
    """Text before the topic on the small broker."""
    remote_prefix: ClientText = ""
    """Text before the topic on the main broker; `{n}` is the number of the small broker."""

    def rules(self) -> Iterator[Finding]:
        """Yields texts that a line of `mosquitto.conf` cannot have, and prefixes that are none."""
        if Template.parse(self.topic).has(TemplateKind.RANGE, TemplateKind.CHOICE):
            message = f"found a range in {describe(self.topic)}, allowed are {{n}} and wildcards"
            yield ("topic",), message, "write a line for each topic"
        for key in ("topic", "local_prefix", "remote_prefix"):
            text = getattr(self, key)
            if any(character.isspace() for character in text):
                message = f"found {describe(text)}, allowed is a text without spaces"
                yield (key,), message, "mosquitto divides a line at its spaces"
            if key != "topic" and set(text) & {"+", "#"}:
                message = f"found a wildcard in {describe(text)}, allowed is a prefix without"
                yield (key,), message, None


class Retry(Part):
    """Waits of a bridge between attempts to connect, at random from the first to the longest."""

    after: PositiveDuration = 5 * SECOND_NS
    """Shortest wait; whole seconds."""
    up_to: PositiveDuration = 30 * SECOND_NS
    """Longest wait; whole seconds."""


KEEP_ALIVE_MIN_NS = 5 * SECOND_NS
"""mosquitto's own bound."""
KEYS_OF_SETTINGS = {
    "connection": "from",
    "address": "to",
    "addresses": "to",
    "topic": "topics",
    "notifications": "notifications",
    "notification_topic": "notifications",
    "notifications_local_only": "notifications",
    "remote_clientid": "client_id",
    "clientid": "client_id",
    "local_clientid": "client_id",
}
"""mosquitto's words for what the scenario has to know, and its keys for them."""


class ScenarioNetwork(Part):
    """A network namespace for the small brokers of a bridge. Its link to the main broker has these
    properties in each direction; without any it can only be unplugged."""

    delay: Duration = 0
    """Delay of each packet."""
    jitter: Duration = 0
    """Variation of the delay, at most the delay itself; packets may overtake each other."""
    loss: ShareBelowOne = 0
    """Share of the packets that get lost, at random."""
    rate: Bandwidth | None = None
    """Bandwidth of the link, for all bridges together; packets queue for it."""

    def rules(self) -> Iterator[Finding]:
        """Yields a jitter above the delay."""
        if self.jitter > self.delay:
            found = f"found {write_duration(self.jitter)}"
            yield ("jitter",), f"{found}, allowed is at most the delay, which varies", None

    @property
    def needs_netem(self) -> bool:
        """True if the kernel's network emulator is needed; a rate alone does not need it."""
        return bool(self.delay or self.jitter or self.loss)


class Bridge(Part):
    """Bridges from each broker of one name to one main broker."""

    from_: Name = Field(alias="from")
    """The small brokers: a name under `brokers`, of kind mosquitto."""
    to: Name
    """The main broker: a name under `brokers` that stands for one broker, or `target`."""
    topics: tuple[BridgeTopic, ...] = Field(min_length=1)
    """Topics that cross the bridges."""
    client_id: ClientText | None = None
    """Client identifier of a bridge on the main broker. Default: NAME-{n}."""
    username: ClientText | None = None
    """User name. Default: the client identifier where the main broker wants one, else none."""
    password: ClientText | None = None
    """Password. Default: made by the run where the main broker wants one."""
    protocol: Literal["mqttv31", "mqttv311", "mqttv50"] = "mqttv311"
    """mosquitto's `bridge_protocol_version`."""
    clean_session: Flag = False
    """The main broker forgets a bridge that disconnects."""
    notifications: Flag = True
    """Bridges report to the main broker that they are up; without reports they are not counted."""
    keep_alive: KeepAlive = 60 * SECOND_NS
    """Keep-alive in whole seconds, at least 5."""
    reconnect: Retry = Retry()
    """Waits between attempts to connect."""
    tls: Tls | None = None
    """TLS to a target that asks for it; for a broker that the run starts, its `tls` decides."""
    network: ScenarioNetwork | None = None
    """A network of their own for the small brokers, with a link of these properties to the main
    broker; needs root. Default: everything is on the loopback interface."""
    settings: Settings = Field(default_factory=dict)
    """More lines for the bridge in `mosquitto.conf`, such as `max_inflight_messages`."""

    def rules(self) -> Iterator[Finding]:
        """Yields values that a line of `mosquitto.conf` cannot have."""
        if self.keep_alive < KEEP_ALIVE_MIN_NS:
            found = f"found {write_duration(self.keep_alive)}"
            yield ("keep_alive",), f"{found}, allowed are 5s and more", "mosquitto's own bound"
        for key in ("after", "up_to"):
            value = getattr(self.reconnect, key)
            if value % SECOND_NS:
                message = f"found {write_duration(value)}, allowed are whole seconds"
                yield ("reconnect", key), message, "mosquitto counts this wait in seconds"
        for key in KEYS_OF_SETTINGS.keys() & self.settings.keys():
            message = f"found {key} in settings, allowed are mosquitto's other words for a bridge"
            yield ("settings", key), message, f"{KEYS_OF_SETTINGS[key]} of the bridge says it"
        for key in ("client_id", "username", "password"):
            text = getattr(self, key)
            if text is not None and ("\n" in text or "\r" in text):
                yield (key,), f"found a line break in {describe(text)}, allowed is one line", None


class ScenarioTopology(Part):
    """The brokers that the run itself starts and stops, the services beside them and the bridges
    between them."""

    brokers: Mapping[Name, AnyBroker] = Field(default_factory=dict)
    """Brokers by name; in this order they are the targets."""
    services: Mapping[Name, AnyService] = Field(default_factory=dict)
    """Programs beside the brokers, by name. Redis starts before the brokers and ends after them; a
    `command` starts after them and ends before them."""
    bridges: Mapping[Name, Bridge] = Field(default_factory=dict)
    """Bridges by name."""
    streams: Mapping[Name, Stream] = Field(default_factory=dict)
    """Streams of JetStream by name. Leave out a stream that a target has already."""
    exchanges: Mapping[DeclaredName, Exchange] = Field(default_factory=dict)
    """Exchanges of AMQP by name. Leave out an exchange that a target has already."""
    hosts_timeout: HostsTimeout = 5 * SECOND_NS
    """On a cluster: silence after which a host of brokers, services or publishers counts as lost,
    with all that the run has started on it. Hosts whose processors are full need a longer time."""
    joined: Flag = False
    """A message published at one target reaches subscribers at the others, as in a cluster. A
    `cluster` of the run always does so."""

    @property
    def is_joined(self) -> bool:
        """True if all targets are one space of topics."""
        return self.joined or any(broker.is_cluster for broker in self.brokers.values())

    @property
    def federates(self) -> bool:
        """True if a broker gives messages of other virtual hosts to its own one."""
        return any(
            isinstance(broker, Rabbitmq)
            and broker.federation is not None
            and broker.federation.direction != "in"
            for broker in self.brokers.values()
        )

    @property
    def networks(self) -> tuple[ScenarioNetwork, ...]:
        """The networks of its bridges."""
        bridges = self.bridges.values()
        return tuple(bridge.network for bridge in bridges if bridge.network is not None)

    @property
    def labels(self) -> frozenset[str]:
        """Labels of the hosts that its brokers and services are placed on."""
        brokers = (broker.hosts for broker in self.brokers.values())
        placed = (*brokers, *(service.label for service in self.services.values()))
        return frozenset(each for each in placed if each is not None)

    def is_seeded(self, name: str) -> bool:
        """Returns True if the run writes users to a service."""
        users = self.services[name].users
        if users is None:
            return any(broker.user_store == name for broker in self.brokers.values())
        return bool(users)
