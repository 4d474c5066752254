"""Populations that take connections over, from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.cli.describe.plan import plan_in_words
from pubstorm.scenario import parse_scenario
from tests.pure.scenario.bases import TAKEOVER, plan_of


@pytest.mark.parametrize("client_id", ["device-{n}", "d{n}x"])
def test_a_taker_has_the_identifiers_and_numbers_of_its_victims(client_id: str) -> None:
    plan = plan_of(TAKEOVER, f"populations.device.client_id='{client_id}'")
    device, thief, idle = plan.populations
    assert (thief.client_id, thief.first, thief.takes_over) == (client_id, 5, 0)
    assert (device.takes_over, idle.takes_over) == (None, None)
    assert plan.contested == {0, 1}


def test_a_plan_in_words_names_the_victims() -> None:
    words = plan_in_words(parse_scenario(TAKEOVER, "s.yaml"), plan_of(TAKEOVER))
    assert "takes connections over from device" in "\n".join(words)
