"""Connections over QUIC that change to another port while messages are in flight, as planned and as
the user says: at a broker that follows, and at one that ignores packets from another address."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pubstorm.play.control_socket import ask
from tests.kit.runs import RunMaker
from tests.system.runs.underway import change, counted, end_stage, snapshots, until_seen

pytestmark = pytest.mark.xdist_group("quic")

SCENARIO = """\
topology:
  brokers:
    broker: {kind: embedded, transport: quic, settings: {log: info}}
    strict:
      kind: embedded
      transport: quic
      settings: {quic-no-migration: true, quic-idle-timeout: 8}
populations:
  moving:
    clients: 4
    at: broker
    subscriptions: [{topic: "moving/{n}", qos: 2}]
    publications: [{topic: "moving/{n}", rate: 50/s, qos: 2, size: 5kB}]
  staying:
    clients: 2
    at: broker
    subscriptions: [{topic: "staying/{n}", qos: 1}]
    publications: [{topic: "staying/{n}", rate: 50/s, qos: 1}]
  # With a keep-alive shorter than the timeout, the first to give up would be the one that a busy
  # host lets: the client or the broker.
  ignored: {clients: 2, at: strict, keep_alive: 60s, reconnect: never}
  loyal: {clients: 1, at: strict, keep_alive: 4s, reconnect: never}
stages:
  - connect: {timeout: 5s}
  - publish:
      for: 10min
      changes:
        - {at: 0s, population: ignored, migrate: 2}
        - {at: 100ms, population: moving, migrate: 3, over: 500ms}
  # The broker logs a migration once it has seen the end of the connection.
  - disconnect: {name: end, populations: [moving, staying]}
  - hold: {for: 10min, populations: [loyal]}
  - disconnect: {populations: [ignored, loyal]}
snapshot_interval: 200ms
clean_start: require
defaults: off
"""
HOLD = 3
"""Index of the hold stage."""
MIGRATED = r"has migrated from 127\.0\.0\.1:(\d+) to 127\.0\.0\.1:(\d+)"
COUNTERS = ("migrated_total", "migrations_followed_total", "migrations_lost_total")


class Played(NamedTuple):
    """The populations of a result, and the log of the broker that follows."""

    populations: dict[str, Any]
    log: str


@pytest.fixture(scope="module")
def played(shared_start: RunMaker) -> Played:
    """Each client migrates again only after the broker has followed it, and the stages last until
    all was seen."""
    run = shared_start(SCENARIO)

    def until_counted(population: str, counter: str, count: int) -> None:
        until_seen(run, lambda: counted(run.directory, population, counter) == count)

    until_counted("moving", "migrations_followed_total", 3)
    change(run.directory, "migrate", "1", "staying")
    ask(run.directory, "migrate 100% moving")
    until_counted("moving", "migrations_followed_total", 3 + 4)
    until_counted("staying", "migrations_followed_total", 1)
    until_counted("ignored", "migrations_lost_total", 2)
    end_stage(run.directory)
    log = Path(run.directory, "topology", "broker-0", "broker.log")
    until_seen(run, lambda: snapshots(run.directory)[-1].stage == HOLD)
    until_seen(run, lambda: len(re.findall(MIGRATED, log.read_text())) == 4 + 1)
    end_stage(run.directory)
    run.finish()
    return Played(run.result()["populations"], log.read_text())


@pytest.mark.parametrize(
    ("name", "migrations", "reasons"),
    [
        ("moving", [7, 7, 0], {}),
        ("staying", [1, 1, 0], {}),
        # A broker that gives up before its client answers with a reset.
        ("ignored", [2, 0, 2], {"quic_idle_timeout", "reset_by_broker"}),
        ("loyal", [0, 0, 0], {}),
    ],
)
def test_migrations_are_counted_by_what_the_broker_does(
    played: Played, name: str, migrations: list[int], reasons: Collection[str]
) -> None:
    found = played.populations[name]
    assert [found[each] for each in COUNTERS] == migrations
    assert found["outcomes"].keys() <= set(reasons)
    assert found["disconnected_total"] == sum(found["outcomes"].values()) == migrations[2]


@pytest.mark.parametrize("name", ["moving", "staying"])
def test_messages_in_flight_are_neither_lost_nor_counted_twice(played: Played, name: str) -> None:
    found = played.populations[name]
    assert found["sent_total"] == found["acked_total"] > 0
    assert found["expected_total"] == found["received_total"] == found["sent_total"]
    assert (found["lost_total"], found["duplicate_total"], found["resent_total"]) == (0, 0, 0)


def test_the_broker_sees_the_new_port_of_each_client_that_has_migrated(played: Played) -> None:
    found = re.findall(MIGRATED, played.log)
    assert len(found) == 5
    assert all(first != last for first, last in found)
