"""Faults: what is broken on purpose while a stage goes on, and when it is mended. The docstrings
are the reference that users read. It does not know which brokers and bridges there are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidatorFunctionWrapHandler, WrapValidator

from pubstorm.scenario.base import OrWord, Part
from pubstorm.scenario.fields import (
    CENTURY_NS,
    Duration,
    PositiveDuration,
    SmallCount,
    Text,
    one_of,
)
from pubstorm.units import Quantity, UnfitError, duration_ns

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
        message = str(unfit).partition(", allowed ")[2]
        raise UnfitError(value, f'{message}, or "ever"', unfit.hint) from None
    return handler(value)


class Fault(Part):
    """Something that is broken while a stage goes on: exactly one of `stop`, `kill`, `freeze`,
    `cut` and `delay`. Each begins a phase that is judged by itself."""

    at: Duration
    """When, after the start of the stage."""
    stop: Text | None = None
    """Brokers of this name, or the one broker NAME-N, get SIGTERM, end in order, and are started
    again after `for`."""
    kill: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are killed with SIGKILL, and started again
    after `for`."""
    freeze: Text | None = None
    """Brokers of this name, or the one broker NAME-N, are stopped with SIGSTOP, and go on after
    `for`."""
    cut: Text | None = None
    """Bridges of this name, or the one bridge NAME-N, are cut for a time."""
    delay: Text | None = None
    """Everything on bridges of this name, or on the one bridge NAME-N, is delayed by `by` for a
    time, in both directions."""
    count: SmallCount | None = None
    """How many of them, chosen at random. Default: all."""
    lasts: Annotated[
        int | None,
        Quantity(duration_ns, 0, CENTURY_NS, above_low=True),
        WrapValidator(_lasts),
        OrWord("ever"),
    ] = Field(10**9, alias="for")
    """How long, or `ever`: it is not mended in this run."""
    how: Annotated[
        Literal["close", "stall", "unplug"], BeforeValidator(one_of("close", "stall", "unplug"))
    ] = "close"
    """How bridges are cut: connections are closed and new ones refused, or nothing gets through
    any more and nobody is told. `unplug` is for bridges with a `network`: the link of all of them
    loses every packet."""
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
