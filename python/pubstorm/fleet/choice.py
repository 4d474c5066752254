"""Which site a scenario asks for, and how long agents may take there."""

from __future__ import annotations

from pathlib import Path

from pubstorm.errors import FleetError
from pubstorm.fleet.local import LocalSite
from pubstorm.fleet.patience import Patience
from pubstorm.fleet.site import Site
from pubstorm.plan import Plan
from pubstorm.scenario.fleet import Fleet

SILENT_INTERVALS = 3
"""How many snapshots an agent may leave out, where they are far apart."""
BEAT_S = 1.0
"""How often agents of other hosts hear from the conductor."""
START_DELAY_S = 0.5
"""From a command to its effect, where it goes over a network."""
RAY_SCHEME = "ray://"


def site_of(fleet: Fleet, logs: Path) -> Site:
    """Where the scenario has its engines run; what they log goes to this folder. Raises FleetError
    where a package for it is not installed."""
    if fleet.on == "local":
        return LocalSite(logs)
    try:
        from pubstorm.fleet.ray import RaySite
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        text = f"found fleet.on {fleet.on}, and the package ray is not installed"
        raise FleetError(
            text, "install the wheel of Pubstorm with its extra: pip install 'WHEEL[ray]'"
        ) from error
    address = fleet.on.removeprefix(RAY_SCHEME) if fleet.on.startswith(RAY_SCHEME) else None
    return RaySite(address, fleet.spread, logs)


def patience_of(fleet: Fleet, plan: Plan) -> Patience:
    """How long agents may take. Those of this host die with Pubstorm and cannot be cut off from it:
    they get no beats."""
    silence_s = max(Patience.silence_s, SILENT_INTERVALS * plan.snapshot_interval_ns / 1e9)
    if fleet.on == "local":
        return Patience(silence_s)
    delay_s = START_DELAY_S
    return Patience(silence_s, beat_s=BEAT_S, start_delay_s=delay_s, connect_delay_s=delay_s)
