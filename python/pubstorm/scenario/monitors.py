"""Monitors: what is watched beside the clients while a run goes on. The docstrings are the
reference that users read. It watches nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import (
    Flag,
    Interval,
    Name,
    Number,
    PortNumber,
    PositiveDuration,
    SmallCount,
    Text,
)
from pubstorm.scenario.target import parse_target
from pubstorm.units import UnfitError

SECOND_NS = 10**9
TOGETHER_ABOVE = 8
"""Brokers of one name, if there are more of them, are watched together, as one source."""


class Process(Part):
    """A process of this machine with its children, by exactly one of the keys."""

    pid: Number | None = None
    """Its process id."""
    port: PortNumber | None = None
    """The TCP port that it listens on."""
    name: Text | None = None
    """Its name; there must be one such process."""

    @model_validator(mode="after")
    def check_one(self) -> Process:
        """Makes sure that there is exactly one key."""
        found = [key for key in type(self).model_fields if getattr(self, key) is not None]
        if len(found) != 1:
            keys = " and ".join(found) or "no key"
            raise UnfitError(keys, f"is one of {', '.join(type(self).model_fields)}")
        return self


class SysTopics(Part):
    """What a broker says of itself under `$SYS`, read by an observer: one more client."""

    url: Text | None = None
    """The broker. Default: the scenario's first target."""
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


class Prometheus(Part):
    """An endpoint in Prometheus' text format."""

    url: Text
    """Where it answers, for example http://127.0.0.1:9100/metrics."""
    include: tuple[Text, ...] = ("*",)
    """Names of metrics that are kept, with the wildcards * and ?."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        """Takes what an endpoint can answer to."""
        if not url.startswith(("http://", "https://")):
            raise UnfitError(url, "is an address such as http://127.0.0.1:9100/metrics")
        return url


class Redis(Part):
    """A Redis that the run does not start; a plain text is its address."""

    SHORT_FOR: ClassVar[str | None] = "url"

    url: Text
    """Where it answers, for example redis://127.0.0.1:6379/0, with a password as in
    redis://:PASSWORD@HOST."""

    @field_validator("url")
    @classmethod
    def check_url(cls, url: str) -> str:
        """Takes what may be a Redis."""
        if not url.startswith("redis://"):
            raise UnfitError(url, "is an address such as redis://127.0.0.1:6379/0")
        return url


class Source(Part):
    """One thing that is watched: exactly one of the keys."""

    process: Process | None = None
    """A process of this machine with its children."""
    sys: SysTopics | None = None
    """A broker's `$SYS` topics."""
    prometheus: Prometheus | None = None
    """An endpoint in Prometheus' text format."""
    redis: Redis | None = None
    """A Redis, by what it says of itself."""

    @model_validator(mode="before")
    @classmethod
    def check_kind(cls, value: object) -> object:
        """Makes sure that there is exactly one key."""
        if not isinstance(value, dict) or len(value) != 1:
            found = "keys " + ", ".join(map(str, value)) if isinstance(value, dict) else value
            raise UnfitError(found, f"is one of {', '.join(cls.model_fields)}")
        return {kind: {} if source is None else source for kind, source in value.items()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Adds that there is exactly one key."""
        full = super().__get_pydantic_json_schema__(schema, handler)
        return {**full, "minProperties": 1, "maxProperties": 1}


class Monitors(Part):
    """What is watched while the run goes on, on one time axis with the load."""

    interval: Interval = SECOND_NS
    """Time between two readings."""
    host: Flag = True
    """Whether this machine is watched: CPU, memory, network."""
    brokers: Flag = True
    """Whether the brokers that the run starts, their services, and a broker of this machine that is
    the target, are watched: process and `$SYS`, of services what they say of themselves. More than
    8 brokers of one name are watched together, as one source with that name, and without `$SYS`."""
    sources: Mapping[Name, Source] = Field(default_factory=dict)
    """What else is watched, by name."""


class Profile(Part):
    """`perf record` of a broker of this machine in a stage."""

    stage: Text | None = None
    """Name of the stage. Default: the first publish stage."""
    broker: Name | None = None
    """Broker of the topology, or process source of the monitors. Default: the first broker."""
    after: PositiveDuration = SECOND_NS
    """When it begins, after the start of the stage."""
    duration: PositiveDuration = Field(20 * SECOND_NS, alias="for")
    """How long, at most until the load of the stage ends."""
    frequency: SmallCount = 99
    """Samples a second."""
