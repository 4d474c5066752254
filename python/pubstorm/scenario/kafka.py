"""Consumers of Kafka. The docstrings are the reference for users."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pubstorm.contract.capabilities import ProtocolName
from pubstorm.contract.protocol import KafkaProtocol
from pubstorm.quantities import UnfitError
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import VARIABLE, FlowFilter, HostLabel, QueueGroup, client_text, text
from pubstorm.scenario.flows import Subscription
from pubstorm.scenario.populations import Connecting, RunParts

SETTINGS_OF_KEYS = {
    "bootstrap.servers": "target or at",
    "group.id": "group of a subscription",
    "enable.auto.commit": "group of a subscription",
    "enable.auto.offset.store": "group of a subscription",
    "auto.offset.reset": "the stages: a consumer begins at the end of its topics",
    "sasl.username": "username",
    "sasl.password": "password",
}
"""Settings of librdkafka, and what says the same in a scenario."""


def topic_of_kafka(value: object) -> str:
    """A template of a topic of Kafka: letters, digits, dots, underscores and hyphens."""
    source = text(value)
    literal = VARIABLE.sub("", source)
    if source in ("", ".", "..") or re.search(r"[^A-Za-z0-9._-]", literal):
        hint = "Kafka has no levels and no wildcards, and no topic is called . or .."
        raise UnfitError(
            value, "is a topic of letters, digits, dots, underscores and hyphens", hint
        )
    return source


def _settings(value: object) -> object:
    """Keeps each setting a text, with `true` and `false` as librdkafka writes them."""
    if not isinstance(value, dict):
        raise UnfitError(value, "is a mapping of settings of librdkafka")
    for key, setting in value.items():
        if not isinstance(setting, (str, int, float, bool)):
            raise UnfitError(setting, f"for {key} is a plain value")
    return {key: _written(setting) for key, setting in value.items()}


def _written(setting: object) -> str:
    return str(setting).lower() if isinstance(setting, bool) else client_text(str(setting))


KafkaSettings = Annotated[Mapping[str, str], BeforeValidator(_settings)]


class KafkaSubscription(Subscription):
    """One topic of every client; a plain text is the topic."""

    topic: Annotated[FlowFilter, BeforeValidator(topic_of_kafka)]
    """Topic, without wildcards. A range `{a..b}` or a choice `{red|green}` makes one topic for each
    value."""
    group: QueueGroup | None = None
    """Consumer group: one of its members receives each message. Default: each client receives all
    partitions, without a group."""

    @property
    def filter(self) -> str:
        """The filter as the plan has it: a consumer group is a shared group."""
        return self.topic if self.group is None else f"$share/{self.group}/{self.topic}"


class KafkaConsumers(Connecting):
    """Consumers of Kafka, which a process of its own plays with librdkafka (`pip install
    "pubstorm[kafka]"`). They connect to a target `kafka://HOST`, or with `protocol: kafka` to
    brokers of kind `kafka` that the run starts."""

    SPEAKS: ClassVar[ProtocolName] = "kafka"
    HINTS: ClassVar[Mapping[str, str]] = {
        "publications": "messages come to Kafka by a flow: see flows",
        "qos": "Kafka has no QoS: settings has acks and isolation.level",
        "tls": "write settings: {security.protocol: ssl, ssl.ca.location: FILE}",
        "keep_alive": "settings has session.timeout.ms and socket.keepalive.enable",
        **dict.fromkeys(
            ("lifetime", "link", "read_rate", "tcp_acks", "shares", "flapping"),
            "only clients that the engine plays have it",
        ),
    }

    protocol: Literal["kafka"] = "kafka"
    """`kafka`: clients are consumers of Kafka. Not needed with a target `kafka://HOST`."""
    hosts: HostLabel | None = None
    """On a cluster: label of the host that they are on (`ray start --labels pubstorm=LABEL`), or
    its address; of several hosts, the first one. Default: the controller's host."""
    settings: KafkaSettings = Field(default_factory=dict)
    """Settings of librdkafka for each consumer, such as `fetch.wait.max.ms: 100`. Their values are
    kept out of stored runs."""
    subscriptions: tuple[KafkaSubscription, ...] = ()
    """Topics of each client."""

    def options(self, _name: str, _around: RunParts, /) -> KafkaProtocol:
        """Returns the options of the consumers in the plan."""
        return KafkaProtocol(settings=dict(self.settings))

    def rules(self) -> Iterator[Finding]:
        """Yields settings that the scenario has keys for, and groups beside no group."""
        for key in self.settings.keys() & SETTINGS_OF_KEYS.keys():
            message = f"found {key} in settings, allowed are other settings of librdkafka"
            yield ("settings", key), message, f"{SETTINGS_OF_KEYS[key]} says it"
        groups = {each.group for each in self.subscriptions}
        if len(groups) > 1:
            message = f"found {len(groups)} groups, with none among them counted, allowed is one"
            hint = "write a population for each group"
            yield ("subscriptions",), message, hint
        for number, each in enumerate(self.subscriptions):
            if VARIABLE.search(each.group or ""):
                message = f"found {each.group}, allowed is one group for all clients"
                place = ("subscriptions", number, "group")
                yield place, message, "write a population for each group"

    def rules_within(self, around: RunParts, /) -> Iterator[Finding]:
        """Yields topics with variables where other members of the group have other topics: nothing
        says which of the populations expects a message."""
        own = {each.filter for each in self.subscriptions if each.group is not None}
        groups = {each.group for each in self.subscriptions} - {None}
        for name, other in around.populations.items():
            if not isinstance(other, KafkaConsumers) or not self.is_near(other):
                continue
            theirs = {each.filter for each in other.subscriptions if each.group in groups}
            if theirs and theirs != own and any("{" in text for text in own | theirs):
                message = f"found topics that members of its group in {name} do not have"
                hint = "members of several populations have the same topics, or topics without {"
                yield ("subscriptions",), f"{message}, allowed are the same ones", hint
