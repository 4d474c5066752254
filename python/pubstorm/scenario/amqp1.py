"""Receivers of AMQP 1.0. The docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pubstorm.contract import U32_MAX
from pubstorm.contract.amqp import Amqp1Protocol, Amqp1Source
from pubstorm.contract.capabilities import ProtocolName
from pubstorm.contract.template import Template, VariableKind
from pubstorm.quantities import SECOND_NS, QuantityField, UnfitError, count
from pubstorm.scenario.credentials import Tls
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    TEMPLATE,
    VARIABLE,
    ClientText,
    Flag,
    HostLabel,
    KeepAlive,
    client_text,
    flow_topic,
)
from pubstorm.scenario.flows import Publication, Subscription
from pubstorm.scenario.populations import Connecting, RunParts

QUEUE = "::"
"""Text between an address and a queue of it, in the words of Artemis."""
WILDCARDS = {"*", "#"}
OF_CLIENT = {VariableKind.NUMBER, VariableKind.ROW}
"""Kinds of variables with another value for each client."""
DEFAULT_CREDIT = 1000
TLS_KEYS = {
    *("ca", "verify", "server_name", "certificate", "key", "passphrase"),
    *("min_version", "max_version", "ciphers", "alpn", "key_log"),
}
"""Keys of `tls` that Python's TLS has."""


def address_name(value: object) -> str:
    """A template of the address of messages: words between dots, without wildcards."""
    source = flow_topic(value)
    if any(set(word) & WILDCARDS or QUEUE in word for word in _words(source)):
        raise UnfitError(value, f"is an address without the wildcards * and #, and without {QUEUE}")
    return source


def source_address(value: object) -> str:
    """A template of the address of a source: words between dots, `*` for one word, `#` for any
    number of words at the end, and the name of a queue after `::`."""
    source = flow_topic(value)
    address, separator, queue = source.partition(QUEUE)
    words = _words(address)
    if any(set(word) & WILDCARDS and word not in WILDCARDS for word in words):
        raise UnfitError(value, "are wildcards that fill a whole word, as in a.*.b.#")
    if "#" in words[:-1]:
        raise UnfitError(value, "is # as the last word only")
    if separator and (not client_text(queue) or QUEUE in queue or any(map(str.isspace, queue))):
        raise UnfitError(value, f"is ADDRESS{QUEUE}QUEUE, where QUEUE is one name for each client")
    return source


def _words(address: str) -> list[str]:
    """Returns the words of an address, with `{}` for a variable. Raises UnfitError."""
    words = VARIABLE.sub("{}", address).split(".")
    if not all(words) or any(map(str.isspace, address)):
        hint = "Artemis has dots where MQTT has slashes: device.1.state"
        allowed = "are words between dots, none of them empty, without spaces"
        raise UnfitError(address, allowed, hint)
    if any(word.count("{}") > 1 for word in words):
        raise UnfitError(address, "is one variable a word")
    return words


SourceAddress = Annotated[
    str,
    BeforeValidator(source_address),
    WithJsonSchema({"title": "address template", "type": "string"}),
    TEMPLATE,
]
Credit = Annotated[int, QuantityField(count, 1, U32_MAX // 2)]


class Amqp1Subscription(Subscription):
    """One link of every client to a source; a plain text is the address."""

    SHORT_FOR: ClassVar[str | None] = "address"

    topic: SourceAddress = Field(alias="address")
    """Address of a queue or a topic, in the broker's words: words between dots, `*` for one word,
    `#` for any number of words at the end, where the broker has these wildcards. `ADDRESS::QUEUE`
    is a queue of an address, as Artemis has it. A range `{a..b}` or a choice `{red|green}` makes
    one link for each value."""
    type: Literal["queue", "topic"] | None = None
    """Capability of the source: receivers share the messages of a `queue`, and each receives all of
    a `topic`. Default: the broker chooses, and each client is expected to receive all."""
    shared: Flag | None = None
    """Clients share the messages of a queue, so that one of them receives each. Default: true with
    `type: queue` or `::QUEUE`, if the name of the queue has no `{n}`."""
    settled: Flag = False
    """The broker settles a message as it sends it, so that it arrives at most once. Default: the
    client accepts each message, which arrives at least once."""
    credit: Credit = DEFAULT_CREDIT
    """Messages that the broker may send before the client has taken them."""

    @property
    def address(self) -> str:
        """The address with which messages arrive, without the name of a queue."""
        return self.topic.partition(QUEUE)[0]

    @property
    def queue(self) -> str | None:
        """Name of the queue that the client receives from; None if it is none, as far as the
        scenario says."""
        address, separator, queue = self.topic.partition(QUEUE)
        if separator:
            return queue
        return address if self.type == "queue" or self.shared else None

    @property
    def is_shared(self) -> bool:
        """True if clients share the messages."""
        if self.shared is not None or self.queue is None:
            return bool(self.shared)
        return not {each.kind for each in Template.parse(self.queue).variables} & OF_CLIENT

    @property
    def filter(self) -> str:
        """The filter as the plan has it: a shared queue is a shared group."""
        if not self.is_shared:
            return self.address
        return f"$share/{(self.queue or '').replace('/', '.')}/{self.address}"


class Amqp1Receivers(Connecting):
    """Receivers of AMQP 1.0, which a process of its own plays with Qpid Proton (`pip install
    "pubstorm[amqp1]"`). They connect to a target `amqp1://HOST`, or with `protocol: amqp1` to
    brokers that the run starts: `rabbitmq` with the plugin `rabbitmq_amqp1_0`, or a `command` with
    `{amqp1_port}`."""

    SPEAKS: ClassVar[ProtocolName] = "amqp1"
    HINTS: ClassVar[Mapping[str, str]] = {
        "publications": "messages come to AMQP 1.0 by a flow: see flows",
        "qos": "write settled: true at a subscription for at most once",
        "topic": "write address",
        "queue": "write address: NAME with type: queue, or address: ADDRESS::QUEUE",
        "exchange": "write address: RabbitMQ has /exchange/NAME/KEY and /queue/NAME",
        "group": "clients share a queue: write type: queue, or address: ADDRESS::QUEUE",
        "prefetch": "write credit",
        "virtual_host": "write hostname: RabbitMQ has vhost:NAME",
        "client_id": "clients have the name of their population and a number",
        **dict.fromkeys(
            ("lifetime", "link", "read_rate", "tcp_acks", "shares", "flapping", "proxy_protocol"),
            "only clients that the engine plays have it",
        ),
    }

    protocol: Literal["amqp1"] = "amqp1"
    """`amqp1`: clients are receivers of AMQP 1.0. Not needed with a target `amqp1://HOST`."""
    hosts: HostLabel | None = None
    """On a cluster: label of the host that they are on (`ray start --labels pubstorm=LABEL`), or
    its address; of several hosts, the first one. Default: the controller's host."""
    mechanism: Literal["anonymous", "plain", "external"] | None = None
    """Login (SASL): none, `username` and `password`, or the certificate of the client. Default:
    `plain` with a user name, else `anonymous`."""
    hostname: ClientText | None = None
    """Name that clients ask for in Open, such as `vhost:NAME` of RabbitMQ. Default: the host of the
    target."""
    keep_alive: KeepAlive = 60 * SECOND_NS
    """Silence after which a client gives up the broker (`idle-time-out`), in whole seconds. The
    broker sends an empty frame after half of it. 0 turns it off."""
    tls: Tls | None = None
    """TLS to targets that ask for it. Default: verified with the system's authorities."""
    subscriptions: tuple[Amqp1Subscription, ...] = ()
    """Sources of each client."""

    @property
    def login(self) -> Literal["anonymous", "plain", "external"]:
        """The mechanism of the login."""
        return self.mechanism or ("anonymous" if self.username is None else "plain")

    def options(self, name: str, _around: RunParts, /) -> Amqp1Protocol:
        """Returns the options of the receivers in the plan."""
        sources = (
            Amqp1Source(
                address=each.topic, capability=each.type, settled=each.settled, credit=each.credit
            )
            for each in self.subscriptions
        )
        return Amqp1Protocol(
            container_id=name,
            hostname=self.hostname,
            mechanism=self.login,
            sources=tuple(sources),
        )

    def topic_of(self, flow: Subscription | Publication, _around: RunParts, /) -> str:
        """Returns the address of a flow in the plan, without its queue."""
        return flow.address if isinstance(flow, Amqp1Subscription) else flow.topic

    def rules(self) -> Iterator[Finding]:
        """Yields a login that is none, keys of TLS that the program does not have, and a shared
        queue beside another address."""
        yield from self._rules_of_login()
        for key in () if self.tls is None else sorted(self.tls.model_fields_set - TLS_KEYS):
            message = f"found {key}, allowed are {', '.join(sorted(TLS_KEYS))}"
            yield ("tls", key), message, "only clients that the engine plays have it"
        shared = [each.is_shared for each in self.subscriptions]
        if any(shared) and not all(shared):
            message = f"found a shared queue at {sum(shared)} of {len(shared)}"
            hint = "write a population for each"
            yield ("subscriptions",), f"{message}, allowed is all or none", hint
        for number, each in enumerate(self.subscriptions):
            place = ("subscriptions", number)
            if each.is_shared and Template.parse(each.topic).variables:
                message = f"found {each.topic}, a shared queue, allowed is a text without variables"
                hint = "write * for the word that varies, or a population for each queue"
                yield (*place, "address"), message, hint
            if each.shared and each.type == "topic":
                message = "found shared with type: topic, allowed is it with type: queue"
                yield (*place, "shared"), message, "each receiver gets all messages of a topic"

    def rules_within(self, around: RunParts, /) -> Iterator[Finding]:
        """Yields queues that another population shares: each process counts what it receives."""
        others = (each for each in around.populations.values() if each is not self)
        receivers = [e for e in others if isinstance(e, Amqp1Receivers) and e.at == self.at]
        theirs = {own.filter for each in receivers for own in each.subscriptions if own.is_shared}
        for number, each in enumerate(self.subscriptions):
            if each.filter in theirs:
                message = f"found the queue {each.topic}, which another population has too"
                hint = "put all clients that share the queue into one population"
                yield ("subscriptions", number), f"{message}, allowed is each once", hint

    def _rules_of_login(self) -> Iterator[Finding]:
        given = [key for key in ("username", "password") if getattr(self, key) is not None]
        if self.login == "plain" and self.username is None:
            message = "found mechanism: plain without username, needed are both"
            yield ("mechanism",), message, "write username and password"
        elif self.login != "plain" and given:
            message = f"found {given[0]} with mechanism: {self.login}, allowed is it with plain"
            yield (given[0],), message, "leave the mechanism out"
        if self.password is not None and "\0" in self.password:
            message = "found NUL in the password, allowed are other characters"
            yield ("password",), message, "SASL PLAIN ends each text with it"
        if self.login == "external" and (self.tls is None or self.tls.certificate is None):
            message = "found mechanism: external without a certificate, needed are both"
            yield ("mechanism",), message, "write tls: {certificate: FILE, key: FILE}"
