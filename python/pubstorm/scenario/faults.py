"""Faults of stages, and the brokers, publishers and bridges that a fault may hit. The docstrings
are the reference that users read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Protocol, get_args

from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator

from pubstorm.contract import split_member
from pubstorm.errors import has_reference
from pubstorm.quantities import SECOND_NS, QuantityField, UnfitError, duration_ns
from pubstorm.scenario.base import OrWord, Part
from pubstorm.scenario.fields import (
    CENTURY_NS,
    Duration,
    PositiveDuration,
    SmallCount,
    Text,
)
from pubstorm.scenario.kinds import StartedPublishers
from pubstorm.scenario.topology import ScenarioTopology

FaultKind = Literal["stop", "kill", "freeze", "rotate", "cut", "delay", "command"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
BROKER_FAULTS = frozenset[FaultKind]({"stop", "kill", "freeze", "rotate"})
"""Kinds that hit brokers of the run."""
PUBLISHER_FAULTS = frozenset[FaultKind]({"stop"})
"""Kinds that hit publishers of the run: others would leave unknown what they sent last."""
BRIDGE_FAULTS = frozenset[FaultKind]({"cut", "delay"})
"""Kinds that hit bridges of the run."""


def _line(value: str) -> str:
    if not value.strip():
        raise UnfitError(value, "is a command, such as systemctl restart mosquitto")
    if has_reference(value):
        hint = "write $NAME: the shell that runs the command reads the environment"
        raise UnfitError(value, "is a command without ${env:NAME} and ${file:PATH}", hint)
    return value


def _condition(value: str) -> str:
    if _TCP_WORD.match(value):
        tcp_address(value)
        return value
    return _line(value)


def tcp_address(condition: str) -> tuple[str, int] | None:
    """Returns host and port of a condition such as `tcp :1883`; None if it is a command. Raises
    UnfitError if it is neither."""
    if not _TCP_WORD.match(condition):
        return None
    found = _TCP.fullmatch(condition)
    if found is None or not 0 < int(found["port"]) < 2**16:
        hint = "for example tcp :1883 for this host, or tcp broker.example:1883"
        raise UnfitError(condition, "is tcp HOST:PORT, or a command", hint)
    return found["ipv6"] or found["host"] or "localhost", int(found["port"])


_TCP_WORD = re.compile(r"\s*tcp\b(?![-./])")
_TCP = re.compile(r"\s*tcp\s+(?:\[(?P<ipv6>[^\]\s]+)\]|(?P<host>[^\s:\[\]]*)):(?P<port>\d{1,5})\s*")
Line = Annotated[Text, AfterValidator(_line)]
Condition = Annotated[Text, AfterValidator(_condition)]


def _lasts(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    if value is None or value == "ever":
        return None
    try:
        duration_ns(value)
    except UnfitError as unfit:
        raise UnfitError(value, f'{unfit.allowed}, or "ever"', unfit.hint) from None
    return handler(value)


class Fault(Part):
    """A fault during a stage: exactly one of `stop`, `kill`, `freeze`, `rotate`, `cut`, `delay` and
    `command`. Each begins a phase that is evaluated by itself."""

    at: Duration
    """Time after the start of the stage."""
    stop: Text | None = None
    """Brokers of this name, or the one broker NAME-N, get SIGTERM, end in order, and are started
    again after `for`. Or publishers: a population with the key `publisher`, or the one publisher
    NAME-N. The new processes continue the streams; those of kind `command` cannot."""
    kill: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are killed with SIGKILL, and started again
    after `for`."""
    freeze: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are stopped with SIGSTOP, and continue
    after `for`."""
    rotate: Text | None = None
    """Brokers of this name, or the one broker NAME-N, get a new certificate of the authority of the
    run while clients are connected, and the signal to read it. For brokers of kind mosquitto with
    `tls: server` or `tls: mutual`."""
    cut: Text | None = None
    """Bridges of this name, or the one bridge NAME-N, are cut for a time."""
    delay: Text | None = None
    """Everything on bridges of this name, or on the one bridge NAME-N, is delayed by `by` for a
    time, in both directions."""
    command: Line | None = None
    """Line that a shell of the controller's host runs, in the folder of the scenario file: a fault
    of brokers that the run does not start. Needs `repair`, `repaired_when` or `for: ever`."""
    repair: Line | None = None
    """Line that undoes a `command`, run after `for`, and also if the run ends before that. Default:
    the brokers recover by themselves."""
    repaired_when: Condition | None = None
    """End of a fault by `command`: `tcp HOST:PORT` accepts a connection (`tcp :PORT`: on the
    controller's host), or a line for the shell exits with 0. Default: `repair` has exited with
    0."""
    timeout: PositiveDuration = 60 * SECOND_NS
    """Longest time of `command`, of `repair` and of the wait for `repaired_when`, each."""
    count: SmallCount | None = None
    """Number of brokers, publishers or bridges, chosen at random. Default: all."""
    lasts: Annotated[
        int | None,
        QuantityField(duration_ns, 0, CENTURY_NS, above_low=True),
        WrapValidator(_lasts),
        OrWord("ever"),
    ] = Field(10**9, alias="for")
    """Duration, or `ever`: the fault is not repaired in this run. A `command` without `repair` has
    no duration: the wait for `repaired_when` begins when the command has ended."""
    how: Literal["close", "stall", "unplug"] = "close"
    """Way in which bridges are cut. `close` closes connections and refuses new ones, `stall` lets
    nothing through. `unplug` is for bridges with a `network`: the link of all of them loses every
    packet."""
    by: PositiveDuration | None = None
    """Delay of each direction."""
    name: Text | None = None
    """Name of the phase. Default: what happens, such as `kill cloud`; of a `command`: `command`."""

    @property
    def kind(self) -> FaultKind:
        """The one kind that is set."""
        return next(kind for kind in FAULT_KINDS if getattr(self, kind) is not None)

    @property
    def victims(self) -> str:
        """The name of the brokers, publishers or bridges that it hits; empty for a command."""
        return "" if self.command is not None else str(getattr(self, self.kind))

    @property
    def repair_after_ns(self) -> int | None:
        """Time until the repair begins, in nanoseconds; None if it is not repaired. A rotation, and
        a command that nothing undoes, is its own repair."""
        return 0 if self._is_restart or self.rotate is not None else self.lasts

    @property
    def _is_restart(self) -> bool:
        return self.command is not None and self.repair is None and self.lasts is not None

    @property
    def phase(self) -> str:
        """Name of the phase that begins with it, unless the stage has another one of that name."""
        many = "" if self.count is None else f"{self.count} "
        return self.name or f"{self.kind} {many}{self.victims}".rstrip()


class Breakables(Protocol):
    """A scenario, as far as faults know it."""

    @property
    def topology(self) -> ScenarioTopology:
        """Its brokers and bridges."""

    @property
    def publishers(self) -> Mapping[str, StartedPublishers]:
        """Its publishers."""


def victims_of(scenario: Breakables, fault: Fault) -> tuple[str, range]:
    """The group that a fault names, and the numbers of those in it that it may hit. Raises
    KeyError where there is none of that name. A command names none."""
    if fault.command is not None:
        return "", range(0)
    sizes = group_sizes(scenario, fault.kind)
    if fault.victims in sizes:
        return fault.victims, range(sizes[fault.victims])
    group, number = split_member(fault.victims)
    if group in sizes and number is not None and number < sizes[group]:
        return group, range(number, number + 1)
    raise KeyError(fault.victims)


def group_sizes(scenario: Breakables, kind: FaultKind) -> Mapping[str, int]:
    """Returns the number of brokers, publishers or bridges of each name that a kind of fault may
    hit."""
    topology = scenario.topology
    brokers = {name: broker.count for name, broker in topology.brokers.items()}
    if kind in BROKER_FAULTS:
        named = scenario.publishers.items() if kind in PUBLISHER_FAULTS else ()
        return brokers | {name: each.clients for name, each in named if can_restart(each)}
    return {name: brokers.get(bridge.from_, 0) for name, bridge in topology.bridges.items()}


def can_restart(publishers: StartedPublishers) -> bool:
    """True for publishers that continue their streams in a new process. Programs of users do not,
    and those on other hosts have no other place."""
    return publishers.publisher.kind != "command" and publishers.hosts is None
