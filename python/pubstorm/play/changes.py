"""Changes of populations in a publish or hold stage, planned or asked for by a user during the
run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pubstorm.contract.commands import (
    CLIENT_CHANGES,
    ActiveClients,
    ClientsChange,
    change_words,
    together,
    unique_name,
)
from pubstorm.contract.plan import (
    ChangeAction,
    ChangeRate,
    HoldAction,
    Plan,
    PlannedStage,
    PublishAction,
)
from pubstorm.errors import UsageError
from pubstorm.measure.run_log import AppliedChange
from pubstorm.play.context import RunContext
from pubstorm.play.progress import NEVER_NS
from pubstorm.quantities import (
    SECOND_NS,
    PartOf,
    QuantityField,
    UnfitError,
    duration_ns,
    factor,
    rounded,
)
from pubstorm.scenario.fields import clients_or_part

FORMS = (
    "add 500 POPULATION [over 5s], remove 50% POPULATION [over 5s], migrate 50% POPULATION "
    "[over 5s], rate 2 POPULATION, pause, resume, end stage, stop, fault KIND NAME [for 10s] or "
    "repair FAULT"
)
DURATION = QuantityField(duration_ns, 0, 2**62)
FACTOR = QuantityField(factor, 0, 1e6)


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A change as a user asks for it during a run."""

    population: str
    """A population or a share of one."""
    kind: ClientsChange | Literal["rate"]
    """Kind of the change."""
    amount: float | PartOf
    """Clients, a share of them, or times the planned rate."""
    over_ns: int = 0
    """Time over which clients join, leave or migrate, in nanoseconds."""

    @property
    def name(self) -> str:
        """Name of the change."""
        return change_words(self.kind, self.amount, self.population)

    def actions(self, active: ActiveClients, indices: Sequence[int]) -> dict[int, ChangeAction]:
        """Returns the change of each population, without populations of which no client changes.
        Raises UsageError if the change cannot be made."""
        if self.kind == "rate":
            assert not isinstance(self.amount, PartOf), "a rate has a factor"
            return dict.fromkeys(indices, ChangeRate(factor=self.amount))
        if active.staying.intersection(indices):
            message = f"found {self.kind} of publishers, allowed is a change of a rate"
            raise UsageError(message, "subscribers can join and leave")
        if not isinstance(self.amount, PartOf) and len(indices) > 1:
            hint = "write a share in percent, or name one of its shares"
            raise UsageError(f"population {self.population} has shares", hint)
        kind = CLIENT_CHANGES[self.kind]
        counts = {index: self._clients(active, index) for index in indices}
        found: dict[int, ChangeAction] = {
            index: kind(clients=count, over_ns=self.over_ns)
            for index, count in counts.items()
            if count
        }
        if not found:
            raise UsageError(f"{self.amount} of {self.population} is no client", "change more")
        return found

    def _clients(self, active: ActiveClients, index: int) -> int:
        """Returns the clients of a population that change. A share is rounded, but to no more than
        the population has."""
        if not isinstance(self.amount, PartOf):
            return round(self.amount)
        count = rounded(self.amount.share * active.most[index])
        room = active.room(index) if self.kind == "add" else active.counts[index]
        return room if count == room + 1 else count


class StageChanges:
    """The changes of the stage that is on."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._upcoming: list[AppliedChange] = []
        self._load_until_ns: int | None = None
        self._paused = set[int]()
        """Populations whose rate is 0."""

    @property
    def next_ns(self) -> int:
        """Instant of the next change."""
        return min((change.at_ns for change in self._upcoming), default=NEVER_NS)

    @property
    def are_open(self) -> bool:
        """True while the load of a publish stage lasts."""
        return self._load_until_ns is not None

    def begin(self, action: PublishAction | HoldAction, at_ns: int) -> None:
        """Takes the planned changes of a stage, which agents make by themselves."""
        stage = self._run.progress.stage
        if isinstance(action, PublishAction):
            self._load_until_ns = at_ns + action.duration_ns
        self._upcoming = [
            AppliedChange(stage, at_ns + each.after_ns, each.name, each.population, each.action)
            for each in action.changes
        ]

    def close(self) -> None:
        """Takes no more changes in this stage."""
        self._load_until_ns = None

    def end(self) -> None:
        """Drops changes that did not take effect before the end of the stage."""
        self._load_until_ns, self._upcoming = None, []
        self._paused.clear()

    def note(self, now_ns: int) -> None:
        """Records the changes that have taken effect."""
        run = self._run
        count = sum(change.at_ns <= now_ns for change in self._upcoming)
        begun, self._upcoming = self._upcoming[:count], self._upcoming[count:]
        for same in together(begun):
            for change in same:
                run.active.change(change.population, change.action)
                run.recorder.change(change)
            resumed = ": resumed" if self._resumes(same) else ""
            run.note("change", f"{same[0].name}{resumed}", same[0].at_ns)

    def _resumes(self, changes: Sequence[AppliedChange]) -> bool:
        """Takes the rates of changes in. Returns True if populations publish again after a
        pause."""
        found = False
        for change in changes:
            if isinstance(change.action, ChangeRate):
                found = found or bool(change.action.factor and change.population in self._paused)
                self._paused.discard(change.population)
                self._paused.update([] if change.action.factor else [change.population])
        return found

    def ask(self, words: str, taken: Iterable[str]) -> list[AppliedChange]:
        """Adds a change beyond the plan, one for each share of a population. It takes effect as
        soon as a command can have reached every agent. `taken` are names of other phases. Raises
        UsageError if the change cannot be made."""
        wanted, run = parse_change(words), self._run
        at_ns = run.clock() + run.fleet.timeouts.start_delay_ns
        if self._load_until_ns is None:
            raise UsageError("no publish stage is on", "changes are made while messages are sent")
        if at_ns + wanted.over_ns > self._load_until_ns:
            left_s = max(self._load_until_ns - at_ns, 0) / SECOND_NS
            raise UsageError(f"the stage has {left_s:.1f} s left, too short for the change")
        index = run.progress.stage
        stage = run.plan.stages[index]
        if wanted.kind != "rate" and isinstance(stage.action, PublishAction):
            _check_clients_change(stage.action)
        members, name = members_of(run.plan, stage), wanted.population
        if name not in members:
            allowed = ", ".join(members)
            raise UsageError(f"found population {name}, allowed are {allowed} in this stage")
        made = [change for change in run.recorder.run_log.changes if change.stage == index]
        names = [stage.name, *taken, *(change.name for change in (*made, *self._upcoming))]
        change = unique_name(wanted.name, names)
        if wanted.kind == "migrate":
            _check_migration(run.plan, members[name])
        actions = wanted.actions(run.active, members[name])
        asked = [AppliedChange(index, at_ns, change, p, action) for p, action in actions.items()]
        self._check_clients(asked)
        self._upcoming = sorted([*self._upcoming, *asked], key=lambda change: change.at_ns)
        run.recorder.run_log.asked += asked
        return asked

    def _check_clients(self, asked: Sequence[AppliedChange]) -> None:
        """Checks that enough clients are left for the change, and for those planned after it."""
        plan, active = self._run.plan, self._run.active.copy()
        for change in sorted([*self._upcoming, *asked], key=lambda change: change.at_ns):
            if not active.fits(change.population, change.action):
                population = plan.populations[change.population]
                there = active.counts[change.population]
                what = f"{there} of {population.clients} clients of {population.name} are active"
                if change not in asked:
                    what = f"{what} then, and {change.name} is planned after it"
                raise UsageError(f"not so many clients: {what}")
            active.change(change.population, change.action)


def _check_clients_change(action: PublishAction) -> None:
    """Raises UsageError if the number of messages of a stage is that of certain clients."""
    if action.messages is not None:
        hint = "the messages are divided among the clients at the start of the stage"
        raise UsageError("the stage has a number of messages: only its rates can change", hint)


def _check_migration(plan: Plan, populations: Iterable[int]) -> None:
    """Raises UsageError if clients of these populations have connections of TCP."""
    for population in (plan.populations[index] for index in populations):
        targets = [plan.targets[index] for index in population.at.targets]
        if not all(target.quic for target in targets):
            found = f"found migrate of {population.name}, whose targets have TCP"
            hint = "a connection of TCP ends when its address changes"
            raise UsageError(f"{found}, allowed are clients of MQTT over quic://", hint)


def members_of(plan: Plan, stage: PlannedStage) -> dict[str, tuple[int, ...]]:
    """Returns the names that can be changed in a stage: its populations, and populations whose
    shares are all in it."""
    here = {*stage.populations}
    return {name: indices for name, indices in plan.members.items() if here.issuperset(indices)}


def publishing(plan: Plan, stage: PlannedStage) -> list[str]:
    """Returns the names of all populations that publish in a stage; of one with shares its own."""
    members, names = members_of(plan, stage), list[str]()
    left = {index for index in stage.populations if plan.populations[index].publications}
    for name, indices in sorted(members.items(), key=lambda each: -len(each[1])):
        if left.intersection(indices):
            left.difference_update(indices)
            names.append(name)
    return names


def parse_change(text: str) -> AskedChange:
    """A change from words such as `add 500 late over 5s`, `remove 50% late` or `rate 2 device`.
    Raises UsageError."""
    words = text.split()
    over = words[3:] if len(words) in {3, 5} else None
    if over is None or (over and over[0] != "over"):
        raise UsageError(f"found '{text}', which is no change", f"write {FORMS}")
    verb, amount, population = words[:3]
    try:
        return _asked(verb, amount, population, over[1] if over else None)
    except UnfitError as unfit:
        raise UsageError(f"in '{text}': {unfit}", f"write {FORMS}") from unfit


def by_hand_text(change: AppliedChange, words: str) -> str:
    """Returns a change that a user asked for, in words for the verdict."""
    action, population = change.action, parse_change(words).population
    if isinstance(action, ChangeRate) and action.factor in {0, 1}:
        how = "resumed" if action.factor else "paused"
        return f"the user {how} {population}"
    return f"the user made the change {change.name}"


def _asked(verb: str, amount: str, population: str, over: str | None) -> AskedChange:
    if verb == "rate" and over is None:
        return AskedChange(population, "rate", float(FACTOR.read(amount)))
    kind = next((kind for kind in CLIENT_CHANGES if kind == verb), None)
    if kind is None:
        raise UnfitError(verb, f"is {', '.join(CLIENT_CHANGES)}, or rate without over")
    over_ns = 0 if over is None else int(DURATION.read(over))
    return AskedChange(population, kind, clients_or_part(amount), over_ns)
