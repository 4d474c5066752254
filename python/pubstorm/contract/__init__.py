"""Values that controller and agents exchange, equal to the Rust side: their base, frozen and
without unknown keys, and the source of a sample, made where the sample is made and stored with
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

U16_MAX = 2**16 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
U16 = Annotated[int, Field(ge=0, le=U16_MAX)]
U32 = Annotated[int, Field(ge=0, le=U32_MAX)]
U64 = Annotated[int, Field(ge=0, le=U64_MAX)]
U62 = Annotated[int, Field(ge=0, le=2**62)]
"""A duration or an instant in nanoseconds, or the number of a client. Three add up in 64 bits."""
PositiveU62 = Annotated[int, Field(gt=0, le=2**62)]
RATE_MIN_PER_S, RATE_MAX_PER_S = 1e-7, 1e9
"""One event in 116 days, and one in each nanosecond."""
Rate = Annotated[float, Field(ge=RATE_MIN_PER_S, le=RATE_MAX_PER_S)]
"""Events a second."""
Signed = Annotated[int, Field(ge=-U64_MAX, le=U64_MAX)]
"""A number with a sign. A sum of such numbers can be larger than 64 bits with a sign hold."""
Instant = Annotated[float, Field(ge=-1e9, le=1e9)]
"""An instant in seconds after the start of a run."""
Number = Annotated[float, Field(ge=-1e36, le=1e36)]
"""A figure that can be multiplied, and summed up with others. Rates of the largest counts fit."""
Positive = Annotated[float, Field(gt=0, le=1e36)]
"""A figure that has a logarithm."""
Probability = Annotated[float, Field(gt=0, lt=1)]
"""The confidence of an interval."""


def _moment(text: str) -> str:
    """Returns a date and time in ISO 8601. Raises ValueError if no clock shows that time."""
    if FIRST_YEAR <= datetime.fromisoformat(text).year <= LAST_YEAR:
        return text
    raise ValueError(f"found {text}, allowed are the years {FIRST_YEAR} to {LAST_YEAR}")


FIRST_YEAR, LAST_YEAR = 1971, 2500
Moment = Annotated[str, AfterValidator(_moment)]
"""A date and time on the wall clock, in ISO 8601."""

Template = Annotated[str, Field(description="Text with variables such as `{n}`.")]

LATER = ConfigDict(defer_build=True)
"""Settings of a TypeAdapter that is built when it is first used."""


class Frozen(BaseModel):
    """A value of the contract: immutable, and without room for unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Value(BaseModel):
    """A frozen value that refuses unknown keys, and what is no number."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        frozen=True,
        extra="forbid",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


SourceKind = Literal[
    "population",
    "agent",
    "host",
    "broker",
    "publisher",
    "service",
    "bridge",
    "process",
    "endpoint",
]
KINDS: frozenset[SourceKind] = frozenset(get_args(SourceKind))
OF_LOAD: frozenset[SourceKind] = frozenset({"population", "agent"})
"""Kinds whose samples come from snapshots, without a monitor."""
OF_GENERATOR: frozenset[SourceKind] = frozenset({*OF_LOAD, "host", "bridge"})
"""Kinds that are neither under test nor a program beside it."""

TARGET_BROKER = "broker"
"""Name of the brokers that a run does not start, its targets: `broker-0` and so on."""
HOST = "host"
"""Name of the controller's host."""
OTHER_HOST = f"{HOST}-"
"""Beginning of the names of other hosts. An address or the name of a source follows. No other
name begins so."""
HOST_OF = f".{HOST}"
"""End of a subject that means the hosts of what is before it, such as `broker.host`."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something that is watched. Kind and name together are unique in a run; the name alone is
    not, since a publisher under test is named like its population."""

    kind: SourceKind
    name: str
    """A population, a broker (`broker-0`), `host`, `agent-0`, or a source of the monitors."""
    group: str = field(compare=False)
    """Subject of thresholds that several share: `broker`; the name if there is no group."""
    number: int | None = field(default=None, compare=False)
    """Number in the group; None without a number. Brokers that are watched together have none."""

    @classmethod
    def single(cls, kind: SourceKind, name: str) -> Source:
        """Returns a source without a group."""
        return cls(kind, name, name)

    @classmethod
    def member(cls, kind: SourceKind, group: str, number: int) -> Source:
        """Returns a numbered source of a group."""
        return cls(kind, f"{group}-{number}", group, number)

    @classmethod
    def host(cls, address: str = "") -> Source:
        """Returns a host; without an address, that of the controller."""
        return cls.single("host", f"{OTHER_HOST}{address}" if address else HOST)


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: the value that `source` showed of `metric` at an instant of the run."""

    source: Source
    metric: str
    """Name, unit last: `cpu`, `rss_bytes`, `sent_per_s`, `$SYS/messages/dropped`."""
    at_s: float
    """Instant in seconds after the start of the run."""
    value: float
    held: bool = False
    """True if the sample repeats the last known value."""


class StoredSource(Value):
    """A source among the stored events, before its first sample."""

    kind: Literal["source"] = "source"
    source: Source


def split_member(name: str) -> tuple[str, int | None]:
    """Returns group and number of a name that a user wrote, such as `broker-0`; without a number
    at its end, the name and None."""
    group, _, number = name.rpartition("-")
    return (group, int(number)) if group and number.isdecimal() else (name, None)
