"""A small scenario, of which the tests of sweeps and searches vary a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pubstorm.errors import ScenarioError
from pubstorm.scenario import Scenario, Sweep, parse_scenario

CLIENTS = "populations.device.clients"
RATE = "populations.device.publications.0.rate"
BASE = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 10
    publications: [{topic: "a/{n}", rate: 1/s}]
"""


def load(*keys: str, overrides: Sequence[str] = ()) -> Scenario:
    """Reads the scenario with more keys."""
    return parse_scenario("\n".join((BASE.rstrip(), *keys, "")), "s.yaml", overrides)


def problems(*keys: str, overrides: Sequence[str] = ()) -> list[str]:
    """Reads what cannot be read: returns each problem with its hint."""
    with pytest.raises(ScenarioError) as caught:
        load(*keys, overrides=overrides)
    return [f"{problem} [{problem.hint}]" for problem in caught.value.problems]


def labels(**sweep: Any) -> list[str]:
    """Returns the labels of a sweep's steps."""
    return [variation.label for variation in Sweep.model_validate(sweep).variations()]
