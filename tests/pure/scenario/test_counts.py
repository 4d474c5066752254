"""Number of brokers of `count: auto`."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.scenario import parse_scenario
from pubstorm.scenario.rewrite import counted
from pubstorm.scenario.sizes import DESCRIPTORS_KEPT, most_in_one, processes_needed

BROKERS = {"a": {"kind": "mosquitto", "count": "auto"}, "b": {"kind": "mosquitto", "count": 3}}


def brokers_for(populations: Any) -> Any:
    data = {"topology": {"brokers": BROKERS}, "populations": populations}
    settled = counted(data, 20_000)["topology"]["brokers"]
    assert settled["b"] == BROKERS["b"]
    return settled["a"]["count"]


@pytest.mark.parametrize(
    ("clients", "processes"),
    [
        ([1], 1),
        ([19_800], 1),
        ([19_801], 2),
        ([10_000, 10_000], 2),
        ([500_000, 500_000], 51),
        ([750_000, 750_000], 76),
    ],
)
def test_processes_follow_from_clients_and_descriptors(clients: list[int], processes: int) -> None:
    assert processes_needed(clients, 20_000) == processes
    assert most_in_one(clients, processes) <= 20_000 - DESCRIPTORS_KEPT


def test_too_few_descriptors_are_no_number_of_processes() -> None:
    assert processes_needed([10, 10], DESCRIPTORS_KEPT + 1) is None


def test_clients_of_other_brokers_do_not_count() -> None:
    many, few = {"clients": "100k"}, {"clients": 100}
    assert brokers_for({"c": many}) == 6
    assert brokers_for({"c": many, "d": {**few, "at": "a"}}) == 6
    assert brokers_for({"c": {**many, "at": "b"}, "d": {**few, "at": {"brokers": "a"}}}) == 1
    assert brokers_for({"c": {**many, "at": {"brokers": "a"}}}) == 6


def test_errors_are_left_to_other_checks_to_report() -> None:
    assert brokers_for({"c": {"clients": "many"}, "d": None}) == 1
    assert brokers_for("nothing") == 1


def test_a_scenario_has_a_number_where_auto_was_written() -> None:
    text = """\
topology: {brokers: {b: {kind: mosquitto, count: auto}}}
populations: {c: {clients: 10, publications: [{topic: t, rate: 1/s}]}}
"""
    assert parse_scenario(text, "s.yaml").topology.brokers["b"].count == 1
