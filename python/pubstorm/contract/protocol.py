"""Protocols of populations, as the plan has them: the types of `protocol.rs` and `property.rs` in
`crates/plan/src/model`, and what all types of a plan are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pubstorm.errors import REDACTED

U16_MAX = 2**16 - 1
U32_MAX = 2**32 - 1
IDENTIFIER_MAX = 268_435_455
"""Largest subscription identifier of MQTT 5."""

U16 = Annotated[int, Field(ge=0, le=U16_MAX)]
U32 = Annotated[int, Field(ge=0, le=U32_MAX)]
QoS = Annotated[int, Field(ge=0, le=2)]
SCRAM = "SCRAM-SHA-256"
"""Method of enhanced authentication that the engine plays."""
MqttVersion = Literal["3.1", "3.1.1", "5"]
MqttName = Literal["mqtt-3.1", "mqtt-3.1.1", "mqtt-5"]
MQTT_NAMES: Mapping[MqttVersion, MqttName] = {
    "3.1": "mqtt-3.1",
    "3.1.1": "mqtt-3.1.1",
    "5": "mqtt-5",
}
ProtocolName = MqttName | Literal["zmtp-3.1", "nats"]
"""Protocol and version, as results and reports name them."""
Player = Literal["engine", "libzmq", "pyzmq", "command"]
Template = Annotated[str, Field(description="Text with variables such as `{n}`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Abilities of a protocol, and of what its clients connect to. Checks, defaults and reports
    read them, and name no protocol."""

    has_broker: bool
    """True if clients connect to a broker; False: to the publishers themselves."""
    keeps_state: bool
    """True if a broker can keep messages and sessions beyond a run."""
    answers_filters: bool
    """True if each filter of a subscription is granted or refused."""
    acknowledges: bool
    """True if messages have a QoS."""
    has_properties: bool
    """True if messages carry properties beside the payload, such as a stamp."""
    filters: Literal["levels", "prefixes"]
    """Meaning of a filter: levels with wildcards, or the beginning of a topic."""
    text_bytes_max: int | None
    """Longest topic, filter or identifier; None: any length."""
    login_bytes_max: int
    """Longest user name and password."""


class Frozen(BaseModel):
    """A value of the contract: immutable, and without room for unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Property(Frozen):
    """A property of a packet of MQTT 5."""

    name: str
    """Name in the standard, in small letters with `_` for a space."""
    key: str | None = None
    """Name of a user property; null for other properties."""
    value: U32 | Template
    """A number, or the template of a string or of binary data."""


class PlannedWill(Frozen):
    """Message the broker sends when a client dies."""

    topic: Template
    """Template of the topic."""
    payload: Template
    """Template of the payload."""
    qos: QoS
    """QoS 0, 1 or 2."""
    retain: bool
    """True if the broker keeps it."""
    properties: tuple[Property, ...] = ()
    """Properties of the message."""


class PlannedAuthentication(Frozen):
    """Enhanced authentication of MQTT 5."""

    method: str
    """Name of the method."""
    data: Template | None = None
    """Template of the data in CONNECT. Null: the method is SCRAM-SHA-256, with user name and
    password of the population, which CONNECT then does not have."""


class Mqtt(Frozen):
    """Options of MQTT clients."""

    kind: Literal["mqtt"] = "mqtt"
    version: MqttVersion = "3.1.1"
    """Version of MQTT."""
    client_id: Template
    """Template of the client identifier."""
    clean_session: bool
    """True if each connection starts without session state."""
    bridge: bool = False
    """True if clients set the bridge bit in the protocol level. The broker does not send such a
    client the messages that it published itself."""
    will: PlannedWill | None = None
    """Message that the broker sends when the client dies."""
    properties: tuple[Property, ...] = ()
    """Properties of CONNECT."""
    authentication: PlannedAuthentication | None = None
    """Enhanced authentication."""

    @property
    def will_delay_s(self) -> int:
        """Time from the end of a connection to the publication of its will, in seconds: the Will
        Delay Interval, or the rest of the session if that is shorter."""
        will = () if self.will is None else self.will.properties
        delay = _number(will, "will_delay_interval")
        return min(delay, _number(self.properties, "session_expiry_interval"))

    @property
    def name(self) -> ProtocolName:
        """Protocol and version, as results and reports name them."""
        return MQTT_NAMES[self.version]

    @property
    def uses_scram(self) -> bool:
        """True if clients prove that they have a password, and do not send it."""
        return self.authentication is not None and self.authentication.data is None

    def without_secrets(self) -> Mqtt:
        """Returns the same without the data of an authentication."""
        if self.authentication is None or self.authentication.data is None:
            return self
        redacted = self.authentication.model_copy(update={"data": REDACTED})
        return self.model_copy(update={"authentication": redacted})


def _number(properties: tuple[Property, ...], name: str) -> int:
    """The number of a property; 0 without it."""
    found = (each.value for each in properties if each.name == name)
    return next((value for value in found if isinstance(value, int)), 0)


class Zmtp(Frozen):
    """Options of ZeroMQ sockets, which speak ZMTP 3.1."""

    kind: Literal["zmtp"] = "zmtp"
    player: Player = "engine"
    """Program that plays the sockets: the engines, each its share; libzmq in `pubstorm-zmq`; pyzmq
    in a Python program; or any other program that speaks this contract."""
    high_water_mark: U32
    """Most messages that a publisher queues for one subscriber, and a subscriber of libzmq for
    itself, before it drops the next; 0: no limit."""
    io_threads: Annotated[int, Field(ge=1, le=U32_MAX)] = 1
    """Threads of libzmq for input and output."""
    security: Literal["null", "plain", "curve"] = "null"
    """Mechanism: none, the population's user name and password in clear, or keys that the run
    makes. The engine does not speak `curve`."""

    @property
    def name(self) -> ProtocolName:
        """Protocol and version, as results and reports name them."""
        return "zmtp-3.1"

    def without_secrets(self) -> Zmtp:
        """Returns the same: there are no secrets."""
        return self


class NatsProtocol(Frozen):
    """Options of NATS clients."""

    kind: Literal["nats"] = "nats"
    client_name: Template
    """Template of the name under which the server lists a client."""
    echo: bool
    """True if the server sends a client its own messages."""
    token: Template | None = None
    """Template of the token with which clients log in."""
    seed: Template | None = None
    """Template of the seed of the nkey with which clients sign."""
    jwt: Template | None = None
    """Template of the JSON Web Token of the user with that nkey."""

    @property
    def name(self) -> Literal["nats"]:
        """Protocol, as results and reports name it."""
        return "nats"

    def without_secrets(self) -> NatsProtocol:
        """Returns the same without token, seed and JSON Web Token."""
        secret = {"token": self.token, "seed": self.seed, "jwt": self.jwt}
        given = {key: REDACTED for key, value in secret.items() if value is not None}
        return self.model_copy(update=given)


Protocol = Annotated[Mqtt | Zmtp | NatsProtocol, Field(discriminator="kind")]

_MQTT = Capabilities(
    has_broker=True,
    keeps_state=True,
    answers_filters=True,
    acknowledges=True,
    has_properties=False,
    filters="levels",
    text_bytes_max=U16_MAX,
    login_bytes_max=U16_MAX,
)
CAPABILITIES: Mapping[ProtocolName, Capabilities] = {
    "mqtt-3.1": _MQTT,
    "mqtt-3.1.1": _MQTT,
    "mqtt-5": replace(_MQTT, has_properties=True),
    "zmtp-3.1": Capabilities(
        has_broker=False,
        keeps_state=False,
        answers_filters=False,
        acknowledges=False,
        has_properties=False,
        filters="prefixes",
        text_bytes_max=None,
        login_bytes_max=255,  # [24/ZMTP-PLAIN]
    ),
    "nats": Capabilities(
        has_broker=True,
        keeps_state=False,
        answers_filters=True,
        acknowledges=False,
        has_properties=False,
        filters="levels",
        text_bytes_max=U16_MAX,
        login_bytes_max=U16_MAX,
    ),
}
