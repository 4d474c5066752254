"""Shared groups, on brokers that send a client with several ways to get a message one copy for each
subscription, or one in all. Neither loses or doubles anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("shared_groups")

RunMaker = Callable[..., Any]

BROKERS = """
topology:
  brokers:
    embedded: {kind: embedded}
    once: {kind: mosquitto, settings: {max_queued_messages: 0, allow_duplicate_messages: false}}
    each: {kind: mosquitto, settings: {max_queued_messages: 0, allow_duplicate_messages: true}}
stages: [connect, publish: 1s, disconnect]
populations:"""
AT_EACH = """
  device-{broker}:
    at: {broker}
    clients: 5
    publications: [{{topic: "up/{{n}}", rate: 40/s, qos: 1}}]
  member-{broker}:
    at: {broker}
    clients: 3
    subscriptions: [{{topic: "up/+", qos: 1}}, {{topic: "$share/g/up/#", qos: 1}}]
  pool-{broker}:
    at: {broker}
    clients: 3
    subscriptions: [{{topic: "$share/h/up/#", qos: 1}}]
  crew-{broker}:
    at: {broker}
    clients: 2
    subscriptions: [{{topic: "$share/c/up/#", qos: 1}}]
  others-{broker}:
    at: {broker}
    clients: 4
    subscriptions: [{{topic: "$share/c/up/#", qos: 1}}]
  watcher-{broker}:
    at: {broker}
    clients: 2
    version: 5
    subscriptions:
      - {{topic: "up/#", qos: 1, identifier: 1}}
      - {{topic: "up/+", qos: 1, identifier: 2}}"""
COPIES = {"embedded": 4, "once": 3, "each": 4}
"""Copies of each message for the three members: one each, and the group's if it is sent too."""
IDENTIFIED = {"embedded": 1, "once": 2, "each": 2}
"""Copies of each message for a client with two filters that match: one with both identifiers, or
one with each."""


@pytest.fixture(scope="module")
def populations(shared_start: RunMaker) -> dict[str, dict[str, int]]:
    """The populations of one run that uses all brokers, with what their streams miss."""
    run = shared_start(BROKERS + "".join(AT_EACH.format(broker=broker) for broker in COPIES))
    assert run.finish() == 0, run.stdout
    found: dict[str, dict[str, int]] = run.result()["populations"]
    lines = (run.directory / "snapshots.jsonl").read_text().splitlines()
    flows = [flow for line in lines for flow in json.loads(line)["flows"]]
    for index, population in enumerate(found.values()):
        to_it = (flow["counters"] for flow in flows if flow["to"] == index)
        population["missing_total"] = sum(counters["missing_total"] for counters in to_it)
    return found


@pytest.mark.parametrize("broker", COPIES)
def test_members_with_a_filter_of_their_own_lose_and_double_nothing(
    populations: dict[str, dict[str, int]], broker: str
) -> None:
    sent = populations[f"device-{broker}"]["sent_total"]
    member = populations[f"member-{broker}"]
    assert sent > 0 and member["received_total"] == COPIES[broker] * sent
    assert member["lost_total"] == member["duplicate_total"] == member["missing_total"] == 0


@pytest.mark.parametrize("broker", COPIES)
def test_a_pool_gets_each_message_once_and_misses_nothing(
    populations: dict[str, dict[str, int]], broker: str
) -> None:
    pool = populations[f"pool-{broker}"]
    assert pool["expected_total"] == populations[f"device-{broker}"]["sent_total"]
    assert pool["received_total"] == pool["expected_total"]
    assert pool["lost_total"] == pool["duplicate_total"] == pool["missing_total"] == 0


@pytest.mark.parametrize("broker", COPIES)
def test_a_group_of_two_populations_gets_each_message_once(
    populations: dict[str, dict[str, Any]], broker: str
) -> None:
    sent = populations[f"device-{broker}"]["sent_total"]
    crew, others = populations[f"crew-{broker}"], populations[f"others-{broker}"]
    assert crew["received_total"] > 0 and others["received_total"] > 0
    assert crew["received_total"] + others["received_total"] == sent
    for each in (crew, others):
        assert each["expected_total"] == each["received_total"]
        assert each["lost_total"] == each["duplicate_total"] == each["missing_total"] == 0


@pytest.mark.parametrize("broker", COPIES)
def test_copies_with_other_identifiers_are_no_duplicates(
    populations: dict[str, dict[str, Any]], broker: str
) -> None:
    watcher = populations[f"watcher-{broker}"]
    assert watcher["received_total"] == watcher["expected_total"] > 0
    further = IDENTIFIED[broker] - 1
    assert watcher["copies_total"] == further * watcher["received_total"]
    assert watcher["duplicate_total"] == 0


@pytest.mark.parametrize("broker", COPIES)
def test_the_shares_of_members_are_measured(
    populations: dict[str, dict[str, Any]], broker: str
) -> None:
    share = populations[f"pool-{broker}"]["group_share"]
    assert share["count"] == 3
    assert 0 < share["min"] <= share["p50"] <= share["max"] <= 3
    assert 1 / 3 <= share["fairness"] <= 1
    assert populations[f"member-{broker}"]["group_share"]["count"] == 0
