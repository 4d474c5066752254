"""A small scenario, of which the tests of sweeps and searches vary a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pubstorm.scenario import Scenario, Sweep, parse_scenario
from tests.pure.scenario.bases import VARIED

CLIENTS = "populations.device.clients"
RATE = "populations.device.publications.0.rate"


def load(*keys: str, overrides: Sequence[str] = ()) -> Scenario:
    """Reads the scenario with more keys."""
    return parse_scenario("\n".join((VARIED.rstrip(), *keys, "")), "s.yaml", overrides)


def labels(**sweep: Any) -> list[str]:
    """Returns the labels of a sweep's steps."""
    return [variation.label for variation in Sweep.model_validate(sweep).variations()]
