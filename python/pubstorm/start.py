"""How a run began, as its run directory keeps it: with snapshots and samples, enough to make the
result of a run whose controller was killed."""

from __future__ import annotations

from pubstorm.control import Hello
from pubstorm.result import BridgeResult, BrokerResult, Environment, ServiceResult
from pubstorm.topology.started import Started
from pubstorm.value import Value


class RunStart(Value):
    """The beginning of a run."""

    process: Started
    """The controller."""
    file: str
    """Path of the scenario file."""
    overrides: tuple[str, ...]
    """`PATH=VALUE` each."""
    target: str | None
    """What replaced the scenario's target."""
    command: str
    """The command line."""
    started: str
    """Date and time in ISO 8601."""
    started_ns: int
    """The same instant on the monotonic clock, in nanoseconds."""
    hellos: tuple[Hello, ...]
    """What each agent said first."""
    on: str
    """Where the agents ran."""
    hosts: dict[int, str]
    """Addresses of the agents' hosts; empty: the controller's."""
    environment: Environment
    """The controller's host."""
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
