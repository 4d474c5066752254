"""Faults that a user asks for while a run is played: `kill boxes-7 for 10s`. They hit the brokers
and bridges that faults of the scenario can hit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from pubstorm.errors import UsageError
from pubstorm.plan.faults import PlannedFault
from pubstorm.quantities import QuantityField, UnfitError, duration_ns
from pubstorm.scenario.faults import (
    BRIDGE_FAULTS,
    FAULT_KINDS,
    Fault,
    FaultKind,
    group_sizes,
    victims_of,
)
from pubstorm.scenario.topology import ScenarioTopology

FAULT_FORMS = (
    "fault kill BROKERS [for 10s], with stop or freeze for kill, fault cut BRIDGES [for 10s], "
    "fault delay BRIDGES by 100ms [for 10s] or repair FAULT"
)
DURATION = QuantityField(duration_ns, 0, 2**62, above_low=True)
KINDS: tuple[FaultKind, ...] = tuple(kind for kind in FAULT_KINDS if kind != "command")
"""Kinds that a user may ask for."""


@dataclass(frozen=True)
class Breakable:
    """Brokers and bridges of a run that faults can hit."""

    topology: ScenarioTopology
    links: frozenset[str]
    """Bridges that can be cut and delayed one by one: those that the scenario's faults name."""

    def groups(self, kind: FaultKind) -> list[str]:
        """Names that a kind of fault may hit."""
        sizes = group_sizes(self.topology, kind)
        is_linked = kind in BRIDGE_FAULTS
        return [name for name in sizes if not is_linked or name in self.links]

    def parse(self, words: str) -> PlannedFault:
        """Returns a fault of stage 0 that begins at once; without `for`, it is not repaired by
        itself. Raises UsageError."""
        parts = words.split()
        kind, victims, *rest = parts + [""] * (2 - len(parts))
        known = next((each for each in KINDS if each == kind), None)
        times = dict(zip(rest[::2], rest[1::2], strict=False))
        if known is None or len(rest) % 2 or not times.keys() <= {"for", "by"}:
            raise UsageError(f"found 'fault {words}', which is no fault", f"write {FAULT_FORMS}")
        if ("by" in times) != (known == "delay"):
            raise UsageError(f"found 'fault {words}'", f"only delay has by: write {FAULT_FORMS}")
        try:
            fault = Fault.model_validate({"at": "0s", known: victims})
            group, numbers = victims_of(self.topology, fault)
        except (KeyError, ValidationError):
            group, numbers = "", range(0)
        if group not in self.groups(known):
            allowed = ", ".join(self.groups(known)) or "none in this run"
            hint = "faults hit brokers that the run starts, and bridges that its scenario breaks"
            raise UsageError(f"found {victims or 'no name'} to {known}, allowed: {allowed}", hint)
        return PlannedFault(
            stage=0,
            name=f"{known} {victims}",
            kind=known,
            after_ns=0,
            lasts_ns=_time(times.get("for")),
            group=group,
            numbers=tuple(numbers),
            delay_ns=_time(times.get("by")) or 0,
        )


def overlapping(fault: PlannedFault, others: Iterable[PlannedFault]) -> PlannedFault | None:
    """Returns one of these faults that hits the same brokers or bridges; None if none does."""
    return next((each for each in others if {*each.victims} & {*fault.victims}), None)


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(DURATION.read(text))
    except UnfitError as unfit:
        raise UsageError(f"found {text}: {unfit}", f"write {FAULT_FORMS}") from unfit
