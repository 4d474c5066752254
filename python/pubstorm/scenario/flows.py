"""Flows: the subscriptions and publications of a population, and the will of a client. The
docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, model_validator

from pubstorm.contract.protocol import PlannedWill, Property
from pubstorm.contract.template import Template
from pubstorm.quantities import SECOND_NS, UnfitError
from pubstorm.scenario.base import Part
from pubstorm.scenario.data import Data, Histogram, Weights, round_of, topics
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    Burst,
    Bytes,
    ClientData,
    ClientText,
    ClientTopic,
    Duration,
    Flag,
    FlowFilter,
    FlowTopic,
    Name,
    PathText,
    Payload,
    PositiveDuration,
    PropertyData,
    PropertyText,
    PublicationRate,
    PublishedTopic,
    QoS,
    QueueGroup,
    Rate,
    Share,
    ShareBelowOne,
    Subject,
    SubjectFilter,
    SubscriptionIdentifier,
    Text,
    Topic,
    TopicFilter,
    WholeSeconds,
    Window,
)


@dataclass(frozen=True, slots=True)
class Carried:
    """Marks a key whose value packets carry as a property."""

    property: str
    """Name of the property in the plan; empty: packets do not carry it."""
    written: Callable[[Any], int | str] = str
    """Value of the property, from the value of the key."""


@dataclass(frozen=True, slots=True)
class Mqtt5(Carried):
    """Marks a key that only MQTT 5 has."""

    property: str = ""


FORMATS = ("bytes", "text")
"""Words for the payload formats, by their numbers."""


def in_seconds(duration_ns: int) -> int:
    """Returns a duration in whole seconds."""
    return duration_ns // SECOND_NS


@cache
def carried_keys(part: type[Part]) -> Mapping[str, Carried]:
    """Returns the marked keys of a kind of parts."""
    marks = ((name, m) for name, field in part.model_fields.items() for m in field.metadata)
    return {name: mark for name, mark in marks if isinstance(mark, Carried)}


def properties_of(part: Part) -> Iterator[Property]:
    """Yields the properties of the packets of a part."""
    for name, mark in carried_keys(type(part)).items():
        value = getattr(part, name)
        if isinstance(value, Mapping):
            texts = value.items()
            yield from (Property(name=mark.property, key=key, value=text) for key, text in texts)
        elif mark.property and value is not None:
            yield Property(name=mark.property, value=mark.written(value))


class Subscription(Part):
    """One prefix of topics that every client receives; a plain text is the prefix."""

    SHORT_FOR: ClassVar[str | None] = "topic"

    topic: FlowFilter
    """Beginning of the topics; `""` means all of them. A range `{a..b}` or a choice `{red|green}`
    makes one prefix for each value."""

    @property
    def filter(self) -> str:
        """The filter as the plan has it."""
        return self.topic


class MqttSubscription(Subscription):
    """One topic filter of every client; a plain text is the topic."""

    topic: TopicFilter
    """Topic filter; a range `{a..b}` or a choice `{red|green}` makes one filter for each value."""
    qos: QoS = 0
    """Highest QoS wanted."""
    no_local: Annotated[Flag, Mqtt5()] = False
    """MQTT 5: the broker does not send a client its own messages. Set it for all subscriptions of a
    population, or for none."""
    retain_as_published: Annotated[Flag, Mqtt5()] = False
    """MQTT 5: the broker keeps the RETAIN flag of messages that it forwards. Messages that it kept
    are distinguished by their stamp."""
    retain_handling: Annotated[Literal["send", "send_if_new", "never"], Mqtt5()] = "send"
    """MQTT 5: retained messages that the broker sends: all, all if the subscription is new, or
    none."""
    identifier: Annotated[SubscriptionIdentifier | None, Mqtt5()] = None
    """MQTT 5: subscription identifier, which the broker repeats in the messages that match."""


class NatsSubscription(Subscription):
    """One subject of every client; a plain text is the subject."""

    topic: SubjectFilter
    """Subject, with `*` for one token and `>` for one or more at the end. A range `{a..b}` or a
    choice `{red|green}` makes one subject for each value."""
    group: QueueGroup | None = None
    """Queue group: one of its subscribers receives each message. Default: each subscriber does."""
    stream: Name | None = None
    """JetStream: the stream that delivers the messages, through a durable consumer of each client,
    or one of the queue group. Clients acknowledge each delivery, and the server keeps what comes
    while they are away. All subscriptions of a population have a stream, or none."""
    ack_wait: PositiveDuration = 3 * SECOND_NS
    """JetStream: time after which the server delivers an unacknowledged message again; below
    `drain`."""

    @property
    def filter(self) -> str:
        """The filter as the plan has it: a queue group is a shared group."""
        return self.topic if self.group is None else f"$share/{self.group}/{self.topic}"


class Size(Part):
    """Sizes around a mean, or of a histogram; a plain size is the mean, without spread."""

    SHORT_FOR: ClassVar[str | None] = "mean"

    mean: Bytes | None = None
    """Mean size of a payload."""
    spread: Share = 0.0
    """Standard deviation of a normal distribution, as a share of the mean."""
    histogram: Histogram | None = None
    """Sizes with their weights instead of a mean, such as `{100B: 60, 1kB: 30, 10kB: 10}`; or a
    file of comma-separated values with the columns `size` and `weight`."""

    def rules(self) -> Iterator[Finding]:
        """Yields a mean and a histogram together, or neither."""
        if self.histogram is None and self.mean is None:
            yield (), "found no mean, needed is mean or histogram", None
        elif self.histogram is not None and self.model_fields_set & {"mean", "spread"}:
            yield ("histogram",), "found histogram with a mean or spread, allowed is it alone", None

    @property
    def bytes_min(self) -> int:
        """Bytes of the smallest payload."""
        if self.histogram is not None:
            return self.histogram[0][0]
        mean = self.mean or 0
        return mean - 4 * round(mean * self.spread)


class Replay(Part):
    """Recorded messages, which `pubstorm record` writes; a plain text is the path of the file."""

    SHORT_FOR: ClassVar[str | None] = "file"

    file: PathText
    """Path of the file, from the folder of the scenario file."""
    shift: Duration = SECOND_NS
    """Clients beyond the recorded ones play the same messages, each client later by a time of up to
    this one. 0: at the same instants."""
    stamp: Literal["beside", "front"] = "beside"
    """Place of the stamp of recorded payloads: a user property with `version: 5`, and none
    otherwise; or 32 bytes before them. Without recorded payloads, a stamp is in each message."""


class Publication(Part):
    """The flow of messages that a publisher sends in publish stages."""

    topic: FlowTopic
    """Topic, a frame of its own before the payload; with `""` the payload is alone. With a range
    `{a..b}` or a choice `{red|green}`, each message has the next value."""
    order: Literal["turn", "shuffled"] = "turn"
    """Order of a range or choice: in turn, or an order of each client's own that is drawn anew for
    each round."""
    rate: PublicationRate | None = None
    """Messages a second of each client; `max`: as fast as window and socket take them."""
    interval: PositiveDuration | None = None
    """Time between two messages of a client, instead of a rate."""
    total_rate: Rate | None = None
    """Messages a second of all clients of the population together, instead of a rate. It follows
    `scale` with the clients."""
    burst: Burst = 1
    """Messages of a client that are scheduled at once. A burst of 10 is 10 periods apart from the
    next, so that the rate stays the same."""
    size: Size = Size.model_validate("100B")
    """Payload size: fixed, a mapping of mean and spread, or a histogram. Payloads below 32 bytes
    carry no stamp: they are counted, without latency."""
    payload: Payload | None = None
    """Payload text instead of a size, or a mapping or list that becomes JSON. Messages have latency
    and order with `{stamp}` in the payload, or with `version: 5`, which has the stamp in a user
    property. Others are counted."""
    phase: Literal["spread", "random", "aligned"] = "spread"
    """Instant in the period at which clients send: evenly spread, at random, or all at once."""
    late: Literal["send", "skip"] = "send"
    """A message that could not leave in time is sent late, or left out and counted as skipped."""

    @property
    def source(self) -> Data | None:
        """Files of the payloads; None without them."""
        return None

    @property
    def round(self) -> tuple[int, ...]:
        """Messages of each value of the topic in a round; empty without weights."""
        return ()

    @property
    def beside(self) -> Mapping[str, str]:
        """Texts beside the payload, by name: user properties or headers."""
        return {}

    @property
    def level(self) -> int:
        """The QoS in the plan: 0 if nothing acknowledges the messages."""
        return 0

    @property
    def rate_per_s(self) -> float | None:
        """Messages a second of each client; `None` in a closed loop."""
        return self.rate if self.interval is None else SECOND_NS / self.interval


class BrokeredPublication(Publication):
    """A flow of messages to a broker."""

    weights: Weights | None = None
    """Weights of the values of the topic's range or choice, in their order: a list such as
    `[60, 30, 10]`, or `{zipf: 1.1}` for weights of 1/rank^1.1. Each round of a client's messages
    has every value as often as its weight says, in an order at random. Default: each as often as
    the others."""
    data: Data | None = None
    """Payloads from a file, instead of a size or payload."""

    @model_validator(mode="before")
    @classmethod
    def read_topics(cls, value: object, info: ValidationInfo) -> object:
        """Turns a file of topics into a choice with weights."""
        if not isinstance(value, Mapping) or not isinstance(value.get("topic"), Mapping):
            return value
        topic, given = topics(value["topic"], info)
        if given and value.get("weights") is not None:
            found = "weights beside a file of topics with weights"
            raise UnfitError(found, "is one of them")
        return {**value, "topic": topic, **({"weights": [*given]} if given else {})}

    def rules(self) -> Iterator[Finding]:
        """Yields weights that do not fit the topic."""
        if self.weights is None:
            return
        values = Template.parse(self.topic).variants
        if values == 1:
            message = "found weights of a topic with one value, allowed is a range or a choice"
            yield ("weights",), message, "write {1..100} or {red|green} in the topic"
        elif not isinstance(self.weights, float) and len(self.weights) != values:
            message = f"found {len(self.weights)} weights, allowed are {values} as in the topic"
            yield ("weights",), message, None
        if self.order != "turn":
            hint = "the order of topics with weights is at random anyway"
            yield ("order",), "found order with weights, allowed is one of them", hint

    @property
    def source(self) -> Data | None:
        """Files of the payloads; None without them."""
        return self.data

    @property
    def round(self) -> tuple[int, ...]:
        """Messages of each value of the topic in a round; empty without weights."""
        if self.weights is None:
            return ()
        return round_of(self.weights, Template.parse(self.topic).variants)


class MqttPublication(BrokeredPublication):
    """A flow of messages that every client sends in publish stages."""

    topic: PublishedTopic = ""
    """Topic, left out with `sparkplug`; with a range `{a..b}` or a choice `{red|green}`, each
    message has the next value. `{file: PATH}` is a choice among the topics of a file of
    comma-separated values with the columns `topic` and, for weights, `weight`. With `replay`,
    `{recorded}` is the recorded topic."""
    qos: QoS = 0
    """QoS of the messages."""
    retain: Flag = False
    """The broker keeps the last message of a topic."""
    arrivals: Literal["even", "poisson"] = "even"
    """Times between the messages of a client: `even`, or exponential, as of many independent
    sources: `poisson`. The mean is the same."""
    jitter: Share = 0.0
    """Each message moves by up to half this share of the period."""
    spread: ShareBelowOne = 0.0
    """Each client's period differs from the given one by up to this share."""
    window: Window = 65535
    """Most messages of a client in flight, for QoS 1 and 2. With MQTT 5 the client also keeps to
    the broker's Receive Maximum."""
    expiry: Annotated[WholeSeconds | None, Mqtt5("message_expiry_interval", in_seconds)] = None
    """MQTT 5: message expiry interval, in whole seconds. A message that expires while its receiver
    is offline is not lost."""
    content_type: Annotated[PropertyText | None, Mqtt5("content_type")] = None
    """MQTT 5: content type."""
    payload_format: Annotated[
        Literal["bytes", "text"] | None, Mqtt5("payload_format_indicator", FORMATS.index)
    ] = None
    """MQTT 5: payload format indicator."""
    response_topic: Annotated[Topic | None, Mqtt5("response_topic")] = None
    """MQTT 5: response topic."""
    correlation_data: Annotated[PropertyData | None, Mqtt5("correlation_data")] = None
    """MQTT 5: correlation data."""
    user_properties: Annotated[Mapping[Text, PropertyText], Mqtt5("user_property")] = Field(
        default_factory=dict
    )
    """MQTT 5: user properties, by name."""
    topic_alias: Annotated[Flag, Mqtt5()] = False
    """MQTT 5: a topic alias replaces the topic after its first message on a connection, as far as
    the broker's Topic Alias Maximum allows."""
    replay: Replay | None = None
    """Recorded messages that the clients play, instead of a rate and a size. The topic has
    `{recorded}` for the topic of the recording. Played are its messages with this `qos` and
    `retain`."""
    request: Annotated[Flag, Mqtt5()] = False
    """MQTT 5: each message is a request. The correlation data holds the stamp, the answers on
    `response_topic` are its round trips. A subscription of the population receives them."""

    @property
    def beside(self) -> Mapping[str, str]:
        """Its user properties."""
        return self.user_properties

    def rules(self) -> Iterator[Finding]:
        """Yields a topic that is missing, and weights that do not fit."""
        if not self.topic:
            yield ("topic",), "found no topic, needed is the topic of the messages", None
            return
        yield from super().rules()

    @property
    def level(self) -> int:
        """The QoS."""
        return self.qos


class NatsPublication(BrokeredPublication):
    """A flow of messages that every client sends in publish stages."""

    topic: Subject
    """Subject; with a range `{a..b}` or a choice `{red|green}`, each message has the next value."""
    arrivals: Literal["even", "poisson"] = "even"
    """Times between the messages of a client: `even`, or exponential, as of many independent
    sources: `poisson`. The mean is the same."""
    jitter: Share = 0.0
    """Each message moves by up to half this share of the period."""
    spread: ShareBelowOne = 0.0
    """Each client's period differs from the given one by up to this share."""
    stream: Name | None = None
    """JetStream: the stream that stores the messages and acknowledges each. Default: nothing
    acknowledges a message."""
    window: Window = 65535
    """JetStream: most messages of a client in flight."""
    headers: Annotated[Mapping[Text, PropertyText], Carried("user_property")] = Field(
        default_factory=dict
    )
    """Headers of the messages, by name."""

    @property
    def beside(self) -> Mapping[str, str]:
        """Its headers."""
        return self.headers

    def rules(self) -> Iterator[Finding]:
        """Yields a window without acknowledgements, and weights that do not fit."""
        yield from super().rules()
        if self.stream is None and "window" in self.model_fields_set:
            hint = "core NATS has no feedback: what is scheduled is sent"
            yield ("window",), "found window without stream, needed are both", hint

    @property
    def level(self) -> int:
        """1 if a stream acknowledges the messages."""
        return 0 if self.stream is None else 1


class Will(Part):
    """The message that the broker sends when a client dies."""

    topic: ClientTopic
    """Topic of the message."""
    payload: ClientData = ""
    """Text of the message."""
    qos: QoS = 0
    """QoS of the message."""
    retain: Flag = False
    """The broker keeps the message."""
    delay: Annotated[WholeSeconds | None, Mqtt5("will_delay_interval", in_seconds)] = None
    """MQTT 5: will delay interval, in whole seconds. A session that expires before its end ends the
    delay too. A client that continues its session before the end of the delay has no will."""
    expiry: Annotated[WholeSeconds | None, Mqtt5("message_expiry_interval", in_seconds)] = None
    """MQTT 5: message expiry interval, in whole seconds."""
    content_type: Annotated[ClientText | None, Mqtt5("content_type")] = None
    """MQTT 5: content type."""
    payload_format: Annotated[
        Literal["bytes", "text"] | None, Mqtt5("payload_format_indicator", FORMATS.index)
    ] = None
    """MQTT 5: payload format indicator."""
    response_topic: Annotated[ClientTopic | None, Mqtt5("response_topic")] = None
    """MQTT 5: response topic."""
    correlation_data: Annotated[ClientData | None, Mqtt5("correlation_data")] = None
    """MQTT 5: correlation data."""
    user_properties: Annotated[Mapping[Text, ClientText], Mqtt5("user_property")] = Field(
        default_factory=dict
    )
    """MQTT 5: user properties, by name."""

    @property
    def planned(self) -> PlannedWill:
        """The message as the plan has it."""
        same = self.model_dump(include={"topic", "payload", "qos", "retain"})
        return PlannedWill(**same, properties=tuple(properties_of(self)))


class DeclaredFlow(Part):
    """Messages that a program beside the brokers, such as a bridge of the user's or a connector of
    a broker, carries from a publication to subscribers elsewhere, under another name."""

    from_: FlowTopic = Field(alias="from")
    """Topic of a publication, as it is written there; of AMQP, `EXCHANGE/KEY`."""
    of: Name
    """The population that publishes the messages."""
    to: FlowTopic
    """Name with which the messages arrive, in the words of the subscribers' protocol: in AMQP
    `EXCHANGE/KEY`, `VHOST/EXCHANGE/KEY` or `QUEUE`. Its variables are those of `from`, with the
    values that they have there."""
    at: Name
    """A population of subscribers: the messages arrive where its clients are connected."""


class Traffic:
    """Subscriptions and publications of clients, of kinds that have them."""

    @property
    def filters(self) -> tuple[Subscription, ...]:
        """The subscriptions of each client; empty for kinds that only send."""
        return getattr(self, "subscriptions", None) or ()

    @property
    def flows(self) -> tuple[Publication, ...]:
        """The publications of each client; empty for kinds that only receive."""
        return getattr(self, "publications", None) or ()
