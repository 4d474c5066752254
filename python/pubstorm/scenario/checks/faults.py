"""Checks faults: one kind each, on brokers and bridges of the run or by command, within the stage's
time, and not two at once on the same broker or bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from pubstorm.quantities import write_duration
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.faults import BROKER_FAULTS, FAULT_KINDS, Fault, group_sizes, victims_of
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import Hold, Publish, Stage


def check_fault_keys(path: Path, fault: object) -> Iterator[Finding]:
    """Yields the problems of a fault as the file has it."""
    if not isinstance(fault, dict):
        return
    kinds = [kind for kind in FAULT_KINDS if kind in fault]
    if len(kinds) != 1:
        found = " and ".join(kinds) or f"none of {', '.join(FAULT_KINDS)}"
        yield path, f"found {found}, needed is one of {', '.join(FAULT_KINDS)}", None
        return
    (kind,) = kinds
    if kind == "delay" and "by" not in fault:
        message = "found delay without by, needed is by: the delay of each direction"
        yield (*path, "by"), message, "for example by: 200ms"
    for key, owner in OWNERS.items():
        if key in fault and kind != owner:
            yield (*path, key), f"found {key} with {kind}, allowed is {key} with {owner}", None
    if kind == "command":
        yield from _check_command_keys(path, fault)


def _check_command_keys(path: Path, fault: Mapping[str, object]) -> Iterator[Finding]:
    """Yields the problems of a fault by command: nothing says when it is repaired, or twice."""
    for_ever = fault.get("for", "") in (None, "ever")
    repairs = [key for key in ("repair", "repaired_when") if fault.get(key) is not None]
    if "count" in fault:
        hint = "the command chooses what it breaks"
        yield (*path, "count"), "found count with command, allowed is no count", hint
    if not repairs and not for_ever:
        message = "found command without repair, repaired_when or for: ever, needed is one of them"
        hint = "repaired_when: tcp HOST:PORT for a restart, repair: COMMAND for what undoes it"
        yield path, message, hint
    elif repairs and for_ever:
        message = f"found {' and '.join(repairs)} with for: ever, allowed is one of both"
        yield (*path, "for"), message, None
    elif "for" in fault and not for_ever and "repair" not in repairs:
        hint = "write repair: COMMAND for what ends it then, or sleep in the command"
        message = "found for with a command that nothing undoes, allowed is for: ever"
        yield (*path, "for"), message, hint


OWNERS = {
    "by": "delay",
    "how": "cut",
    "repair": "command",
    "repaired_when": "command",
    "timeout": "command",
}
"""Keys of a fault that only one kind has."""


def check_faults(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of values that are right by themselves."""
    spans: list[_Span] = []
    for n, stage in enumerate(scenario.stages):
        for m, fault in enumerate(stage.faults):
            path: Path = ("stages", n, stage.verb, "faults", m)
            yield from _check_fault_time(path, stage, fault)
            wrong = list(_check_victims(path, scenario, fault))
            yield from wrong
            if not wrong and fault.command is None:
                group, numbers = victims_of(scenario.topology, fault)
                spans.append(_Span(path, n, fault, group, frozenset(numbers)))
    yield from _check_overlaps(spans)


@dataclass(frozen=True, slots=True)
class _Span:
    """The time of a fault, and the brokers or bridges that it may hit."""

    path: Path
    stage: int
    fault: Fault
    group: str
    numbers: frozenset[int]

    def goes_on_at_start_of(self, later: _Span) -> bool:
        """Returns True if the fault is not repaired when a later one begins."""
        if self.fault.lasts is None:
            return True
        return self.stage == later.stage and self.fault.at + self.fault.lasts > later.fault.at

    def meets(self, other: _Span) -> bool:
        """Returns True if both faults may hit the same brokers, or the same bridges."""
        kinds = {self.fault.kind, other.fault.kind}
        same_noun = kinds <= BROKER_FAULTS or not kinds & BROKER_FAULTS
        return same_noun and self.group == other.group and bool(self.numbers & other.numbers)


def _check_fault_time(path: Path, stage: Stage, fault: Fault) -> Iterator[Finding]:
    assert isinstance(stage.step, Publish | Hold), "no other stage has faults"
    duration = stage.step.duration
    end = write_duration(duration)
    if fault.at >= duration:
        message = f"found a fault at {write_duration(fault.at)}, allowed is before the end of the"
        yield (*path, "at"), f"{message} stage at {end}", None
    elif fault.repair_after_ns is not None and fault.at + fault.repair_after_ns > duration:
        until = write_duration(fault.at + fault.repair_after_ns)
        message = f"found a fault until {until}, allowed is until the end of the stage at {end}"
        hint = "make the stage longer, or write for: ever where it is not to be repaired"
        yield (*path, "for"), message, hint


def _check_victims(path: Path, scenario: Scenario, fault: Fault) -> Iterator[Finding]:
    topology, kind = scenario.topology, fault.kind
    try:
        _, among = victims_of(topology, fault)
    except KeyError:
        names = list(group_sizes(topology, kind))
        noun = "broker" if kind in BROKER_FAULTS else "bridge"
        message, hint = unknown(noun, fault.victims, names)
        if noun == "broker" and (fault.victims == "target" or not names):
            hint = _OWN_ONLY
        elif noun == "broker" and scenario.target:
            hint = f"{_OWN_ONLY}; leave this fault out, or run the scenario without --target"
        yield (*path, kind), message, hint
        return
    if fault.count is not None and fault.count > len(among):
        message = f"found {fault.count}, allowed is up to {len(among)}"
        yield (*path, "count"), message, f"there are so many of {fault.victims}"


_OWN_ONLY = (
    "a run breaks brokers that it starts itself, under topology.brokers, and others by `command`"
)


def _check_overlaps(spans: list[_Span]) -> Iterator[Finding]:
    """Finds two faults at once on the same subject: a repair could belong to either of them."""
    in_time = sorted(spans, key=lambda span: (span.stage, span.fault.at))
    for one, other in combinations(in_time, 2):
        if one.meets(other) and one.goes_on_at_start_of(other):
            until = "for ever"
            if one.fault.lasts is not None:
                until = f"until {write_duration(one.fault.at + one.fault.lasts)}"
            message = (
                f"found {other.fault.phase} at {write_duration(other.fault.at)} while "
                f"{one.fault.phase} lasts {until}, allowed is one fault at a time on the same "
                f"{'brokers' if one.fault.kind in BROKER_FAULTS else 'bridges'}"
            )
            yield (*other.path, "at"), message, "begin it later, or choose others"
