"""Monitors of a run: metrics beside those of the clients. The docstrings are the reference that
users read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from pubstorm.contract import SourceKind
from pubstorm.contract.target import Target, parse_target
from pubstorm.metrics import names_of
from pubstorm.metrics.monitors import CLOCK_BOUND
from pubstorm.quantities import SECOND_NS, UnfitError
from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import (
    Flag,
    Interval,
    Name,
    Number,
    PathText,
    PortNumber,
    PositiveDuration,
    SmallCount,
    Text,
)

TOGETHER_ABOVE = 8
"""Brokers of one name, if there are more of them, are watched together, as one source."""
MEMBERS_PER_S = 200
"""Processes of a group that are read a second: a larger group is read less often."""


class Monitorable(Part):
    """A thing that monitors can read. The module of `measure.monitors` with the name of the class
    makes its monitors."""

    KIND: ClassVar[SourceKind]
    """Kind of the source of its readings."""
    METRICS: ClassVar[tuple[str, ...] | None] = None
    """Names of its metrics; None if only the run defines them."""


class Process(Monitorable):
    """A process with its children, by exactly one of the keys."""

    KIND: ClassVar[SourceKind] = "process"
    METRICS: ClassVar[tuple[str, ...] | None] = names_of(KIND)

    pid: Number | None = None
    """Its process id."""
    port: PortNumber | None = None
    """The TCP port that it listens on."""
    name: Text | None = None
    """Its name; exactly one process may have that name."""

    @model_validator(mode="after")
    def check_one(self) -> Process:
        """Makes sure that there is exactly one key."""
        found = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(found) != 1:
            keys = " and ".join(found) or "no key"
            raise UnfitError(keys, f"is one of {', '.join(type(self).model_fields)}")
        return self


class SysTopics(Monitorable):
    """Figures that a broker publishes under `$SYS`, read by an observer: one more client."""

    KIND: ClassVar[SourceKind] = "broker"

    url: Text | None = None
    """The broker. Default: the target of the source's name, else the first one for MQTT."""
    topics: tuple[Text, ...] = ("$SYS/#",)
    """Topic filters whose numbers are kept."""
    username: Text | None = None
    """User name of the observer."""
    password: Text | None = None
    """Password of the observer, such as `${env:NAME}`."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str | None) -> str | None:
        """Takes what clients could connect to."""
        if url is not None:
            parse_target(url)
        return url


class Prometheus(Monitorable):
    """An endpoint in Prometheus' text format."""

    KIND: ClassVar[SourceKind] = "endpoint"

    url: Text
    """Address, for example http://127.0.0.1:9100/metrics."""
    include: tuple[Text, ...] = ("*",)
    """Names of metrics that are kept, with the wildcards * and ?."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        """Takes what an endpoint can answer to."""
        if not url.startswith(("http://", "https://")):
            raise UnfitError(url, "is an address such as http://127.0.0.1:9100/metrics")
        return url


class Redis(Monitorable):
    """A Redis that the run does not start; a plain text is its address."""

    KIND: ClassVar[SourceKind] = "endpoint"
    METRICS: ClassVar[tuple[str, ...] | None] = names_of(KIND)
    SHORT_FOR: ClassVar[str | None] = "url"

    url: Text
    """Address, for example redis://127.0.0.1:6379/0, with a password as in
    redis://:PASSWORD@HOST."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        """Takes what may be a Redis."""
        if not url.startswith("redis://"):
            raise UnfitError(url, "is an address such as redis://127.0.0.1:6379/0")
        return url


class Remote(Monitorable):
    """Another host, through `pubstorm monitor --listen` on that host."""

    KIND: ClassVar[SourceKind] = "process"
    METRICS: ClassVar[tuple[str, ...] | None] = (*names_of(KIND), CLOCK_BOUND.name)

    url: Text
    """Address of `pubstorm monitor`, for example https://broker.example:9700. Plain http:// is for
    this machine, for example the near end of a tunnel."""
    token: Text | None = None
    """The token in the `--token-file` of that host, such as `${file:token}`."""
    ca: PathText | None = None
    """File of the authorities (PEM) that vouch for the certificate of that host. Default: those of
    the system."""
    process: Process | None = None
    """A process of that host with its children. Default: only the host is monitored, as the source
    `host-NAME`."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        """Takes an address that keeps the token secret."""
        found = _REMOTE_URL.fullmatch(url)
        if found is None:
            raise UnfitError(url, "is an address such as https://broker.example:9700")
        host = Target(host=found["address"] or found["host"], port=0)
        if found["scheme"] == "http" and not host.is_loopback:
            hint = "write https://, with --cert and --key for pubstorm monitor"
            raise UnfitError(url, "with http:// are addresses of this machine", hint)
        return url


class MonitorSource(Part):
    """A source of figures: exactly one of the keys."""

    process: Process | None = None
    """A process of this machine with its children."""
    sys: SysTopics | None = None
    """A broker's `$SYS` topics."""
    prometheus: Prometheus | None = None
    """An endpoint in Prometheus' text format."""
    redis: Redis | None = None
    """A Redis, by the figures that it reports."""
    remote: Remote | None = None
    """Another host, and a process of it."""

    @model_validator(mode="before")
    @classmethod
    def check_kind(cls, value: object) -> object:
        """Makes sure that there is exactly one key."""
        if not isinstance(value, dict) or len(value) != 1:
            found = "keys " + ", ".join(map(str, value)) if isinstance(value, dict) else value
            raise UnfitError(found, f"is one of {', '.join(cls.model_fields)}")
        return {kind: {} if source is None else source for kind, source in value.items()}

    @property
    def wanted(self) -> Monitorable:
        """The thing that is watched."""
        found: Monitorable
        (found,) = filter(None, (getattr(self, key) for key in MONITORABLE))
        return found

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Adds that there is exactly one key."""
        full = super().__get_pydantic_json_schema__(schema, handler)
        return {**full, "minProperties": 1, "maxProperties": 1}


MONITORABLE: Mapping[str, type[Monitorable]] = {
    key: get_args(field.annotation)[0] for key, field in MonitorSource.model_fields.items()
}
"""The things that monitors can read, by their key."""


class Monitors(Part):
    """Monitors of the run, on one time axis with the load."""

    interval: Interval = SECOND_NS
    """Time between two readings."""
    host: Flag = True
    """Monitors this machine: CPU, memory, network."""
    brokers: Flag = True
    """Monitors the brokers that the run starts, their services, and a target on this machine: the
    process, `$SYS`, and the figures of services; of a target on another machine `$SYS`, if the
    scenario asks for a figure of it. More than 8 brokers of one name are one source with that name,
    without `$SYS`."""
    sources: Mapping[Name, MonitorSource] = Field(default_factory=dict)
    """More sources, by name."""


class Profile(Part):
    """`perf record` of a broker in a stage."""

    stage: Text | None = None
    """Name of the stage. Default: the first publish stage."""
    broker: Name | None = None
    """Broker of the topology, or a source of the monitors with a process. Default: the first
    broker."""
    after: PositiveDuration = SECOND_NS
    """Time after the start of the stage."""
    duration: PositiveDuration = Field(20 * SECOND_NS, alias="for")
    """Duration, at most until the load of the stage ends."""
    frequency: SmallCount = 99
    """Samples a second."""


_REMOTE_URL = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:/@?#\[\]]+))"
    r"(?::[0-9]{1,5})?/?"
)
