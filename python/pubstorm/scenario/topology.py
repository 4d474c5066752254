"""The brokers that a run starts, the services beside them and the bridges between them. The
docstrings are the reference that users read. It knows neither populations nor how a broker is
started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pubstorm.scenario.base import OrWord, Part
from pubstorm.scenario.fields import (
    ClientText,
    Flag,
    KeepAlive,
    Name,
    PortNumber,
    PositiveDuration,
    QoS,
    SmallCount,
    Text,
    TopicFilter,
    one_of,
)
from pubstorm.scenario.network import Network
from pubstorm.scenario.tls import Tls
from pubstorm.units import UnfitError

SECOND_NS = 10**9
KINDS = ("embedded", "mosquitto", "rabbitmq", "nats", "command")
KNOW_BRIDGES = ("mosquitto",)
"""Kinds that know a bridge by a bit of its protocol level, and send it nothing that came by it."""
REFUSE_BRIDGES = ("embedded", "rabbitmq", "nats")
"""Kinds that take a client with that bit for one that speaks no MQTT."""


def plain_settings(value: object) -> object:
    """Keeps every setting a plain value or a list of them."""
    settings = {} if value is None else value
    if not isinstance(settings, dict):
        raise UnfitError(value, "is a mapping of settings")
    for key, setting in settings.items():
        items = setting if isinstance(setting, list) else [setting]
        if not all(isinstance(item, (str, int, float, bool)) for item in items):
            raise UnfitError(setting, f"for {key} is a plain value or a list of them")
        if any("\n" in part for part in (key, *map(str, items))):
            raise UnfitError(setting, f"for {key} is a value on one line")
    return settings


Settings = Annotated[Mapping[str, Any], BeforeValidator(plain_settings)]


class Restart(Part):
    """How often a broker that ends unasked is started again."""

    at_most: SmallCount = 3
    """So many times within the time; then it is left alone and said to flap."""
    within: PositiveDuration = 60 * SECOND_NS
    """The time."""


def _restart(value: object) -> object:
    if value == "never":
        return None
    if value is None or not isinstance(value, (dict, Restart)):
        raise UnfitError(value, "is {at_most: 3, within: 1min} or never")
    return value


def _seed(value: object) -> object:
    if value is None or isinstance(value, (bool, list, tuple)):
        return value
    raise UnfitError(value, "are true, false and a list of populations")


SEED_JSON = WithJsonSchema(
    {
        "title": "flag or list",
        "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}],
    }
)


class Federation(Part):
    """Virtual hosts of a RabbitMQ broker beside its own one, and federation of messages between
    them: `customer-0`, `customer-1` and so on. A client chooses one by its user name, such as
    `customer-{n}:guest` with the password `guest`; without, it is in the broker's own."""

    vhosts: SmallCount
    """How many virtual hosts."""
    direction: Annotated[Literal["out", "in", "both"], BeforeValidator(one_of("out", "in", "both"))]
    """`out`: what clients of a virtual host publish reaches subscribers of the broker's own; `in`:
    the other way."""


class Broker(Part):
    """Brokers of one kind that the run starts and stops itself; a plain text is the kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"

    kind: Annotated[
        Literal["embedded", "mosquitto", "rabbitmq", "nats", "command"],
        BeforeValidator(one_of(*KINDS)),
    ]
    """`embedded` comes with Pubstorm; `mosquitto`, `rabbitmq` and `nats` have to be installed;
    `command` is any other program."""
    count: Annotated[SmallCount, OrWord("auto")] = 1
    """How many of them; `auto`: as many as the clients need that connect to them, by the open files
    that a process may have."""
    port: PortNumber | None = None
    """Port of the first of them; the others count up from it. Default: free ports."""
    binary: Text | None = None
    """Path of the program, to compare two builds; a relative one is from the folder of the scenario
    file. Default: the one that is installed."""
    command: tuple[Text, ...] = ()
    """For kind `command`: the program and its arguments, with `{port}` and `{folder}` in them;
    `{{` and `}}` are braces. It listens on 127.0.0.1 and stays in the foreground."""
    tls: Annotated[
        Literal["none", "server", "mutual", "psk"],
        BeforeValidator(one_of("none", "server", "mutual", "psk")),
    ] = "none"
    """Whether clients and bridges connect under TLS, for mosquitto: with the broker's certificate,
    with certificates on both sides, or with pre-shared keys. The run makes keys for all of them."""
    passwords: Flag = False
    """Whether clients and bridges need a user name and a password, for mosquitto and rabbitmq. The
    run makes them for all that have none of their own, and tells the broker all of them."""
    acl: tuple[Text, ...] = ()
    """Lines of mosquitto's ACL file, such as `pattern readwrite box/%u/#`. Populations and
    monitors may read and write everything."""
    plugins: tuple[Text, ...] = ()
    """For kind `rabbitmq`: plugins beside that for MQTT. The figures of `rabbitmq_prometheus` are
    among the broker's readings."""
    federation: Federation | None = None
    """For kind `rabbitmq`: a virtual host for each customer, federated. Default: none."""
    cluster: Flag = False
    """For kind `rabbitmq`: whether the brokers of this name are the nodes of one cluster, each on
    an address of its own: 127.0.0.1, 127.0.0.2 and so on."""
    auth: Text | None = None
    """Where it looks up users, passwords and rights, for embedded: a name under `services`, or
    redis://HOST:PORT/DB. Default: everybody may do everything."""
    restart: Annotated[Restart | None, BeforeValidator(_restart), OrWord("never")] = None
    """Whether one that ends unasked is started again. Default: never, and the run fails."""
    settings: Settings = Field(default_factory=dict)
    """Settings in the broker's own words: lines of `mosquitto.conf`, of `rabbitmq.conf` or of
    NATS' configuration, or options of the embedded broker such as `max-queued`."""


class Service(Part):
    """A program beside the brokers that the run starts and stops itself; a plain text is the
    kind."""

    SHORT_FOR: ClassVar[str | None] = "kind"

    kind: Annotated[Literal["redis"], BeforeValidator(one_of("redis"))]
    """`redis` has to be installed; it listens on 127.0.0.1 and keeps nothing on the disk."""
    port: PortNumber | None = None
    """Its port. Default: a free one."""
    binary: Text | None = None
    """Path of the program; a relative one is from the folder of the scenario file. Default: the one
    that is installed."""
    settings: Settings = Field(default_factory=dict)
    """Settings in its own words: lines of `redis.conf` such as `maxmemory: 100mb`."""
    seed: Annotated[tuple[Name, ...] | bool | None, BeforeValidator(_seed), SEED_JSON] = None
    """Whether the users of the populations, their passwords and their rights are written to it
    before the brokers start, as `pubstorm seed` does; a list names the populations. Default: all of
    them where a broker's `auth` names the service."""

    @property
    def seeded_populations(self) -> tuple[str, ...] | None:
        """Names of the populations whose users are written, where it is not all of them."""
        return self.seed if isinstance(self.seed, tuple) else None


class BridgeTopic(Part):
    """Topics that cross a bridge, in mosquitto's words."""

    topic: TopicFilter
    """Topic filter, without the prefixes."""
    direction: Annotated[Literal["out", "in", "both"], BeforeValidator(one_of("out", "in", "both"))]
    """`out`: from the small broker to the main one; `in`: the other way."""
    qos: QoS = 0
    """Highest QoS on the bridge."""
    local_prefix: ClientText = ""
    """What stands before the topic on the small broker."""
    remote_prefix: ClientText = ""
    """What stands before it on the main broker; `{n}` is the number of the small one."""


class Retry(Part):
    """Waits of a bridge between attempts to connect, at random from the first to the longest."""

    after: PositiveDuration = 5 * SECOND_NS
    """Shortest wait; whole seconds."""
    up_to: PositiveDuration = 30 * SECOND_NS
    """Longest wait; whole seconds."""


class Bridge(Part):
    """Bridges from each broker of one name to one main broker."""

    from_: Name = Field(alias="from")
    """The small brokers: a name under `brokers`, of kind mosquitto."""
    to: Name
    """The main broker: a name under `brokers` that stands for one broker, or `target`."""
    topics: tuple[BridgeTopic, ...] = Field(min_length=1)
    """What crosses."""
    client_id: ClientText | None = None
    """Client identifier of a bridge on the main broker. Default: NAME-{n}."""
    username: ClientText | None = None
    """User name. Default: the client identifier where the main broker wants one, else none."""
    password: ClientText | None = None
    """Password. Default: made by the run where the main broker wants one."""
    protocol: Annotated[
        Literal["mqttv31", "mqttv311", "mqttv50"],
        BeforeValidator(one_of("mqttv31", "mqttv311", "mqttv50")),
    ] = "mqttv311"
    """mosquitto's `bridge_protocol_version`."""
    clean_session: Flag = False
    """Whether the main broker forgets a bridge when it is away."""
    notifications: Flag = True
    """Whether bridges tell the main broker that they are up; without, they are not counted."""
    keep_alive: KeepAlive = 60 * SECOND_NS
    """Keep-alive in whole seconds, at least 5."""
    reconnect: Retry = Retry()
    """Waits between attempts to connect."""
    tls: Tls | None = None
    """TLS to a target that asks for it; for a broker that the run starts, its `tls` decides."""
    network: Network | None = None
    """A network of their own for the small brokers, with a link of these properties to the main
    broker; needs root. Default: everything is on the loopback interface."""
    settings: Settings = Field(default_factory=dict)
    """More lines for the bridge in `mosquitto.conf`, such as `max_inflight_messages`."""


class Topology(Part):
    """The brokers that the run itself starts and stops, the services beside them and the bridges
    between them."""

    brokers: Mapping[Name, Broker] = Field(default_factory=dict)
    """Brokers by name; in this order they are the targets."""
    services: Mapping[Name, Service] = Field(default_factory=dict)
    """Programs beside the brokers, by name: up before them, gone after them."""
    bridges: Mapping[Name, Bridge] = Field(default_factory=dict)
    """Bridges by name."""
    joined: Flag = False
    """Whether a message published at one target reaches subscribers at the others, as in a
    cluster; with a `cluster` of its own it is so."""

    @property
    def is_joined(self) -> bool:
        """Whether all targets are one space of topics."""
        return self.joined or any(broker.cluster for broker in self.brokers.values())

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks of its bridges."""
        bridges = self.bridges.values()
        return tuple(bridge.network for bridge in bridges if bridge.network is not None)

    def is_seeded(self, name: str) -> bool:
        """Whether the run writes users to a service."""
        seed = self.services[name].seed
        if seed is None:
            return any(broker.auth == name for broker in self.brokers.values())
        return bool(seed)
