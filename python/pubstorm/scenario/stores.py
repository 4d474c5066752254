"""Places at a broker that clients declare before they use them: streams of JetStream, and exchanges
of AMQP with their names and arguments. The docstrings are the reference for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pubstorm.contract.amqp import (
    AmqpArgument,
    AmqpExchange,
)
from pubstorm.contract.protocol import REPLICAS_MAX, PlannedStream
from pubstorm.contract.template import Template
from pubstorm.quantities import UnfitError, describe
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import Flag, SmallCount, SubjectFilter, text

MAIN = "/"
"""RabbitMQ's own virtual host."""
SHORT_BYTES_MAX = 255
"""Longest short string of AMQP: a name or a routing key."""
I64_MAX = 2**63 - 1


class Stream(Part):
    """A stream of JetStream. Each client that uses it creates it at its server, unless it exists
    with the same settings."""

    subjects: tuple[SubjectFilter, ...] = Field(min_length=1)
    """Subjects whose messages the stream stores, with `*` and `>`."""
    storage: Literal["file", "memory"] = "file"
    """Place of the messages."""
    replicas: SmallCount = 1
    """Number of servers that store each message, at most 5."""

    def planned(self, name: str) -> PlannedStream:
        """Returns the stream in a plan."""
        return PlannedStream(
            name=name,
            subjects=self.subjects,
            in_memory=self.storage == "memory",
            replicas=self.replicas,
        )

    def rules(self) -> Iterator[Finding]:
        """Yields subjects that depend on a client, and more replicas than a server has."""
        for number, subject in enumerate(self.subjects):
            if Template.parse(subject).variables:
                message = f"found {describe(subject)}, allowed is a subject without variables"
                yield ("subjects", number), message, "write * for a token that varies"
        if self.replicas > REPLICAS_MAX:
            message = f"found {self.replicas}, allowed are 1 to {REPLICAS_MAX}"
            yield ("replicas",), message, None


def exchange_name(value: object) -> str:
    """A name of an exchange; empty for the default exchange."""
    source = text(value)
    if any(each in "/{}" or each.isspace() for each in source):
        raise UnfitError(value, "is a name without slashes, braces and spaces")
    if len(source.encode()) > SHORT_BYTES_MAX:
        raise UnfitError(value, f"is a name of at most {SHORT_BYTES_MAX} bytes")
    return source


def declared_name(value: object) -> str:
    """A name of an exchange that clients declare."""
    source = exchange_name(value)
    if not source or source.startswith("amq."):
        hint = "every broker has amq.topic and the others of its own already"
        raise UnfitError(value, "is a name that does not begin with amq.", hint)
    return source


TIMES = frozenset({"x-message-ttl", "x-expires"})
"""Arguments of RabbitMQ in milliseconds."""
NUMBERS = TIMES | {"x-max-length", "x-max-length-bytes", "x-max-priority", "x-delivery-limit"}
TEXTS = frozenset(
    {"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "alternate-exchange"}
)


def arguments(value: object) -> object:
    """Arguments of a queue or an exchange: numbers, texts and flags by name."""
    found = {} if value is None else value
    if not isinstance(found, dict):
        raise UnfitError(value, "are arguments by name, such as {x-max-length: 1000}")
    for key, each in found.items():
        is_large = isinstance(each, int) and abs(each) > I64_MAX
        if is_large or not isinstance(each, (str, int)):
            raise UnfitError(each, f"for {key} is a whole number, a text, true or false")
        if key in NUMBERS and (isinstance(each, (str, bool)) or each < 0):
            hint = "a time in milliseconds" if key in TIMES else None
            raise UnfitError(each, f"for {key} is a whole number from 0 on", hint)
        if key in TEXTS and not isinstance(each, str):
            raise UnfitError(each, f"for {key} is a text")
        if len(str(key).encode()) > SHORT_BYTES_MAX:
            raise UnfitError(key, f"is a name of at most {SHORT_BYTES_MAX} bytes")
    return found


def arguments_of(given: Mapping[str, Any]) -> tuple[AmqpArgument, ...]:
    """Returns arguments in a plan."""
    return tuple(AmqpArgument(name=name, value=value) for name, value in given.items())


NAME_JSON = WithJsonSchema({"title": "name", "type": "string"})
ExchangeName = Annotated[str, BeforeValidator(exchange_name), NAME_JSON]
DeclaredName = Annotated[str, BeforeValidator(declared_name), NAME_JSON]
Arguments = Annotated[Mapping[str, Any], BeforeValidator(arguments)]


class Exchange(Part):
    """An exchange of AMQP. Each client that uses it declares it, unless it exists with the same
    settings."""

    type: Literal["topic", "direct", "fanout"] = "topic"
    """Rule by which the exchange chooses queues: by words of the key, by the whole key, or all of
    them."""
    durable: Flag = False
    """The exchange survives a restart of the broker."""
    arguments: Arguments = Field(default_factory=dict)
    """Further arguments, such as `{alternate-exchange: unrouted}`."""

    def planned(self, name: str) -> AmqpExchange:
        """Returns the exchange in a plan."""
        return AmqpExchange(
            name=name,
            type=self.type,
            durable=self.durable,
            arguments=arguments_of(self.arguments),
        )
