"""Clients of AMQP 0-9-1, and the checks of their queues against one another and against exchanges.
The docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pubstorm.contract.amqp import (
    AmqpMultiple,
    AmqpProtocol,
)
from pubstorm.contract.capabilities import ProtocolName
from pubstorm.quantities import QuantityField, UnfitError, count, describe
from pubstorm.scenario.addresses import ProxyProtocol
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.fields import (
    TEMPLATE,
    VARIABLE,
    Name,
    client_text,
    text,
)
from pubstorm.scenario.flows import Publication, Subscription
from pubstorm.scenario.populations import RunParts, ShareKeys, Simulated
from pubstorm.scenario.queues import (
    TEMPLATE_JSON,
    WILDCARDS,
    AmqpPublication,
    AmqpSubscription,
    routing_key,
)
from pubstorm.scenario.stores import MAIN, exchange_name

CHANNELS_MAX = 2047
"""RabbitMQ's `channel_max`, unless it is set."""
Channels = Annotated[int, QuantityField(count, 1, CHANNELS_MAX)]


def virtual_host(value: object) -> str:
    """A template of a virtual host, with one value for each client: `/`, or a name without
    slashes."""
    source = client_text(value)
    if source != MAIN and (not source or "/" in VARIABLE.sub("", source)):
        raise UnfitError(value, "is / or a name without slashes, such as vh-{n}")
    return source


def routed_name(value: object) -> str:
    """A template of the name of messages: `EXCHANGE/KEY`, `VHOST/EXCHANGE/KEY` or `QUEUE`. An empty
    virtual host is `/`."""
    source = text(value)
    *front, key = source.split("/", 2)
    exchange = front.pop() if front else ""
    hint = "AMQP has dots where MQTT has slashes: amq.topic/device.1.state"
    try:
        routing_key(key)
        exchange_name(exchange)
        virtual_host("".join(front) or MAIN)
    except UnfitError as unfit:
        allowed = "EXCHANGE/KEY, VHOST/EXCHANGE/KEY or QUEUE, where a key is words between dots"
        raise UnfitError(value, f"is {allowed}", unfit.hint or hint) from unfit
    if not exchange and not key:
        raise UnfitError(value, "is a name with an exchange or a key", hint)
    return source


VirtualHost = Annotated[str, BeforeValidator(virtual_host), TEMPLATE_JSON, TEMPLATE]


class AmqpDifference(ShareKeys):
    """Clients of a population that differ in some keys: those written here replace those of the
    population. A plain share such as `10%` changes nothing, and is measured by itself."""

    subscriptions: tuple[AmqpSubscription, ...] | None = None
    """Subscriptions of each client."""
    publications: tuple[AmqpPublication, ...] | None = None
    """Publications of each client in publish stages."""


class AmqpClients(Simulated):
    """Clients of AMQP 0-9-1 that behave alike, except for what its shares change. They connect to a
    target `amqp://HOST`, or with `protocol: amqp` to brokers of kind `rabbitmq` that the run
    starts."""

    SPEAKS: ClassVar[ProtocolName] = "amqp"
    HINTS: ClassVar[Mapping[str, str]] = {
        "qos": "write confirm: true at publications, and acknowledge at subscriptions",
        "retain": "AMQP keeps no last message",
        "session": "a queue with auto_delete: false keeps the messages of a client that is away",
        "client_id": "clients have the name of their population and a number",
        "user_properties": "write headers",
        "topic": "write exchange and key",
        "group": "clients that name the same queue share it",
        "flapping": "write lifetime, after which a client returns",
        "end": "a client of AMQP closes its connection in order",
        "version": "only MQTT has versions",
    }
    ELSEWHERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("virtual_host", "channels", "mechanism", "exchange", "queue", "confirm", "mandatory"),
        "write protocol: amqp",
    )

    protocol: Literal["amqp"] = "amqp"
    """`amqp`: clients use the port of AMQP. Not needed with a target `amqp://HOST`. Without it,
    clients of a broker that the run starts speak MQTT."""
    virtual_host: VirtualHost | None = None
    """Virtual host, such as `vh-{n}`. At a RabbitMQ that the run starts, the run makes it. Default:
    `/`, or the path of the target."""
    channels: Channels = 1
    """Channels of a connection. Publications and subscriptions have them in turn."""
    mechanism: Literal["plain", "external"] = "plain"
    """Login: `plain`, with `username` and `password`, by default both `guest`; or `external`, with
    the certificate of the client."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    proxy_protocol: ProxyProtocol | None = None
    """Header of the PROXY protocol, with an invented source address for each client. Default: no
    header."""
    subscriptions: tuple[AmqpSubscription, ...] = ()
    """Subscriptions of each client."""
    publications: tuple[AmqpPublication, ...] = ()
    """Publications of each client in publish stages."""
    shares: Mapping[Name, AmqpDifference] = Field(default_factory=dict)
    """Clients of the population that differ, by name: the last ones by number, in the order
    written; the first ones are the `rest`. Each is played, measured and evaluated as a population
    called `POPULATION/SHARE`; `POPULATION` means all of them."""

    def rules(self) -> Iterator[Finding]:
        """Yields a login that is none."""
        if self.mechanism == "external":
            for key in ("username", "password"):
                if getattr(self, key) is not None:
                    message = f"found {key} with mechanism: external, allowed is it with plain"
                    yield (key,), message, "the certificate says who the client is"
            if self.tls is not None and self.tls.certificate is None:
                message = "found mechanism: external without a certificate, needed are both"
                yield ("mechanism",), message, "write tls: {certificate: FILE, key: FILE}"

    def options(self, name: str, around: RunParts, /) -> AmqpProtocol:
        """Returns the options of the clients in the plan, with the exchanges that they declare."""
        exchanges = around.exchanges
        wanted = [each.exchange for _, each in self._flows()]
        named: dict[str, None] = {}
        for exchange in wanted:
            if exchange in exchanges and exchange not in named:
                named[exchange] = None
                wanted.append(str(exchanges[exchange].arguments.get(ALTERNATE, "")))
        return AmqpProtocol(
            connection_name=name,
            virtual_host=self.host_in(around),
            mechanism=self.mechanism,
            channels=self.channels,
            exchanges=tuple(exchanges[each].planned(each) for each in reversed(named)),
            queues=tuple(each.planned for each in self.subscriptions),
            mandatory=tuple(each.mandatory for each in self.publications),
            persistent=tuple(each.persistent for each in self.publications),
        )

    def host_in(self, around: RunParts) -> str:
        """Returns the virtual host: that of the target, unless the population has one."""
        return around.virtual_host if self.virtual_host is None else self.virtual_host

    def topic_of(self, flow: Subscription | Publication, around: RunParts) -> str:
        """Returns the topic of a flow in the plan: virtual host, exchange and key. The virtual host
        `/` is an empty level."""
        assert isinstance(flow, AmqpSubscription | AmqpPublication), "the kind has these"
        if isinstance(flow, AmqpPublication):
            return f"{_level(self.host_in(around))}/{flow.exchange}/{flow.topic}"
        host = WILD if self._is_federated(flow, around) else _level(self.host_in(around))
        return f"{host}/{flow.exchange}/{flow.key}"

    def named(self, text: str, around: RunParts) -> str:
        """Returns the name in the plan that a declared flow has at these clients: the virtual host
        is theirs, unless the flow names one."""
        *front, key = text.split("/", 2)
        exchange = front.pop() if front else ""
        host = front.pop() if front else _level(self.host_in(around))
        return f"{host}/{exchange}/{key}"

    def filter_of(self, subscription: Subscription, around: RunParts) -> str:
        """Returns the filter of a subscription in the plan: a shared queue is a shared group."""
        topic = self.topic_of(subscription, around)
        is_shared = isinstance(subscription, AmqpSubscription) and subscription.is_shared
        return f"$share/{getattr(subscription, 'queue', '')}/{topic}" if is_shared else topic

    def _is_federated(self, flow: AmqpSubscription, around: RunParts) -> bool:
        if flow.federated is not None:
            return flow.federated
        return around.federates and self.host_in(around) == MAIN and flow.exchange == FEDERATED

    @property
    def keeps_session(self) -> bool:
        """True if queues keep the messages of clients that are away."""
        return any(each.keeps for each in self.subscriptions)

    def named_stores(self) -> Iterator[tuple[Path, str, str]]:
        """Yields the exchanges of its flows that no broker has by itself."""
        for path, flow in self._flows():
            if flow.exchange not in BUILT_IN:
                yield (*path, "exchange"), "exchange", flow.exchange

    def rules_within(self, around: RunParts, /) -> Iterator[Finding]:
        """Yields queues that are kept beside others, exchanges of another type than their keys, and
        queues of several populations."""
        for path, part in self._parts():
            subscriptions = part.subscriptions or ()
            kept = [each for each in subscriptions if each.keeps]
            if kept and len(kept) < len(subscriptions):
                found = f"found auto_delete: false at {len(kept)} of {len(subscriptions)}"
                message = f"{found} subscriptions, allowed is all or none"
                hint = "write a population for each kind of queue"
                yield (*path, "subscriptions"), message, hint
            yield from self._rules_of_channels(path, part)
        for path, flow in self._flows():
            yield from self._rules_of_exchange(path, flow, around)
            if isinstance(flow, AmqpSubscription):
                yield from self._rules_of_queue(path, flow, around)

    def _rules_of_exchange(
        self, path: Path, flow: AmqpSubscription | AmqpPublication, around: RunParts
    ) -> Iterator[Finding]:
        declared = around.exchanges.get(flow.exchange)
        kind = BUILT_IN.get(flow.exchange) if declared is None else declared.type
        place, shown = (*path, "key"), describe(flow.exchange)
        is_filter = isinstance(flow, AmqpSubscription)
        if kind == "headers":
            message = f"found {shown}, a headers exchange, allowed are topic, direct and fanout"
            yield (*path, "exchange"), message, "the ledger knows a message by its key"
        elif kind == "fanout" and is_filter and "topic" in flow.model_fields_set:
            message = f"found a key at {shown}, a fanout exchange, allowed is none"
            yield place, message, "each of its queues gets every message"
        elif kind == "direct" and is_filter and flow.exchange:
            if WILDCARDS & {*flow.topic.split(".")}:
                message = f"found key {flow.topic} at {shown}, a direct exchange"
                yield place, f"{message}, allowed is a key without wildcards", None
        elif kind == "direct" and not is_filter and not flow.topic:
            yield place, f"found no key at {shown}, a direct exchange, needed is one", None

    def _rules_of_queue(
        self, path: Path, flow: AmqpSubscription, around: RunParts
    ) -> Iterator[Finding]:
        """Yields a queue that another population has too, in another way."""
        if flow.queue is None or flow.type == "stream":
            return
        for name, other in around.populations.items():
            if other is self or not isinstance(other, AmqpClients) or not self.is_near(other):
                continue
            flows = (each for _, each in other._flows() if isinstance(each, AmqpSubscription))
            same = [each for each in flows if each.queue == flow.queue]
            if not same or self.host_in(around) != other.host_in(around):
                continue
            message = f"found queue {flow.queue}, which {name} has too"
            if not flow.is_shared:
                hint = "write shared: true at both if their clients share it"
                yield (*path, "queue"), f"{message}, allowed is another queue", hint
            elif any(
                other.filter_of(each, around) != self.filter_of(flow, around) for each in same
            ):
                hint = "a queue has the bindings of all who declare it"
                yield (*path, "queue"), f"{message} with another binding, allowed is the same", hint

    def _rules_of_channels(
        self, path: Path, part: AmqpClients | AmqpDifference
    ) -> Iterator[Finding]:
        """Yields flows that cannot be on one channel, and queues that a client would have twice."""
        hint = f"write channels: {self.channels + 1}, or a population for each"
        publications, subscriptions = part.publications or (), part.subscriptions or ()
        for number, publication in enumerate(publications[self.channels :]):
            if publication.confirm != publications[number % self.channels].confirm:
                message = "found publications with and without confirm on one channel"
                place = (*path, "publications", number + self.channels, "confirm")
                yield place, f"{message}, allowed is all or none", hint
        for number, subscription in enumerate(subscriptions):
            on_channel = subscriptions[number % self.channels : number : self.channels]
            modes = {each.acknowledge.planned for each in (*on_channel, subscription)}
            if len(modes) > 1 and any(isinstance(each, AmqpMultiple) for each in modes):
                message = "found acknowledge: {every} beside another one on one channel"
                place = (*path, "subscriptions", number, "acknowledge")
                yield place, f"{message}, allowed is the same at all", hint
            before = {each.queue for each in subscriptions[:number]} - {None}
            if subscription.queue in before:
                message = f"found queue {subscription.queue} twice, allowed is each once"
                again = "a range or a choice in the key makes several bindings"
                yield (*path, "subscriptions", number, "queue"), message, again

    def _parts(self) -> Iterator[tuple[Path, AmqpClients | AmqpDifference]]:
        yield (), self
        for name, share in self.shares.items():
            yield ("shares", name), share

    def _flows(self) -> Iterator[tuple[Path, AmqpSubscription | AmqpPublication]]:
        for path, part in self._parts():
            for number, subscription in enumerate(part.subscriptions or ()):
                yield (*path, "subscriptions", number), subscription
            for number, publication in enumerate(part.publications or ()):
                yield (*path, "publications", number), publication


WILD = "*"
"""Any virtual host, in a filter of the plan."""
ALTERNATE = "alternate-exchange"
"""Argument of an exchange: where messages go that none of its queues takes."""
BUILT_IN = {
    **{"": "direct", "amq.direct": "direct", "amq.fanout": "fanout"},
    **{"amq.topic": "topic", "amq.headers": "headers", "amq.match": "headers"},
}
"""Types of the exchanges that a broker has by itself."""
FEDERATED = "amq.topic"
"""Exchange that the run federates."""


def _level(host: str) -> str:
    """Returns the level of a virtual host in the names of a plan."""
    return "" if host == MAIN else host
