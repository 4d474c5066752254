"""Requests and answers from scenario to plan."""

from __future__ import annotations

import pytest

from pubstorm.contract.plan import PlannedResponds
from pubstorm.scenario import parse_scenario
from pubstorm.scenario.defaults import default_thresholds
from tests.pure.scenario.bases import ROUND_TRIP, changed, plan_of


@pytest.mark.parametrize(
    ("written", "planned"),
    [
        ("true", PlannedResponds(qos=0, bytes=100)),
        ("{}", PlannedResponds(qos=0, bytes=100)),
        ("{qos: 2, size: 1kB}", PlannedResponds(qos=2, bytes=1000)),
        ("false", None),
    ],
)
def test_answers_have_a_qos_and_a_size(written: str, planned: PlannedResponds | None) -> None:
    device, backend = plan_of(ROUND_TRIP, f"populations.backend.responds={written}").populations
    assert (device.responds, backend.responds) == (None, planned)
    assert [each.request for each in device.publications] == [True]


def test_unanswered_requests_and_answers_not_sent_have_default_thresholds() -> None:
    plain = changed(
        ROUND_TRIP,
        "populations.device.publications.0.request: null, populations.backend.responds: null",
    )
    for text, have in ((ROUND_TRIP, True), (plain, False)):
        sources = {each.source for each in default_thresholds(parse_scenario(text, "s.yaml"))}
        assert ({"unanswered == 0", "answers_dropped == 0"} <= sources) == have
