"""Clean start: looks for stale state on the targets before a run, and removes the run's own state
after it. Brokers that the run has just started need neither. Every step has a deadline, and steps
that could not be made are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pubstorm.contract.plan import Plan
from pubstorm.play.clean_start.declared import Kept, delete_names, longest_s, look_at_names
from pubstorm.play.clean_start.observer import ANSWER_S, Deadline, TargetFindings, look_before
from pubstorm.play.clean_start.remove import (
    end_sessions,
    persistent_clients,
    remove_retained,
    verify_sessions,
)
from pubstorm.play.clean_start.topics import OWN_TOPICS_MAX, keeps_messages, kept_topics
from pubstorm.result import StaleState

LOOK_S = 2.0
"""Longest time to look at a target."""
REMOVE_S = 15.0
"""Longest time to remove state from a target, beside that for many retained messages."""
REMOVED_PER_S = 1000
"""Retained messages that a slow host removes a second."""
SESSION_TRIES = 2
"""Attempts to end sessions that remain."""
GRACE_S = ANSWER_S + 1.0
"""Time beyond its deadline after which a step is given up: it may wait for a last answer."""
ADVICE = "pubstorm down RUN_DIR --retained removes what it still finds"
TARGETS_MAX = 16
"""Targets that are looked at."""

When = Literal["before", "after"]
Work = Callable[[int, Deadline], list[StaleState]]
"""Work at one target, by its index."""


class CleanStart:
    """The stale state on the targets of one plan."""

    def __init__(
        self, plan: Plan, mode: Literal["report", "require", "skip"], targets: Sequence[int]
    ) -> None:
        self._plan = plan
        self._mode = mode
        self._all = _keeping(plan, targets) if mode != "skip" else ()
        """Indices of the targets that may hold anything."""
        self._targets = self._all[:TARGETS_MAX]
        self._found: dict[int, TargetFindings] = {}
        looked_at = targets[:TARGETS_MAX] if mode != "skip" else ()
        self._declaring = {at: lasts for at in looked_at if (lasts := longest_s(plan, at))}
        """Targets where clients declare names that outlive them, with the longest time for it."""
        self._kept: dict[int, Kept] = {}

    async def before(self) -> tuple[StaleState, ...]:
        """Returns the stale state of earlier runs."""
        found = await self._at_each_target("before", self._look, LOOK_S)
        found += await self._at_each_declaring("before", self._look_at_names)
        left_out = self._all[TARGETS_MAX:]
        if left_out:
            text = f"{len(left_out)} more targets were not looked at"
            name = str(self._plan.targets[left_out[0]])
            found.append(StaleState(target=name, when="before", what="unknown", total=0, text=text))
        return tuple(found)

    def refuses(self, found: Sequence[StaleState]) -> bool:
        """True if the run must not be played on the stale state that was found."""
        return self._mode == "require" and any(
            stale_state.what not in {"queued", "cleared"} for stale_state in found
        )

    @property
    def has_work_after(self) -> bool:
        """True if the run may leave state that must be removed."""
        leaves = keeps_messages(self._plan) or persistent_clients(self._plan) > 0
        return bool(self._targets) and leaves

    async def delete_names(self) -> list[StaleState]:
        """Deletes exchanges and queues that this run declared, and their marks."""
        return await self._at_each_declaring("after", self._delete_names) if self._kept else []

    async def after(self, engine: Path, log: Path) -> tuple[StaleState, ...]:
        """Removes what else this run left, and looks again; the engine ends its sessions."""
        removed: list[StaleState] = []
        if keeps_messages(self._plan):
            found = await self._at_each_target("after", self._remove, removal_s(self._plan))
            removed += map(_with_advice, found)
        if persistent_clients(self._plan):
            removed += await self._end_sessions(engine, log)
        return tuple(removed)

    async def _end_sessions(self, engine: Path, log: Path) -> list[StaleState]:
        """Ends the sessions and looks for them, twice if some are left. A broker that has not
        handled the DISCONNECT of a client yet still reports its session."""
        found: list[StaleState] = []
        for _ in range(SESSION_TRIES):
            problem = await end_sessions(self._plan, engine, log)
            verify = partial(verify_sessions, self._plan, problem)
            found = await self._at_each_target("after", verify, LOOK_S)
            if all(stale_state.what == "sessions" for stale_state in found):
                break
        return found

    def interrupted(self) -> StaleState:
        """Returns the finding of an interrupted clean-up."""
        text = "interrupted: what this run left is not all removed"
        name = str(self._plan.targets[0])
        return StaleState(target=name, when="after", what="unknown", total=0, text=text)

    def _look(self, target: int, deadline: Deadline) -> list[StaleState]:
        self._found[target] = look_before(self._plan, target, deadline)
        return self._found[target].stale_state

    def _remove(self, target: int, deadline: Deadline) -> list[StaleState]:
        before = self._found.get(target, TargetFindings())
        return remove_retained(self._plan, target, before.retained, deadline)

    def _look_at_names(self, target: int, deadline: Deadline) -> list[StaleState]:
        found = look_at_names(self._plan, target, deadline)
        self._kept[target] = found.kept
        return found.stale_state

    def _delete_names(self, target: int, deadline: Deadline) -> list[StaleState]:
        found = delete_names(self._plan, target, self._kept.get(target, {}), deadline)
        return [*map(_with_advice, found)]

    async def _at_each_declaring(self, when: When, work: Work) -> list[StaleState]:
        """Does the work at all targets where clients declare names."""
        declaring = self._declaring.items()
        steps = (self._step(target, when, work, LOOK_S + last_s) for target, last_s in declaring)
        return [stale_state for found in await asyncio.gather(*steps) for stale_state in found]

    async def _at_each_target(self, when: When, work: Work, budget_s: float) -> list[StaleState]:
        """Does the work at all targets at once."""
        steps = (self._step(target, when, work, budget_s) for target in self._targets)
        return [stale_state for found in await asyncio.gather(*steps) for stale_state in found]

    async def _step(self, target: int, when: When, work: Work, budget_s: float) -> list[StaleState]:
        """Does blocking work in a thread; it is given up when it does not keep its deadline."""
        deadline = Deadline(budget_s)
        try:
            async with asyncio.timeout(budget_s + GRACE_S):
                return await asyncio.to_thread(work, target, deadline)
        except TimeoutError:
            text = f"the broker did not answer within {budget_s:.0f} s"
        except RuntimeError as error:
            text = f"this host has no thread left to look: {error}"
        finally:
            deadline.give_up()
        name = str(self._plan.targets[target])
        return [StaleState(target=name, when=when, what="unknown", total=0, text=text)]


def removal_s(plan: Plan) -> float:
    """Returns the longest time to remove the retained messages of a plan from a target."""
    return REMOVE_S + min(kept_topics(plan), OWN_TOPICS_MAX) / REMOVED_PER_S


def remove_again(plan: Plan, targets: Sequence[int]) -> Iterator[StaleState]:
    """Removes from targets the retained messages that a stored run left, as far as their stamps
    show it, and exchanges and queues with its mark, and yields what came of it."""
    for target in targets:
        if longest := longest_s(plan, target):
            yield from delete_names(plan, target, None, Deadline(LOOK_S + longest))
    for target in _keeping(plan, targets) if keeps_messages(plan) else ():
        yield from remove_retained(plan, target, None, Deadline(removal_s(plan)))


def _keeping(plan: Plan, targets: Sequence[int]) -> Sequence[int]:
    """Returns those of the targets that may keep anything: not those of other clients alone."""
    keeping = {at for p in plan.populations if p.can.keeps_state for at in p.at.targets}
    others = {at for p in plan.populations if not p.can.keeps_state for at in p.at.targets}
    unused = {at for at in targets if at not in others and plan.targets[at].speaks_mqtt}
    return [target for target in targets if target in keeping | unused]


def _with_advice(found: StaleState) -> StaleState:
    """Returns a finding that says how to remove what is left."""
    if found.what != "unknown":
        return found
    return found.model_copy(update={"text": f"{found.text}; {ADVICE}"})


__all__ = ["CleanStart", "remove_again"]
