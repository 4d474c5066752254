"""Checks rate profiles of publish stages: one kind, points in the stage's time, publications that
can follow. A profile from a file reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.contract.rows import RowsError
from pubstorm.quantities import write_duration
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.rate_profiles import RateProfileError, factors_of, rate_of
from pubstorm.scenario.shares import PlannedClients, PopulationShare
from pubstorm.scenario.stages import Publish, RateProfile

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
