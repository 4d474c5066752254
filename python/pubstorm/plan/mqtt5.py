"""Properties of MQTT 5: keys of a scenario as the properties that packets carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pubstorm.contract import protocol
from pubstorm.contract.protocol import U32_MAX
from pubstorm.quantities import SECOND_NS
from pubstorm.scenario.base import Part
from pubstorm.scenario.flows import MqttPublication, Will
from pubstorm.scenario.populations import MqttClients

Written = Callable[[object], int | str]
"""Value of a property, from the value of its key."""


def connect_properties(population: MqttClients) -> tuple[protocol.Property, ...]:
    """Returns the properties of CONNECT. A persistent session has no end, unless it is set."""
    if population.version != "5":
        return ()
    if population.session == "persistent" and population.session_expiry is None:
        population = population.model_copy(update={"session_expiry": U32_MAX * SECOND_NS})
    return tuple(_properties(population, CONNECT, population.user_properties))


def message_properties(publication: MqttPublication) -> tuple[protocol.Property, ...]:
    """Returns the properties of the messages of a publication."""
    return tuple(_properties(publication, MESSAGE, publication.user_properties))


def will_properties(will: Will) -> tuple[protocol.Property, ...]:
    """Returns the properties of a will."""
    return tuple(_properties(will, WILL, will.user_properties))


def _properties(
    part: Part, keys: Mapping[str, tuple[str, Written]], user_properties: Mapping[str, str]
) -> Iterator[protocol.Property]:
    for key, (name, written) in keys.items():
        value = getattr(part, key)
        if value is not None:
            yield protocol.Property(name=name, value=written(value))
    for key, text in user_properties.items():
        yield protocol.Property(name="user_property", key=key, value=text)


def _seconds(value: object) -> int:
    assert isinstance(value, int), "durations are nanoseconds"
    return value // SECOND_NS


def _number(value: object) -> int:
    assert isinstance(value, int), "the field is a number"
    return value


CONNECT: Mapping[str, tuple[str, Written]] = {
    "session_expiry": ("session_expiry_interval", _seconds),
    "receive_maximum": ("receive_maximum", _number),
    "maximum_packet_size": ("maximum_packet_size", _number),
    "topic_aliases": ("topic_alias_maximum", _number),
}
MESSAGE: Mapping[str, tuple[str, Written]] = {
    "expiry": ("message_expiry_interval", _seconds),
    "content_type": ("content_type", str),
    "payload_format": ("payload_format_indicator", ("bytes", "text").index),
    "response_topic": ("response_topic", str),
    "correlation_data": ("correlation_data", str),
}
WILL: Mapping[str, tuple[str, Written]] = {"delay": ("will_delay_interval", _seconds), **MESSAGE}
