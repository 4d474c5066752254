"""Chooses the site that a scenario asks for, and the timeouts of its agents."""

from __future__ import annotations

from pathlib import Path

from pubstorm.contract.plan import Plan
from pubstorm.errors import FleetError, extra_hint
from pubstorm.fleet.incarnation import Timeouts
from pubstorm.fleet.local import LocalSite
from pubstorm.fleet.site import Site
from pubstorm.host.machine import Hosts, OneHost
from pubstorm.scenario import Scenario
from pubstorm.scenario.fleet import ScenarioFleet

SILENT_INTERVALS = 3
"""Snapshots that an agent may leave out, if they are far apart."""
BEAT_S = 1.0
"""Interval of beats to agents on other hosts."""
START_DELAY_S = 0.5
"""From a command to its effect, where it goes over a network."""
RAY_SCHEME = "ray://"


def site_of(scenario: Scenario, logs: Path) -> Site:
    """Returns the site of a scenario's agents, whose logs go to this folder. Raises FleetError if a
    package for the site is not installed."""
    fleet = scenario.fleet
    if fleet.on == "local":
        return LocalSite(logs)
    _demand_ray(fleet)
    from pubstorm.fleet.ray import Labels, RaySite

    labels = Labels(fleet.hosts, scenario.engine_labels, scenario.server_labels)
    return RaySite(_address(fleet), fleet.spread, logs, labels)


def hosts_of(scenario: Scenario, logs: Path) -> Hosts:
    """Returns the hosts of the servers that the scenario starts. Raises FleetError if a package for
    them is not installed."""
    fleet = scenario.fleet
    if fleet.on == "local":
        return OneHost()
    _demand_ray(fleet)
    from pubstorm.fleet.ray import RayHosts

    own = {fleet.hosts} if fleet.hosts is not None else set()
    silent_s = scenario.topology.hosts_timeout / 1e9
    return RayHosts(_address(fleet), logs, scenario.engine_labels | own, silent_s)


def _address(fleet: ScenarioFleet) -> str | None:
    return fleet.on.removeprefix(RAY_SCHEME) if fleet.on.startswith(RAY_SCHEME) else None


def _demand_ray(fleet: ScenarioFleet) -> None:
    try:
        import pubstorm.fleet.ray  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        text = f"found fleet.on {fleet.on}, and the package ray is not installed"
        raise FleetError(text, extra_hint("ray")) from error


def timeouts_of(fleet: ScenarioFleet, plan: Plan) -> Timeouts:
    """Returns the timeouts of agents. Agents on this host die with Pubstorm and cannot be cut off
    from it, so they get no beats."""
    silence_s = max(Timeouts.silence_s, SILENT_INTERVALS * plan.snapshot_interval_ns / 1e9)
    if fleet.on == "local":
        return Timeouts(silence_s)
    delay_s = START_DELAY_S
    return Timeouts(silence_s, beat_s=BEAT_S, start_delay_s=delay_s, connect_delay_s=delay_s)
