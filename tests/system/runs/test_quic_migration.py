"""Connections over QUIC that change to another port while messages are in flight, as planned and as
the user says: at a broker that follows, and at one that ignores packets from another address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.runs import RunMaker
from tests.system.runs.underway import change

pytestmark = pytest.mark.xdist_group("quic")

SCENARIO = """\
topology:
  brokers:
    broker: {kind: embedded, transport: quic, settings: {log: info}}
    strict: {kind: embedded, transport: quic, settings: {quic-no-migration: true}}
populations:
  moving:
    clients: 4
    at: broker
    keep_alive: 1s
    subscriptions: [{topic: "moving/{n}", qos: 2}]
    publications: [{topic: "moving/{n}", rate: 50/s, qos: 2, size: 5kB}]
  staying:
    clients: 2
    at: broker
    keep_alive: 1s
    subscriptions: [{topic: "staying/{n}", qos: 1}]
    publications: [{topic: "staying/{n}", rate: 50/s, qos: 1}]
  ignored: {clients: 3, at: strict, keep_alive: 1s, reconnect: never}
stages:
  - connect: {timeout: 5s}
  - publish:
      for: 6s
      changes:
        - {at: 1s, population: moving, migrate: 3, over: 500ms}
        - {at: 1s, population: ignored, migrate: 2}
        - {at: 3s, population: moving, migrate: 100%}
  # The broker logs a migration once it has seen the end of the connection.
  - disconnect: {name: end, populations: [moving, staying]}
  - hold: {for: 1s, populations: [ignored]}
  - disconnect: {populations: [ignored]}
clean_start: require
defaults: off
"""
COUNTERS = ("migrated_total", "migrations_followed_total", "migrations_lost_total")


class Played(NamedTuple):
    """The populations of a result, and the log of the broker that follows."""

    populations: dict[str, Any]
    log: str


@pytest.fixture(scope="module")
def played(shared_start: RunMaker) -> Played:
    run = shared_start(SCENARIO)
    run.wait_for_stage("publish")
    change(run.directory, "migrate", "1", "staying")
    run.finish()
    log = Path(run.directory, "topology", "broker-0", "broker.log").read_text()
    return Played(run.result()["populations"], log)


@pytest.mark.parametrize(
    ("name", "migrations", "outcomes"),
    [
        ("moving", [7, 7, 0], {}),
        ("staying", [1, 1, 0], {}),
        ("ignored", [2, 0, 2], {"keep_alive_timeout": 2}),
    ],
)
def test_migrations_are_counted_by_what_the_broker_does(
    played: Played, name: str, migrations: list[int], outcomes: dict[str, int]
) -> None:
    found = played.populations[name]
    assert [found[each] for each in COUNTERS] == migrations
    assert found["outcomes"] == outcomes
    assert found["disconnected_total"] == sum(outcomes.values())


@pytest.mark.parametrize("name", ["moving", "staying"])
def test_messages_in_flight_are_neither_lost_nor_counted_twice(played: Played, name: str) -> None:
    found = played.populations[name]
    assert found["sent_total"] == found["acked_total"] > 0
    assert found["expected_total"] == found["received_total"] == found["sent_total"]
    assert (found["lost_total"], found["duplicate_total"], found["resent_total"]) == (0, 0, 0)


def test_the_broker_sees_the_new_port_of_each_client_that_has_migrated(played: Played) -> None:
    ports = r"has migrated from 127\.0\.0\.1:(\d+) to 127\.0\.0\.1:(\d+)"
    found = re.findall(ports, played.log)
    assert len(found) == 5
    assert all(first != last for first, last in found)
