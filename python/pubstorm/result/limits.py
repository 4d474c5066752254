"""Limits of a broker, found by trying: what it grants in CONNACK, and the largest that it takes."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import model_validator

from pubstorm.contract import U64, Value

LIMITS_FILE = "limits.json"
LimitBound = Literal["exact", "at_least", "not_found"]


class LimitName(StrEnum):
    """Name of a limit in JSON, in the order of a document."""

    words: str
    """The name in words."""
    unit: str
    """Unit of a number, in words; empty for none."""

    def __new__(cls, name: str, words: str, unit: str = "") -> LimitName:
        """Returns the limit with this name."""
        limit = str.__new__(cls, name)
        limit._value_ = name
        limit.words, limit.unit = words, unit
        return limit

    MQTT_3_1 = "mqtt_3_1", "MQTT 3.1"
    MQTT_3_1_1 = "mqtt_3_1_1", "MQTT 3.1.1"
    MQTT_5 = "mqtt_5", "MQTT 5"
    RECEIVE_MAXIMUM = "receive_maximum", "Receive Maximum", "messages"
    TOPIC_ALIAS_MAXIMUM = "topic_alias_maximum", "Topic Alias Maximum", "aliases"
    MAXIMUM_QOS = "maximum_qos", "Maximum QoS"
    RETAIN_AVAILABLE = "retain_available", "Retain Available"
    MAXIMUM_PACKET_SIZE = "maximum_packet_size_bytes", "Maximum Packet Size", "bytes"
    WILDCARDS_AVAILABLE = "wildcards_available", "Wildcard Subscription Available"
    SHARED_AVAILABLE = "shared_available", "Shared Subscription Available"
    IDENTIFIERS_AVAILABLE = "identifiers_available", "Subscription Identifier Available"
    SESSION_EXPIRY = "session_expiry_s", "Session Expiry Interval", "s"
    SERVER_KEEP_ALIVE = "server_keep_alive_s", "Server Keep Alive", "s"
    ASSIGNED_CLIENT_ID = "assigned_client_id", "assigns client identifiers"
    QOS_0 = "qos_0", "grants and delivers QoS 0"
    QOS_1 = "qos_1", "grants and delivers QoS 1"
    QOS_2 = "qos_2", "grants and delivers QoS 2"
    RETAINED = "retained", "keeps a retained message"
    SYS_TOPICS = "sys_topics", "serves $SYS"
    LARGEST_PACKET = "largest_packet_bytes", "largest packet", "bytes"
    LONGEST_CLIENT_ID = "longest_client_id_bytes", "longest client identifier", "bytes"
    LONGEST_TOPIC = "longest_topic_bytes", "longest topic", "bytes"
    DEEPEST_TOPIC = "deepest_topic_levels", "deepest topic", "levels"
    MOST_SUBSCRIPTIONS = "most_subscriptions", "most subscriptions of a client", "subscriptions"


class Limit(Value):
    """One limit of a broker."""

    name: LimitName
    """Name, unit last."""
    value: bool | U64 | str | None
    """A number in the unit, true for yes, or a word such as `unlimited`; null: not found."""
    bound: LimitBound
    """at_least: the search ended before it found a larger number that the broker refuses."""
    how: str
    """The way the value was found, or the reason why there is none."""

    @model_validator(mode="after")
    def _has_a_value_if_found(self) -> Self:
        if (self.value is None) != (self.bound == "not_found"):
            raise ValueError(f"found {self.value} as {self.bound}, allowed is a value if found")
        return self

    @property
    def text(self) -> str:
        """The value as people read it."""
        match self.value:
            case None:
                return "not found"
            case bool():
                return "yes" if self.value else "no"
            case int():
                least = "at least " if self.bound == "at_least" else ""
                return f"{least}{self.value:,} {self.name.unit}".rstrip()
        return self.value


class Limits(Value):
    """All limits of a broker."""

    format: Literal[1] = 1
    """Version of this format."""
    limits: tuple[Limit, ...]
    """One for each name, in the order of the names."""
    interrupted: bool
    """True if the time was over before all limits were tried, or the broker accepted no connection
    any more, at the latest after the last limit."""


class Probed(Value):
    """The outcome of a probe that a data sheet has played."""

    limits: Limits | None
    """The limits; null: the user ended the probe."""

    @property
    def interrupted(self) -> bool:
        """True if the user ended it."""
        return self.limits is None
