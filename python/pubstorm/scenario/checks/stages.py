"""Checks stages: changes with clients that can join or leave, faults that hit something of the run
and not the same thing twice at once, and rate profiles with points in the stage's time. A profile
from a file reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from pubstorm.contract import split_member
from pubstorm.contract.target import TARGET
from pubstorm.contract.template import RowsError
from pubstorm.quantities import PartOf, rounded, write_duration, write_share
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.faults import (
    BROKER_FAULTS,
    FAULT_KINDS,
    PUBLISHER_FAULTS,
    Fault,
    can_restart,
    group_sizes,
    victims_of,
)
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import (
    PlannedClients,
    PopulationShare,
    RateProfileError,
    factors_of,
    meant_by,
    rate_of,
    said_of,
)
from pubstorm.scenario.stages import EVERY, Change, Connect, Hold, Publish, RateProfile, Stage


def check_change_keys(path: Path, change: object) -> Iterator[Finding]:
    """Yields the problems of a change as the file has it."""
    if not isinstance(change, dict):
        return
    kinds = [key for key in ("add", "remove", "migrate", "rate") if key in change]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        yield path, f"found {found}, needed is one of add, remove, migrate and rate", None
    elif "over" in change and kinds == ["rate"]:
        message = "found over with rate, allowed is over with add, remove or migrate"
        hint = "a rate changes at once; write several changes for several steps"
        yield (*path, "over"), message, hint


def check_changes(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of values that are right by themselves."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        chosen = planned.chosen(stage)
        if isinstance(stage.step, Connect):
            path: Path = ("stages", n, "connect", "clients")
            yield from _check_connect(path, stage.step, planned, chosen)
        planned.enter(stage)
        if not isinstance(stage.step, Publish | Hold):
            continue
        path = ("stages", n, stage.verb, "changes")
        for m, change in sorted(enumerate(stage.changes), key=lambda entry: entry[1].at):
            if isinstance(stage.step, Hold) and change.rate is not None:
                message = "found rate in a hold stage, allowed are add, remove and migrate"
                yield (*path, m, "rate"), message, "rates change in publish stages"
            yield from _check_time((*path, m), stage.step, change)
            if set(meant_by(planned.shares, change.population)) <= set(chosen):
                yield from _check_clients((*path, m), change, planned)
            else:
                yield from _check_takes_part((*path, m), change)


def _check_connect(
    path: Path, connect: Connect, planned: PlannedClients, chosen: Sequence[str]
) -> Iterator[Finding]:
    """Yields the problems of the numbers of clients that a connect stage wants."""
    for given, amount in (connect.clients or {}).items():
        named = meant_by(planned.shares, given)
        where = path if given == EVERY else (*path, given)
        meant = [name for name in chosen if said_of(connect, planned.shares[name]) == given]
        if not set(named) <= set(chosen):
            message = f"found clients of population {given}, which is not in this stage"
            yield where, message, "add it to the populations of the stage"
            continue
        if isinstance(amount, int):
            yield from _check_number(where, amount, planned, meant)
        if any(planned.part_of(name, amount) < planned.least([name]) - ROUNDING for name in meant):
            message = f"found {_written(amount)}, where {planned.count(meant):,} are active already"
            hint = "a connect stage disconnects no client; a disconnect stage does"
            yield where, f"{message}, allowed is so many or more", hint


def _check_number(
    path: Path, amount: int, planned: PlannedClients, meant: Sequence[str]
) -> Iterator[Finding]:
    """Yields a number that is too large, or that does not say of which share."""
    shares = [planned.shares[name] for name in meant]
    divided = [played.name for played in shares if played.share is not None]
    if len(divided) > 1:
        yield path, f"found {amount:,}, {OF_SHARES}", _shares_hint(divided)
        return
    for played in shares:
        if amount > played.clients:
            message = f"found {amount:,}, allowed is up to {played.clients:,}"
            hint = "write a share such as 50%, or leave it out for all"
            yield path, f"{message}, the clients of {played.name}", hint
            return


def _check_time(path: Path, step: Publish | Hold, change: Change) -> Iterator[Finding]:
    end = write_duration(step.duration)
    if change.at >= step.duration:
        at = write_duration(change.at)
        message = f"found a change at {at}, allowed is before the end of the stage at {end}"
        yield (*path, "at"), message, None
    elif change.at + change.over > step.duration:
        until = write_duration(change.at + change.over)
        message = f"found a change until {until}, allowed is until the end of the stage at {end}"
        yield (*path, "over"), message, None


def _check_takes_part(path: Path, change: Change) -> Iterator[Finding]:
    message = f"found a change of population {change.population}, which is not in this stage"
    yield (*path, "population"), message, "add it to the populations of the stage"


def _check_clients(path: Path, change: Change, planned: PlannedClients) -> Iterator[Finding]:
    """Follows the number of active clients."""
    names, (key, amount) = meant_by(planned.shares, change.population), change.of_clients
    if amount is None:
        return
    if isinstance(amount, int) and len(names) > 1:
        yield (*path, key), f"found {amount:,}, {OF_SHARES}", _shares_hint(names)
        return
    part = max(planned.part_of(name, amount) for name in names)
    left = 1 - planned.most(names) if key == "add" else planned.least(names)
    if part > left + ROUNDING:
        yield (*path, key), *_too_many(change, amount, planned, left)
        planned.change(change)
    elif not planned.change(change):
        clients = sum(planned.shares[name].clients for name in names)
        message = f"found {_written(amount)} of {clients:,} clients, which is no client"
        yield (*path, key), f"{message}, needed is one", "change more, or play more clients"


def _too_many(
    change: Change, amount: int | PartOf, planned: PlannedClients, left: float
) -> tuple[str, str | None]:
    """Message and hint where not so many clients can join or leave; `left` is the part that can."""
    names = meant_by(planned.shares, change.population)
    present, at = planned.count(names), write_duration(change.at)
    clients = sum(planned.shares[name].clients for name in names)
    allowed = str(rounded(left * clients)) if isinstance(amount, int) else write_share(left)
    message = f"found {amount}, allowed is up to {allowed}"
    if change.add is None:
        return f"{message}: no more clients are active at {at}", None
    message += f": {present} of {clients} clients are active at {at}"
    if isinstance(amount, PartOf):
        return message, "bring up fewer with clients in the connect stage, or add less"
    name = change.population
    hint = f"raise populations.{name}.clients to {present + amount}"
    return message, hint + (", or leave it out of the connect stage" if present == clients else "")


def _shares_hint(names: Sequence[str]) -> str:
    return f"write a share in percent, or one of {', '.join(names)}"


def _written(amount: int | PartOf) -> str:
    return f"{amount:,}" if isinstance(amount, int) else str(amount)


OF_SHARES = "allowed for a population with shares is a share of it in percent"
ROUNDING = 1e-9
"""Difference at which two parts count as equal."""


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
    if kind == "rotate" and "for" in fault:
        hint = "the new certificate stays until a further rotate"
        yield (*path, "for"), "found for with rotate, allowed is for with the other kinds", hint
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
                group, numbers = victims_of(scenario, fault)
                noun = "publisher" if group in scenario.publishers else _noun(fault)
                spans.append(_Span(path, n, fault, group, frozenset(numbers), noun))
    yield from _check_overlaps(spans)


@dataclass(frozen=True, slots=True)
class _Span:
    """The time of a fault, and the brokers, publishers or bridges that it may hit."""

    path: Path
    stage: int
    fault: Fault
    group: str
    numbers: frozenset[int]
    noun: str

    def goes_on_at_start_of(self, later: _Span) -> bool:
        """Returns True if the fault is not repaired when a later one begins."""
        if self.fault.lasts is None:
            return True
        return self.stage == later.stage and self.fault.at + self.fault.lasts > later.fault.at

    def meets(self, other: _Span) -> bool:
        """Returns True if both faults may hit the same brokers, publishers or bridges."""
        same = (self.noun, self.group) == (other.noun, other.group)
        return same and bool(self.numbers & other.numbers)


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
    kind = fault.kind
    wrong = list(_check_restart((*path, kind), scenario, fault))
    yield from wrong
    if wrong:
        return
    try:
        _, among = victims_of(scenario, fault)
    except KeyError:
        names = list(group_sizes(scenario, kind))
        noun = _noun(fault)
        if noun == "broker" and names and not scenario.topology.brokers:
            noun = "publisher"
        message, hint = unknown(noun, fault.victims, names)
        is_target = fault.victims == TARGET or bool(scenario.targets_called(fault.victims))
        if noun == "broker" and (is_target or not names):
            hint = _OWN_ONLY
        elif noun == "broker" and scenario.target:
            hint = f"{_OWN_ONLY}; leave this fault out, or run the scenario without --target"
        yield (*path, kind), message, hint
        return
    if kind == "rotate":
        group, _ = victims_of(scenario, fault)
        mode = scenario.topology.brokers[group].tls_mode
        if mode not in {"server", "mutual"}:
            message = f"found rotate of {group} with tls: {mode}, allowed are server and mutual"
            hint = "set tls of the broker; for a broker of your own write command and repaired_when"
            yield (*path, kind), message, hint
    if fault.count is not None and fault.count > len(among):
        message = f"found {fault.count}, allowed is up to {len(among)}"
        yield (*path, "count"), message, f"there are so many of {fault.victims}"


def _noun(fault: Fault) -> str:
    return "broker" if fault.kind in BROKER_FAULTS else "bridge"


def _check_restart(path: Path, scenario: Scenario, fault: Fault) -> Iterator[Finding]:
    """Yields the problem of a fault of publishers."""
    names = (fault.victims, split_member(fault.victims)[0])
    name = next((each for each in names if each in scenario.publishers), "")
    if not name or fault.kind not in BROKER_FAULTS:
        return
    publishers = scenario.publishers[name]
    if fault.kind not in PUBLISHER_FAULTS:
        message = f"found {fault.kind} for the publishers {name}, allowed is stop"
        unknown_end = "a publisher that does not end in order leaves unknown what it sent"
        yield path, message, None if fault.kind == "rotate" else unknown_end
    elif publishers.publisher.kind == "command":
        message = f"found stop for {name}, of kind command, allowed are publishers of Pubstorm"
        yield path, message, "a program of your own cannot continue its streams"
    elif not can_restart(publishers):
        message = f"found stop for {name} on hosts {publishers.hosts}, allowed is this host"
        yield path, message, "leave hosts out: the publishers are on the controller's host then"
    elif fault.lasts is None:
        message = f"found for: ever with the publishers {name}, allowed is a duration"
        yield (*path[:-1], "for"), message, "for example for: 2s"


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
                f"{one.noun}s"
            )
            yield (*other.path, "at"), message, "begin it later, or choose others"


KINDS = ("points", "sine", "csv")


def check_rate_profiles(scenario: Scenario) -> Iterator[Finding]:
    """Yields the problems of values that are right by themselves."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        if not isinstance(stage.step, Publish) or stage.step.rate_profile is None:
            continue
        path: Path = ("stages", n, "publish", "rate_profile")
        yield from _check_kind(path, stage.step.rate_profile, stage.step.duration)
        for name in planned.chosen(stage):
            yield from _check_follows(path, planned.shares[name])


def check_rate_files(scenario: Scenario) -> Iterator[Finding]:
    """Yields profiles that give no points. Paths of files are absolute."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        planned.enter(stage)
        if isinstance(stage.step, Publish) and stage.step.rate_profile is not None:
            profile, path = stage.step.rate_profile, ("stages", n, "publish", "rate_profile")
            (kind,) = (kind for kind in KINDS if getattr(profile, kind))
            try:
                factors_of(profile, stage.step.duration, rate_of(stage, planned))
            except (RateProfileError, RowsError) as error:
                yield (*path, kind), error.message, error.hint


def _check_kind(path: Path, profile: RateProfile, duration_ns: int) -> Iterator[Finding]:
    given = [kind for kind in KINDS if getattr(profile, kind)]
    if len(given) != 1:
        found = " and ".join(given) or "neither points nor sine nor csv"
        yield path, f"found {found}, needed is one of points, sine and csv", None
    before_ns = 0
    for n, point in enumerate(profile.points):
        place = (*path, "points", n)
        if (point.factor is None) == (point.rate is None):
            found = "neither factor nor rate" if point.factor is None else "factor and rate"
            yield place, f"found {found}, needed is one of them", None
        elif (point.rate is None) != (profile.points[0].rate is None):
            message = "found factors and rates, allowed is one of them for all points"
            yield place, message, None
        if not before_ns <= point.at <= duration_ns:
            allowed = f"{write_duration(before_ns)} to {write_duration(duration_ns)}"
            message = f"found {write_duration(point.at)}, allowed is {allowed}"
            yield (*place, "at"), message, "points are in order, and within the stage"
        before_ns = max(before_ns, point.at)


def _check_follows(path: Path, played: PopulationShare) -> Iterator[Finding]:
    """Yields a population whose messages have no schedule that could follow."""
    population, flows = played.population, played.population.flows
    hint = "write populations: at the stage, without this one"
    if population.is_publisher:
        message = f"found a rate profile for the publishers {played.name}"
        yield path, f"{message}, allowed is one for clients of MQTT", hint
    elif any(flow.rate_per_s is None for flow in flows):
        message = f"found a rate profile for {played.name} with rate max"
        yield path, f"{message}, allowed is one for publications with a rate", hint
