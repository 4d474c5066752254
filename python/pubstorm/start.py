"""The beginning of a run, stored in its run directory. With snapshots and samples it is enough to
make the result of a run whose controller was killed."""

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
    """The target of the command line."""
    command: str
    """The command line."""
    started: str
    """Date and time in ISO 8601."""
    started_ns: int
    """The same instant on the monotonic clock, in nanoseconds."""
    hellos: tuple[Hello, ...]
    """The first message of each agent."""
    on: str
    """The place of the agents, as in `fleet.on`."""
    hosts: dict[int, str]
    """Addresses of the agents' hosts; empty: the controller's."""
    environment: Environment
    """The controller's host."""
    brokers: tuple[BrokerResult, ...]
    services: tuple[ServiceResult, ...]
    bridges: tuple[BridgeResult, ...]
