"""Flows of a plan: the subscriptions and publications of a population, with the schedule and the
payload of messages. Field by field the types of `crates/plan/src/model/flows.rs`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pubstorm.contract.protocol import (
    IDENTIFIER_MAX,
    U16_MAX,
    U32,
    U32_MAX,
    Frozen,
    Property,
    QoS,
    Template,
)
from pubstorm.contract.value import PositiveU62


class PlannedSubscription(Frozen):
    """One topic filter of every client of a population."""

    filter: Template
    """Template of the filter; a range `{a..b}` makes one filter for each value."""
    qos: QoS
    """Highest QoS wanted."""
    no_local: bool = False
    """True if the broker does not send a client its own messages. Only MQTT 5."""
    retain_as_published: bool = False
    """True if the broker keeps the RETAIN flag of messages that it forwards. Only MQTT 5."""
    retain_handling: Literal["send", "send_if_new", "never"] = "send"
    """Retained messages that the broker sends: all, all if the subscription is new, or none. Only
    MQTT 5."""
    identifier: Annotated[int, Field(ge=1, le=IDENTIFIER_MAX)] | None = None
    """Identifier that the broker repeats in matching messages. Only MQTT 5."""


class OpenPace(Frozen):
    """Open loop: an absolute schedule that does not wait for the broker."""

    kind: Literal["open"] = "open"
    period_ns: PositiveU62
    """Time between two messages of a client, in nanoseconds."""
    spread: Annotated[float, Field(ge=0, lt=1)]
    """A client's period differs from `period_ns` by up to this share."""
    jitter: Annotated[float, Field(ge=0, le=1)]
    """Each message moves on the schedule by up to half this share of the period."""
    phase: Literal["spread", "random", "aligned"]
    """Start of a client in its period."""
    late: Literal["send", "skip"]
    """`send`: a late message is sent late; `skip`: a late message is skipped."""
    burst: Annotated[int, Field(ge=1, le=U32_MAX)] = 1
    """Messages in a burst; the next burst follows after as many periods."""
    arrivals: Literal["even", "poisson"] = "even"
    """`even`: one message or burst in each period; `poisson`: a Poisson process, with exponential
    times between messages or bursts and the same mean."""


class ClosedPace(Frozen):
    """Closed loop: the next message is due as soon as the window and the socket take it."""

    kind: Literal["closed"] = "closed"


class FixedPayload(Frozen):
    """Every payload has this size."""

    kind: Literal["fixed"] = "fixed"
    bytes: U32
    """Size in bytes."""


class GaussianPayload(Frozen):
    """Sizes follow a normal distribution, cut at four standard deviations and at zero."""

    kind: Literal["gaussian"] = "gaussian"
    mean_bytes: U32
    """Mean in bytes."""
    sd_bytes: U32
    """Standard deviation in bytes."""


class TextPayload(Frozen):
    """The user's own text; without a stamp in it counted, but without latency or order. MQTT 5 has
    the stamp in a user property."""

    kind: Literal["text"] = "text"
    template: Template
    """Template of the text."""
    is_json: bool = False
    """True if the text is JSON: values from a file are escaped."""


Pace = Annotated[OpenPace | ClosedPace, Field(discriminator="kind")]
Payload = Annotated[FixedPayload | GaussianPayload | TextPayload, Field(discriminator="kind")]


class PlannedPublication(Frozen):
    """One flow of messages that every client of a population sends."""

    topic: Template
    """Template of the topic; a range `{a..b}` is gone through, message by message."""
    order: Literal["turn", "shuffled"] = "turn"
    """Order of the values of a range: in turn, or shuffled anew for each round."""
    qos: QoS
    """QoS 0, 1 or 2."""
    retain: bool
    """True if the broker keeps the last message."""
    pace: Pace
    """Schedule of the messages."""
    window: Annotated[int, Field(ge=1, le=U16_MAX)]
    """Messages of a client in flight at most (QoS 1 and 2)."""
    payload: Payload
    """Payload of a message."""
    properties: tuple[Property, ...] = ()
    """Properties of the messages. Only MQTT 5."""
    topic_alias: bool = False
    """True if a topic alias replaces a topic that the broker knows. Only MQTT 5."""
    request: bool = False
    """True if each message is a request: its correlation data holds the stamp, and answers to its
    Response Topic are round trips. Only MQTT 5."""
