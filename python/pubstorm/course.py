"""What a run was, as its conductor writes it down: the stages as they were played, what changed,
what was broken and who was lost, each with its instant. It measures nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from pubstorm.changes import AppliedChange, unjudged
from pubstorm.faults.play import AppliedFault
from pubstorm.plan import Plan, PublishAction
from pubstorm.result import Event

SECOND_NS = 10**9


@dataclass(frozen=True)
class StageSpan:
    """A stage as it was played, in nanoseconds on the monotonic clock."""

    index: int
    from_ns: int
    load_until_ns: int
    """End of a publish stage's load; the start for other kinds."""
    to_ns: int
    settled: bool
    """Whether every agent had done all that it could."""


@dataclass
class Loss:
    """An engine that was lost in a run that went on."""

    agent: int
    at_ns: int
    """When that was noticed, in nanoseconds on the monotonic clock."""
    heard_ns: int
    """End of its last snapshot, or the start of the run: nobody knows what it did since."""
    clients: int
    """Clients that it played."""
    text: str
    """What happened to it."""
    replaced_on: str | None = None
    """Address of the host of the engine that plays its clients since, empty for this one; None:
    nobody does."""
    back_ns: int | None = None
    """When that one had begun, in nanoseconds on the monotonic clock."""

    def is_away(self, from_ns: int, to_ns: int) -> bool:
        """Whether nobody knows of its clients at some time of a span."""
        return self.heard_ns < to_ns and (self.back_ns is None or from_ns < self.back_ns)

    def is_back(self, from_ns: int, to_ns: int) -> bool:
        """Whether its clients began to come back in a span."""
        return self.back_ns is not None and from_ns <= self.back_ns < to_ns


@dataclass
class Course:
    """What the conductor did and what came in between."""

    started_ns: int
    ended_ns: int = 0
    spans: list[StageSpan] = field(default_factory=list)
    changes: list[AppliedChange] = field(default_factory=list)
    """Changes of populations that took effect, in the order of time."""
    asked: list[AppliedChange] = field(default_factory=list)
    """Changes beyond the plan, in the order in which they were asked for."""
    faults: list[AppliedFault] = field(default_factory=list)
    """What was broken on purpose, in the order of time."""
    losses: list[Loss] = field(default_factory=list)
    """Engines that were lost while the run went on, in the order of time."""
    owed_received: dict[int, set[int]] = field(default_factory=dict)
    """Populations that are owed what they received since an engine was away, by stage."""
    events: list[Event] = field(default_factory=list)
    endings: dict[int, str] = field(default_factory=dict)
    """How each agent ended."""
    interrupted: bool = False
    ended_early: bool = False

    def note(self, kind: str, text: str, at_ns: int | None = None) -> None:
        """Records that something happened, now unless told otherwise."""
        at_ns = time.monotonic_ns() if at_ns is None else at_ns
        at_s = self.at_s(at_ns)
        self.events.append(Event.model_validate({"at_s": at_s, "kind": kind, "text": text}))

    def at_s(self, at_ns: int) -> float:
        """An instant in seconds after the start of the run."""
        return round((at_ns - self.started_ns) / SECOND_NS, 3)

    def owe_received(self, stage: int, populations: Iterable[int]) -> None:
        """Nobody can say what these populations ought to have had in a stage."""
        self.owed_received.setdefault(stage, set()).update(populations)

    def unjudged(self, plan: Plan, stage: int) -> list[int]:
        """Populations that are not judged in a stage, whose clients changed or were away."""
        changed = unjudged(plan, self.changes, stage)
        publishes = isinstance(plan.stages[stage].action, PublishAction)
        return sorted({*changed, *(self.owed_received.get(stage, ()) if publishes else ())})
