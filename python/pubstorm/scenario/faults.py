"""Faults of stages, and the brokers and bridges that a fault may hit. The docstrings are the
reference that users read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from pubstorm.quantities import Quantity, UnfitError, duration_ns
from pubstorm.scenario.base import OrWord, Part
from pubstorm.scenario.fields import (
    CENTURY_NS,
    Duration,
    PositiveDuration,
    SmallCount,
    Text,
)
from pubstorm.scenario.topology import Topology

FaultKind = Literal["stop", "kill", "freeze", "cut", "delay"]
FAULT_KINDS: tuple[FaultKind, ...] = ("stop", "kill", "freeze", "cut", "delay")
BROKER_FAULTS = frozenset[FaultKind]({"stop", "kill", "freeze"})
"""Kinds that hit brokers; the others hit bridges."""


def _lasts(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    if value is None or value == "ever":
        return None
    try:
        duration_ns(value)
    except UnfitError as unfit:
        raise UnfitError(value, f'{unfit.allowed}, or "ever"', unfit.hint) from None
    return handler(value)


class Fault(Part):
    """A fault during a stage: exactly one of `stop`, `kill`, `freeze`, `cut` and `delay`. Each
    begins a phase that is evaluated by itself."""

    at: Duration
    """Time after the start of the stage."""
    stop: Text | None = None
    """Brokers of this name, or the one broker NAME-N, get SIGTERM, end in order, and are started
    again after `for`."""
    kill: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are killed with SIGKILL, and started again
    after `for`."""
    freeze: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are stopped with SIGSTOP, and continue
    after `for`."""
    cut: Text | None = None
    """Bridges of this name, or the one bridge NAME-N, are cut for a time."""
    delay: Text | None = None
    """Everything on bridges of this name, or on the one bridge NAME-N, is delayed by `by` for a
    time, in both directions."""
    count: SmallCount | None = None
    """Number of them, chosen at random. Default: all."""
    lasts: Annotated[
        int | None,
        Quantity(duration_ns, 0, CENTURY_NS, above_low=True),
        WrapValidator(_lasts),
        OrWord("ever"),
    ] = Field(10**9, alias="for")
    """Duration, or `ever`: the fault is not repaired in this run."""
    how: Literal["close", "stall", "unplug"] = "close"
    """Way in which bridges are cut. `close` closes connections and refuses new ones, `stall` lets
    nothing through. `unplug` is for bridges with a `network`: the link of all of them loses every
    packet."""
    by: PositiveDuration | None = None
    """Delay of each direction."""
    name: Text | None = None
    """Name of the phase. Default: what happens, such as `kill cloud`."""

    @property
    def kind(self) -> FaultKind:
        """The one kind that is set."""
        return next(kind for kind in FAULT_KINDS if getattr(self, kind) is not None)

    @property
    def victims(self) -> str:
        """The name of the brokers or bridges that it hits."""
        return str(getattr(self, self.kind))

    @property
    def phase(self) -> str:
        """Name of the phase that begins with it, unless the stage has another one of that name."""
        many = "" if self.count is None else f"{self.count} "
        return self.name or f"{self.kind} {many}{self.victims}"


def victims_of(topology: Topology, fault: Fault) -> tuple[str, range]:
    """The group that a fault names, and the numbers of those in it that it may hit. Raises
    KeyError where there is none of that name."""
    sizes = group_sizes(topology, fault.kind)
    if fault.victims in sizes:
        return fault.victims, range(sizes[fault.victims])
    group, _, number = fault.victims.rpartition("-")
    if group in sizes and number.isdecimal() and int(number) < sizes[group]:
        return group, range(int(number), int(number) + 1)
    raise KeyError(fault.victims)


def group_sizes(topology: Topology, kind: FaultKind) -> Mapping[str, int]:
    """Returns the number of brokers or bridges of each name that a kind of fault may hit."""
    brokers = {name: broker.count for name, broker in topology.brokers.items()}
    if kind in BROKER_FAULTS:
        return brokers
    return {name: brokers.get(bridge.from_, 0) for name, bridge in topology.bridges.items()}
