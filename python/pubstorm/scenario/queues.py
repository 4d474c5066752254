"""Flows of AMQP 0-9-1: the queues of subscriptions with their bindings and acknowledgements, and
publications to exchanges. The docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pubstorm.contract.amqp import (
    AmqpAcknowledgement,
    AmqpLate,
    AmqpMultiple,
    AmqpQueue,
    AmqpWord,
)
from pubstorm.contract.template import CLIENT, Template, VariableKind
from pubstorm.quantities import QuantityField, UnfitError, count
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    TEMPLATE,
    VARIABLE,
    Flag,
    PositiveDuration,
    PropertyText,
    Share,
    ShareBelowOne,
    Text,
    Window,
    client_text,
    flow_topic,
)
from pubstorm.scenario.flows import BrokeredPublication, Carried, Subscription
from pubstorm.scenario.stores import SHORT_BYTES_MAX, Arguments, ExchangeName, arguments_of

STREAM_PREFETCH = 100
"""Unacknowledged deliveries of a stream, unless they are set: it wants a limit."""
QUEUE_TYPE = "x-queue-type"
RESERVED = "amq."
"""Beginning of names that are RabbitMQ's own."""
WILDCARDS = {"*", "#"}
RESTS_MAX = 3
"""Wildcards for any number of words in a key, which the ledger tries in all places."""


def queue_name(value: object) -> str:
    """A template of the name of a queue, with one value for each client."""
    source = client_text(value)
    if not source or "/" in VARIABLE.sub("", source) or any(map(str.isspace, source)):
        hint = "a topic of MQTT is {exchange: amq.topic, key: device.1.state}"
        raise UnfitError(value, "is a name of a queue, without slashes and spaces", hint)
    if source.startswith(RESERVED):
        raise UnfitError(value, f"is a name that does not begin with {RESERVED}")
    return source


def routing_key(value: object) -> str:
    """A template of a routing key: words between dots, or nothing."""
    source = routing_filter(value)
    if WILDCARDS & {*VARIABLE.sub("{}", source).split(".")}:
        raise UnfitError(value, "is a key without the wildcards * and #")
    return source


def routing_filter(value: object) -> str:
    """A template of a binding key: words between dots, `*` for one word, `#` for any number."""
    source = flow_topic(value)
    words = VARIABLE.sub("{}", source).split(".") if source else []
    if not all(words) or "/" in "".join(words) or any(map(str.isspace, source)):
        hint = "AMQP has dots where MQTT has slashes: device.1.state"
        raise UnfitError(value, "are words between dots, none of them empty", hint)
    if any(word.count("{}") > 1 for word in words):
        raise UnfitError(value, "is one variable a word")
    if any(set(word) & WILDCARDS and word not in WILDCARDS for word in words):
        raise UnfitError(value, "are wildcards that fill a whole word, as in a.*.b.#")
    if words.count("#") > RESTS_MAX:
        raise UnfitError(value, f"has # at most {RESTS_MAX} times")
    return source


TEMPLATE_JSON = WithJsonSchema({"title": "template", "type": "string"})
KEY_JSON = WithJsonSchema({"title": "key template", "type": "string"})
QueueName = Annotated[str, BeforeValidator(queue_name), TEMPLATE_JSON, TEMPLATE]
RoutingKey = Annotated[str, BeforeValidator(routing_key), KEY_JSON, TEMPLATE]
RoutingFilter = Annotated[str, BeforeValidator(routing_filter), KEY_JSON, TEMPLATE]
Prefetch = Annotated[int, QuantityField(count, 0, 65535)]
Several = Annotated[int, QuantityField(count, 2, 65535)]


class Acknowledge(Part):
    """Acknowledgements of deliveries; a plain word is the mode."""

    SHORT_FOR: ClassVar[str | None] = "mode"

    mode: Literal["each", "none", "never"] = "each"
    """`each`: one for each delivery, at once; `none`: the broker forgets a message as it sends it;
    `never`: the broker keeps every delivery, and prefetch stops further ones."""
    every: Several | None = None
    """One acknowledgement for this number of deliveries."""
    after: PositiveDuration | None = None
    """Time from a delivery to its acknowledgement."""

    def rules(self) -> Iterator[Finding]:
        """Yields several modes together."""
        given = sorted(self.model_fields_set)
        if len(given) > 1:
            yield (), f"found {' and '.join(given)}, allowed is one of them", None

    @property
    def planned(self) -> AmqpAcknowledgement:
        """The acknowledgements in a plan."""
        if self.every is not None:
            return AmqpMultiple(every=self.every)
        if self.after is not None:
            return AmqpLate(delay_ns=self.after)
        return AmqpWord(kind=self.mode)


class AmqpSubscription(Subscription):
    """One queue of every client, and its binding; a plain text is the queue, of the default
    exchange."""

    SHORT_FOR: ClassVar[str | None] = "queue"

    topic: RoutingFilter = Field("#", alias="key")
    """Binding key, with `*` for one word and `#` for any number of words. A range `{a..b}` or a
    choice `{red|green}` makes one binding for each value. A direct exchange needs a key without
    wildcards, a fanout exchange none."""
    exchange: ExchangeName = ""
    """Exchange that the queue is bound to. Default: the default exchange, whose key is the name of
    the queue."""
    queue: QueueName | None = None
    """Name of the queue. Clients that have the same name share the queue: one of them receives each
    message. Default: the broker names a queue for each client, which is exclusive."""
    type: Literal["classic", "quorum", "stream"] = "classic"
    """Type of the queue. Every consumer of a stream receives every message from its connection
    on."""
    declare: Flag = True
    """Clients declare the queue and bind it. `false`: it exists already, with the settings and the
    bindings that it has, and it stays."""
    shared: Flag | None = None
    """Clients share the queue. Write `true` if another population has the same queue. Default: true
    if the name has no `{n}`."""
    durable: Flag | None = None
    """The queue survives a restart of the broker. Default: true if it has a name."""
    exclusive: Flag | None = None
    """The queue belongs to one connection. Default: true if the broker names it."""
    auto_delete: Flag | None = None
    """The broker deletes the queue with its last consumer. Default: true for classic queues."""
    prefetch: Prefetch | None = None
    """Most unacknowledged deliveries of a client (`basic.qos`); 0: no limit. Default: 0; 100 for a
    stream."""
    acknowledge: Acknowledge = Acknowledge()
    """Acknowledgements of deliveries: `each`, `none`, `never`, `{every: 10}` or `{after: 1s}`."""
    refuse: ShareBelowOne = 0.0
    """Share of the deliveries that a client refuses with `basic.nack`. The broker delivers them
    again."""
    arguments: Arguments = Field(default_factory=dict)
    """Further arguments of the queue, such as `{x-max-length: 1000}`."""
    federated: Flag | None = None
    """Messages of all virtual hosts arrive, by federation. Default: true for a RabbitMQ that the
    run starts with `federation`, in its own virtual host at `amq.topic`."""

    @property
    def key(self) -> str:
        """Its key: at the default exchange the name of the queue."""
        return self.topic if self.exchange else self.queue or ""

    @property
    def is_shared(self) -> bool:
        """True if clients share the queue."""
        if self.shared is not None or self.queue is None:
            return bool(self.shared)
        kinds = {each.kind for each in Template.parse(self.queue).variables}
        is_own = bool(kinds & {VariableKind.NUMBER, VariableKind.ROW})
        return self.type != "stream" and not is_own

    @property
    def keeps(self) -> bool:
        """True if the queue keeps messages for a client that is away."""
        queue = self.planned
        return self.type != "stream" and not (queue.exclusive or queue.auto_delete)

    @property
    def planned(self) -> AmqpQueue:
        """The queue in a plan."""
        is_named, is_classic = self.queue is not None, self.type == "classic"
        durable, exclusive, deletes = self.durable, self.exclusive, self.auto_delete
        prefetch = 0 if is_classic or self.type == "quorum" else STREAM_PREFETCH
        return AmqpQueue(
            name=self.queue or "",
            type=self.type,
            exists=not self.declare,
            durable=is_named if durable is None else durable,
            exclusive=not is_named if exclusive is None else exclusive,
            auto_delete=is_classic and self.declare if deletes is None else deletes,
            arguments=arguments_of(self.arguments),
            prefetch=prefetch if self.prefetch is None else self.prefetch,
            acknowledge=self.acknowledge.planned,
            refused=self.refuse,
        )

    def rules(self) -> Iterator[Finding]:
        """Yields what a broker would refuse, or a client could not play."""
        if self.queue is None and not self.exchange:
            hint = "write exchange: amq.topic and a key, or queue: NAME"
            yield (), "found neither exchange nor queue, needed is one of them", hint
        if not self.exchange and "topic" in self.model_fields_set:
            message = "found key without exchange, allowed is a key with an exchange"
            yield ("key",), message, "the key of the default exchange is the name of the queue"
        if self.queue is None and self.shared:
            yield ("shared",), "found shared without queue, needed are both", "write queue: NAME"
        if QUEUE_TYPE in self.arguments:
            message = f"found {QUEUE_TYPE} among arguments, allowed is the key type"
            yield ("arguments",), message, f"write type: {self.arguments[QUEUE_TYPE]}"
        if self.type != "classic":
            yield from self._rules_of_replicas()
        if not self.declare:
            yield from self._rules_of_existing()
        queue = self.planned
        if queue.exclusive and self.is_shared:
            hint = "an exclusive queue belongs to one connection: write {n} in its name"
            yield ("exclusive",), "found exclusive at a shared queue, allowed is one of them", hint
        if (self.is_shared or self._is_one_stream) and self._depends_on_client:
            message = (
                f"found key {self.topic} at a shared queue, allowed is one key for all clients"
            )
            hint = "write * for the word that varies, or the same variable in the queue"
            yield ("key",), message, hint
        yield from self._rules_of_acknowledgements(queue)
        for key, text in (("queue", self.queue or ""), ("key", self.key)):
            yield from too_long(key, text)

    @property
    def _is_one_stream(self) -> bool:
        """True if all clients consume one stream."""
        kinds = {each.kind for each in Template.parse(self.queue or "").variables}
        return self.type == "stream" and not kinds

    @property
    def _depends_on_client(self) -> bool:
        """True if the key differs between clients of one queue."""
        names = Template.parse(self.queue or "").variables
        own = (each for each in Template.parse(self.topic).variables if each.kind in CLIENT)
        # The only variable of a name has one value for all clients of the queue.
        return bool(self.exchange) and not all([each] == [*names] for each in own)

    def _rules_of_replicas(self) -> Iterator[Finding]:
        """Yields what a quorum queue and a stream do not have."""
        if self.queue is None:
            message = f"found type {self.type} without queue, needed is the name of the queue"
            yield ("type",), message, 'write queue: NAME, or queue: "NAME-{n}"'
        hint = f"a {self.type} {'queue ' * (self.type == 'quorum')}is replicated and stays"
        for key, only in (("exclusive", False), ("auto_delete", False), ("durable", True)):
            if getattr(self, key) not in (None, only):
                message = f"found {key}: {str(not only).lower()} with type {self.type}"
                yield (key,), f"{message}, allowed is {str(only).lower()}", hint

    def _rules_of_existing(self) -> Iterator[Finding]:
        """Yields settings of a queue that has its own, and one without a name."""
        if self.queue is None:
            message = "found declare: false without queue, needed is the name of the queue"
            yield ("declare",), message, "write queue: NAME"
        for key in ("durable", "exclusive", "auto_delete", "arguments"):
            if key in self.model_fields_set:
                message = f"found {key} with declare: false, allowed is one of them"
                yield (key,), message, "a queue that exists has its settings already"

    def _rules_of_acknowledgements(self, queue: AmqpQueue) -> Iterator[Finding]:
        mode, kind = self.acknowledge, queue.acknowledge.kind
        if self.type == "stream":
            if kind == "none":
                message = "found acknowledge: none with type stream, allowed are each, never, every"
                yield ("acknowledge",), f"{message} and after", "RabbitMQ refuses such a consumer"
            if queue.prefetch == 0:
                message = "found prefetch 0 with type stream, allowed are 1 to 65535"
                yield ("prefetch",), message, "RabbitMQ refuses such a consumer"
            if self.refuse:
                message = "found refuse with type stream, allowed is refuse with other types"
                yield ("refuse",), message, "a stream keeps every message and delivers none again"
            if self.shared:
                message = "found shared with type stream, allowed is shared with other types"
                yield ("shared",), message, "every consumer of a stream receives every message"
        if self.refuse and kind in {"none", "never"}:
            message = f"found refuse with acknowledge: {kind}, allowed are each, every and after"
            yield ("refuse",), message, "a refusal is an acknowledgement"
        if self.prefetch and kind == "none":
            message = "found prefetch with acknowledge: none, allowed is one of them"
            yield ("prefetch",), message, "prefetch counts unacknowledged deliveries"
        if mode.every is not None and 0 < queue.prefetch < mode.every:
            message = f"found every {mode.every} with prefetch {queue.prefetch}"
            hint = "the broker would wait for an acknowledgement that waits for deliveries"
            yield ("acknowledge", "every"), f"{message}, allowed is up to the prefetch", hint


class AmqpPublication(BrokeredPublication):
    """A flow of messages that every client sends in publish stages."""

    topic: RoutingKey = Field("", alias="key")
    """Routing key; with a range `{a..b}` or a choice `{red|green}`, each message has the next
    value."""
    exchange: ExchangeName = ""
    """Exchange. Default: the default exchange, which gives a message to the queue that its key
    names."""
    arrivals: Literal["even", "poisson"] = "even"
    """Times between the messages of a client: `even`, or exponential, as of many independent
    sources: `poisson`. The mean is the same."""
    jitter: Share = 0.0
    """Each message moves by up to half this share of the period."""
    spread: ShareBelowOne = 0.0
    """Each client's period differs from the given one by up to this share."""
    confirm: Flag = False
    """The broker confirms each message, which is in flight until then."""
    window: Window = 65535
    """With `confirm`: most messages of this publication that a client has in flight."""
    mandatory: Flag = False
    """The broker returns a message that no queue takes. Returned messages are counted."""
    persistent: Flag = False
    """Delivery mode 2: a durable queue writes the message to the disk."""
    headers: Annotated[Mapping[Text, PropertyText], Carried("user_property")] = Field(
        default_factory=dict
    )
    """Headers of the messages, by name."""

    @property
    def beside(self) -> Mapping[str, str]:
        """Its headers."""
        return self.headers

    @property
    def level(self) -> int:
        """1 if the broker confirms the messages."""
        return int(self.confirm)

    def rules(self) -> Iterator[Finding]:
        """Yields a window without confirms, and messages without a way."""
        yield from super().rules()
        if not self.exchange and not self.topic:
            hint = "write exchange: amq.topic and a key, or key: QUEUE"
            yield (), "found neither exchange nor key, needed is one of them", hint
        if not self.confirm and "window" in self.model_fields_set:
            hint = "without confirms a client has no feedback: what is scheduled is sent"
            yield ("window",), "found window without confirm, needed are both", hint
        yield from too_long("key", self.topic)


def too_long(key: str, source: str) -> Iterator[Finding]:
    """Yields a text that is longer than a short string of AMQP."""
    found = Template.parse(source).bytes_max
    if found > SHORT_BYTES_MAX:
        message = f"found up to {found} bytes with the values of its variables"
        yield (key,), f"{message}, allowed are {SHORT_BYTES_MAX} bytes", None
