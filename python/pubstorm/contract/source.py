"""The source of a sample: what was watched. It is made where the sample is made, and stored with
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from pubstorm.contract.value import Value

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
