"""Plays the faults of a run, of its scenario and of users who ask while it is played (`kill boxes-7
for 10s`). Each fault begins and is repaired at its instant on the monotonic clock, in a task of its
own: a fault that takes long delays no other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import ValidationError

from pubstorm.errors import UsageError, without_credentials
from pubstorm.host.ends import end_tasks
from pubstorm.measure.run_log import AppliedFault
from pubstorm.plan.stages import PlannedFault, publishers_in
from pubstorm.play.progress import Clock
from pubstorm.quantities import SECOND_NS, QuantityField, UnfitError, counted, duration_ns
from pubstorm.scenario.faults import (
    BRIDGE_FAULTS,
    BROKER_FAULTS,
    FAULT_KINDS,
    Breakables,
    Fault,
    FaultKind,
    group_sizes,
    victims_of,
)

FAULT_FORMS = (
    "fault kill BROKERS [for 10s], with stop or freeze for kill, fault cut BRIDGES [for 10s], "
    "fault delay BRIDGES by 100ms [for 10s] or repair FAULT"
)
DURATION = QuantityField(duration_ns, 0, 2**62, above_low=True)
KINDS: tuple[FaultKind, ...] = tuple(
    kind for kind in FAULT_KINDS if kind not in {"command", "rotate"}
)
"""Kinds that a user may ask for."""


@dataclass(frozen=True)
class Breakable:
    """Brokers, publishers and bridges of a run that faults can hit."""

    scenario: Breakables
    links: frozenset[str]
    """Bridges that can be cut and delayed one by one: those that the scenario's faults name."""

    def groups(self, kind: FaultKind) -> list[str]:
        """Names that a kind of fault may hit."""
        sizes = group_sizes(self.scenario, kind)
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
            group, numbers = victims_of(self.scenario, fault)
        except (KeyError, ValidationError):
            group, numbers = "", range(0)
        if group not in self.groups(known):
            allowed = ", ".join(self.groups(known)) or "none in this run"
            hint = "faults hit what the run starts, and bridges that its scenario breaks"
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
            publishers=publishers_in(self.scenario, group),
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


class Breaker(Protocol):
    """Begins and repairs faults; both methods return the steps that failed, in words."""

    async def begin(self, fault: PlannedFault) -> tuple[str, ...]:
        """Breaks the victims."""

    async def repair(self, fault: PlannedFault) -> tuple[str, ...]:
        """Undoes it."""


@dataclass(frozen=True)
class FaultNews:
    """A fault began, was repaired, or could not be."""

    at_ns: int
    text: str
    applied: AppliedFault | None = None
    """The fault that began or was repaired; None for a problem."""


class FaultPlay:
    """The faults of a run, stage by stage."""

    def __init__(
        self,
        planned: Sequence[PlannedFault],
        breaker: Breaker,
        report: Callable[[FaultNews], None],
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._planned = list(planned)
        self._breaker = self._of_publishers = breaker
        self._report = report
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._repairs: dict[str, asyncio.Event] = {}
        """Set for a fault of the stage that is to be repaired before its time, by name."""
        self._stage, self._entered_ns = 0, 0
        self.applied: list[AppliedFault] = []
        """Faults that took effect, in the order of time."""

    def leave_publishers_to(self, breaker: Breaker) -> None:
        """Lets another breaker play the faults of publishers."""
        self._of_publishers = breaker

    def names(self, stage: int) -> list[str]:
        """Names of the faults of a stage."""
        return [fault.name for fault in self._planned if fault.stage == stage]

    def enter(self, stage: int, at_ns: int) -> None:
        """Begins a stage, and its faults at their instants."""
        self._stage, self._entered_ns, self._repairs = stage, at_ns, {}
        self._tasks = [
            asyncio.create_task(self._play(fault, at_ns))
            for fault in self._planned
            if fault.stage == stage
        ]

    def inject(self, fault: PlannedFault, until_ns: int) -> PlannedFault:
        """Begins a fault beyond the plan at once, and repairs it at an instant at the latest.
        Returns the fault as it is played. Raises UsageError if it meets another one."""
        now_ns = self._clock()
        lasts_ns = until_ns - now_ns if fault.lasts_ns is None else fault.lasts_ns
        if now_ns + lasts_ns > until_ns or lasts_ns <= 0:
            left_s = max(until_ns - now_ns, 0) / SECOND_NS
            raise UsageError(f"the stage has {left_s:.1f} s left, too short for the fault")
        after_ns = max(now_ns - self._entered_ns, 0)
        asked = replace(fault, stage=self._stage, after_ns=after_ns, lasts_ns=lasts_ns)
        if (other := overlapping(asked, self._meeting(asked))) is not None:
            hint = f"the fault {other.name} hits the same; repair it, or wait for its end"
            raise UsageError(f"{asked.name} would overlap with {other.name}", hint)
        self._planned.append(asked)
        self._tasks.append(asyncio.create_task(self._play(asked, self._entered_ns)))
        return asked

    def repair(self, name: str) -> None:
        """Repairs a fault of the stage before its time. Raises UsageError if there is none of this
        name."""
        if name not in self._repairs:
            allowed = ", ".join(self._repairs) or "none is in effect"
            raise UsageError(f"found no fault {name} to repair, allowed: {allowed}")
        self._repairs[name].set()

    def _meeting(self, fault: PlannedFault) -> list[PlannedFault]:
        """Faults of the stage that are in effect at some time of another one that begins now."""
        own = {each.name: each for each in self.applied if each.stage == self._stage}
        end_ns = fault.after_ns + (fault.lasts_ns or 0)
        return [
            each
            for each in self._planned
            if each.stage == self._stage
            and (own[each.name].repaired_ns is None if each.name in own else each.after_ns < end_ns)
        ]

    def done(self) -> bool:
        """True if every fault of the stage is repaired, except those that last."""
        return all(task.done() for task in self._tasks)

    async def stop(self) -> None:
        """Begins and repairs no more faults."""
        await end_tasks(self._tasks)

    async def _play(self, fault: PlannedFault, stage_at_ns: int) -> None:
        await self._until(stage_at_ns + fault.after_ns)
        applied = AppliedFault(fault, self._clock())
        self.applied.append(applied)
        breaker = self._of_publishers if fault.publishers else self._breaker
        problems = await breaker.begin(fault)
        applied.problems += problems
        if len(problems) >= _parts(fault):
            applied.failed = problems[0]
        self._report(FaultNews(applied.began_ns, _begun(fault), applied))
        self._report_problems(fault, problems)
        if fault.lasts_ns is None:
            return
        asked = self._repairs[fault.name] = asyncio.Event()
        await self._until(applied.began_ns + fault.lasts_ns, asked)
        del self._repairs[fault.name]
        problems = await breaker.repair(fault)
        applied.problems += problems
        now_ns = self._clock()
        if len(problems) < _parts(fault):
            applied.repaired_ns = now_ns
            self._report(FaultNews(now_ns, f"{fault.name}: {_repaired(fault)}", applied))
        self._report_problems(fault, problems)

    async def _until(self, at_ns: int, asked: asyncio.Event | None = None) -> None:
        """Waits until an instant, or until it is asked for."""
        event = asked or asyncio.Event()
        while (left_ns := at_ns - self._clock()) > 0 and not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ns / SECOND_NS):
                    await event.wait()

    def _report_problems(self, fault: PlannedFault, problems: Sequence[str]) -> None:
        now_ns = self._clock()
        for text in problems[:PROBLEMS_REPORTED]:
            self._report(FaultNews(now_ns, f"{fault.name}: {text}"))
        left = len(problems) - PROBLEMS_REPORTED
        if left > 0:
            self._report(FaultNews(now_ns, f"{fault.name}: {counted(left, 'problem')} more"))


def _parts(fault: PlannedFault) -> int:
    """Returns the number of parts of a fault, each of which can have a problem: its brokers or
    publishers, or all that it breaks at once."""
    return len(fault.victims) if fault.kind in BROKER_FAULTS else 1


def _begun(fault: PlannedFault) -> str:
    """Returns the name of a fault, with its kind if the name does not begin with it."""
    if fault.commands is not None:
        return f"{fault.name}: {without_credentials(fault.commands.begin)}"
    done = f"{fault.kind} {fault.group}"
    return fault.name if fault.name.startswith(fault.kind) else f"{fault.name}: {done}"


def _repaired(fault: PlannedFault) -> str:
    """Returns how many victims are repaired, in words. Those of a command are unknown."""
    if fault.commands is not None:
        return "repaired"
    words, noun = _REPAIRED[fault.kind]
    noun = "publisher" if fault.publishers else noun
    count = len(fault.victims)
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'} {words}"


_REPAIRED = {
    "stop": ("up again", "broker"),
    "kill": ("up again", "broker"),
    "freeze": ("continuing", "broker"),
    "rotate": ("under the new certificate", "broker"),
    "cut": ("whole again", "bridge"),
    "delay": ("undelayed again", "bridge"),
}
PROBLEMS_REPORTED = 5
"""Problems of a fault that are reported one by one."""
