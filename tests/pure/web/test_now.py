"""The live page at one instant."""

from __future__ import annotations

from typing import Any

from pubstorm.contract.source import Sample, Source
from pubstorm.web.now import Latest, RunState, shown
from tests.kit import made

SCENARIO = """\
target: mqtt://127.0.0.1
populations: {sub: {clients: 3, subscriptions: [d]}}
stages: [connect, hold: 1s, disconnect]
"""


def content(**readings: float) -> dict[str, Any]:
    """The page of a population with some readings."""
    plan = made.compiled(SCENARIO)
    latest = Latest()
    source = Source.single("population", plan.populations[0].name)
    for metric, value in readings.items():
        latest.add("population", Sample(source, metric, 1.0, value))
    state = RunState(plan, None, 1.0, None, None, None, is_alive=True)
    return shown(state, latest, 0.0)


def test_messages_of_other_programs_are_the_first_figure_and_a_column() -> None:
    page = content(connected=3, foreign_per_s=510, received_per_s=0)
    first = page["figures"][0]
    assert (first["name"], first["value"]) == ("foreign messages", "510 /s")
    place = page["heads"].index("foreign/s")
    assert page["populations"][0]["cells"][place] == "510"
    both = content(connected=3, foreign_per_s=510, received_per_s=7)["figures"][0]
    assert both["name"] == "messages received"
    assert both["note"].endswith("; 510 /s of other programs")


def test_a_column_without_a_value_is_left_out() -> None:
    page = content(connected=3, received_per_s=7)
    assert {"foreign/s", "round trip p50", "round trip p99"}.isdisjoint(page["heads"])
    assert len(page["populations"][0]["cells"]) == len(page["heads"])
