"""Client profiles: the active clients of populations over time, as changes of a publish or hold
stage. A change of several seconds starts or ends connections evenly, so that clients are on a
line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, cos, tau

from pubstorm.contract.template import RowsError, read_rows
from pubstorm.errors import PubstormError
from pubstorm.quantities import PartOf, rounded, write_count, write_duration, write_share
from pubstorm.scenario.checks import check_shares
from pubstorm.scenario.checks.stages import OF_SHARES, ROUNDING
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.kinds import StartedPublishers
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import (
    PlannedClients,
    Point,
    PopulationShare,
    RateProfileError,
    meant_by,
    replayed,
)
from pubstorm.scenario.stages import Change, ClientProfile, ClientSine, Hold, Publish, Stage

KINDS = ("points", "sine", "csv")
COLUMNS = ("clients", "share")
"""Columns of a file beside `time`; a file has one of them."""
CHANGES_MAX = 300
"""Changes of one stage by its profiles. Each is an event of the result, and may begin a phase."""
SINE_LINES = 32
"""Lines of one period. They differ from a sine by up to 0.25 % of its height."""


class _UnfitProfileError(PubstormError):
    """A profile that cannot be played: the place within it, the message and a hint."""

    default_exit_code = 2

    def __init__(self, path: Path, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.path = path


def with_client_profiles(scenario: Scenario) -> tuple[Scenario, list[Finding]]:
    """Returns the scenario with the changes that its client profiles make, and what is wrong with
    the profiles. A scenario whose shares are unknown stays as it is."""
    profiles = any(getattr(s.step, "client_profiles", ()) for s in scenario.stages)
    if not profiles or any(check_shares(scenario)):
        return scenario, []
    planned, stages, findings = PlannedClients(scenario), list[Stage](), list[Finding]()
    for n, stage in enumerate(scenario.stages):
        planned.enter(stage)
        step = stage.step
        if not isinstance(step, Publish | Hold):
            stages.append(stage)
            continue
        made: list[Change] = []
        for name, profile in step.client_profiles.items():
            try:
                followed = _Followed.of(scenario, planned, stage, name)
                made += followed.changes(profile, step.duration)
            except _UnfitProfileError as unfit:
                path = ("stages", n, stage.verb, "client_profiles", name, *unfit.path)
                findings.append((path, unfit.message, unfit.hint))
        if len(made) > CHANGES_MAX:
            message = f"found {write_count(len(made))} lines on which clients join or leave"
            hint = "write fewer points, a file with fewer rows, or a sine with a longer period"
            path = ("stages", n, stage.verb, "client_profiles")
            findings.append((path, f"{message}, allowed are {CHANGES_MAX} in a stage", hint))
        changes = sorted((*step.changes, *made), key=lambda change: change.at)
        for change in changes:
            planned.change(change)
        step = step.model_copy(update={"changes": tuple(changes)})
        stages.append(stage.model_copy(update={stage.verb: step}))
    return scenario.model_copy(update={"stages": tuple(stages)}), findings


@dataclass(frozen=True)
class _Followed:
    """A population that follows a profile, or a share of one."""

    name: str
    shares: Mapping[str, PopulationShare]
    """The shares that the name means."""
    active: float
    """Part of the clients that is active at the start of the stage."""
    scale: float
    """Factor of the numbers in files."""

    @classmethod
    def of(cls, scenario: Scenario, planned: PlannedClients, stage: Stage, name: str) -> _Followed:
        """Returns the population of this name in a stage; raises _UnfitProfileError."""
        meant = meant_by(planned.shares, name)
        if not meant:
            names = tuple(dict.fromkeys((*scenario.populations, *planned.shares)))
            raise _UnfitProfileError((), *unknown("population", name, names))
        if not {*meant} <= {*planned.chosen(stage)}:
            message = f"found a profile of population {name}, which is not in this stage"
            raise _UnfitProfileError((), message, "add it to the populations of the stage")
        shares = {each: planned.shares[each] for each in meant}
        population = shares[meant[0]].population
        if isinstance(population, StartedPublishers):
            message = "found a profile of publishers, allowed is one of other clients"
            raise _UnfitProfileError((), message, "a publisher is active for the whole run")
        for change in stage.changes:
            joins_or_leaves = change.add is not None or change.remove is not None
            if joins_or_leaves and {*meant_by(planned.shares, change.population)} & {*meant}:
                message = f"found changes of the clients of {change.population} beside its profile"
                raise _UnfitProfileError((), f"{message}, allowed is one of them")
        if planned.most(meant) > planned.least(meant) + ROUNDING:
            message = f"found a profile of {name}, whose shares are not active in equal parts"
            hint = f"write a profile for each of {', '.join(meant)}"
            raise _UnfitProfileError((), f"{message}, allowed is a profile of a share", hint)
        scale = scenario.scale if scenario.populations[shares[meant[0]].whole].scales else 1.0
        return cls(name, shares, planned.most(meant), scale)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return sum(played.clients for played in self.shares.values())

    def changes(self, profile: ClientProfile, duration_ns: int) -> Iterator[Change]:
        """Yields the changes on the lines between points, without those that move no client."""
        now = self.active
        points = self._points(profile, duration_ns)
        # Before the first point, clients are as many as there.
        lines = pairwise([Point(0, now), Point(0, points[0].value), *points])
        for (from_ns, _), (to_ns, wanted) in lines:
            at_ns, end_ns = min(from_ns, duration_ns), min(to_ns, duration_ns)
            if end_ns < to_ns:
                wanted = now + (wanted - now) * (end_ns - at_ns) / (to_ns - from_ns)
            if at_ns < duration_ns and self._counts(wanted) != self._counts(now):
                yield self._change(now, wanted, at_ns, end_ns - at_ns)
                now = wanted

    def _counts(self, part: float) -> list[int]:
        return [rounded(part * played.clients) for played in self.shares.values()]

    def _change(self, before: float, after: float, at_ns: int, over_ns: int) -> Change:
        amount: int | PartOf = PartOf(abs(after - before))
        shown = write_share(after)
        if len(self.shares) == 1:
            (count_before,), (count_after,) = self._counts(before), self._counts(after)
            amount, shown = abs(count_after - count_before), str(count_after)
        joins = after > before
        return Change.model_construct(
            at=at_ns,
            population=self.name,
            add=amount if joins else None,
            remove=None if joins else amount,
            over=over_ns,
            name=f"{self.name} to {shown}",
        )

    def _points(self, profile: ClientProfile, duration_ns: int) -> list[Point]:
        """Returns the parts of the clients over time; raises _UnfitProfileError."""
        given = [kind for kind in KINDS if getattr(profile, kind)]
        if len(given) != 1:
            found = " and ".join(given) or "neither points nor sine nor csv"
            raise _UnfitProfileError((), f"found {found}, needed is one of points, sine and csv")
        if profile.sine is not None:
            points = _sine(profile.sine, duration_ns)
        elif profile.csv is not None:
            points = self._replayed(profile.csv)
        else:
            points = list(self._written(profile, duration_ns))
        parts = [Point(at_ns, value * profile.factor) for at_ns, value in points]
        for n, (at_ns, part) in enumerate(parts):
            if part > 1 + ROUNDING:
                place: Path = ("points", n) if profile.points else (given[0],)
                found = f"found {write_count(rounded(part * self.clients))}"
                message = f"{found} at {write_duration(at_ns)}, allowed are up to"
                hint = f"raise the clients of {self.name}, or lower the factor of the profile"
                raise _UnfitProfileError(place, f"{message} {write_count(self.clients)}", hint)
        return parts

    def _written(self, profile: ClientProfile, duration_ns: int) -> Iterator[Point]:
        before_ns = 0
        for n, point in enumerate(profile.points):
            place: Path = ("points", n)
            if not before_ns <= point.at <= duration_ns:
                allowed = f"{write_duration(before_ns)} to {write_duration(duration_ns)}"
                message = f"found {write_duration(point.at)}, allowed is {allowed}"
                hint = "points are in order, and within the stage"
                raise _UnfitProfileError((*place, "at"), message, hint)
            before_ns = point.at
            if isinstance(point.clients, PartOf):
                yield Point(point.at, point.clients.share)
            elif point.clients and len(self.shares) > 1:
                message = f"found {write_count(point.clients)}, {OF_SHARES}"
                hint = f"write a share in percent, or a profile of {', '.join(self.shares)}"
                raise _UnfitProfileError((*place, "clients"), message, hint)
            else:
                yield Point(point.at, point.clients / self.clients)

    def _replayed(self, path: str) -> list[Point]:
        try:
            points, column = replayed(read_rows(path), path, COLUMNS)
        except (RateProfileError, RowsError) as error:
            raise _UnfitProfileError(("csv",), error.message, error.hint) from error
        if column == "share":
            return points
        return [Point(at_ns, value * self.scale / self.clients) for at_ns, value in points]


def _sine(sine: ClientSine, duration_ns: int) -> list[Point]:
    count = min(ceil(duration_ns * SINE_LINES / sine.period), CHANGES_MAX + 1) + 1
    height = (sine.high - sine.low) / 2

    def point(number: int) -> Point:
        part = 1 - cos(tau * (number % SINE_LINES) / SINE_LINES)
        return Point(round(number * sine.period / SINE_LINES), sine.low + height * part)

    return [point(number) for number in range(count)]
