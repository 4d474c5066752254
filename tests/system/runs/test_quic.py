"""One run over QUIC, with clients that leave in every way: exact deliveries and wills, and outcomes
with their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.runs import RunMaker
from tests.system.runs.underway import end_stage, outcomes, until_seen

pytestmark = pytest.mark.xdist_group("quic")

CLIENTS = 3
SCENARIO = """\
topology:
  brokers:
    broker: {kind: embedded, transport: quic}
    brief: {kind: embedded, transport: quic, settings: {quic-idle-timeout: 8}}
populations:
  idle: {clients: 3, at: brief, keep_alive: 60s, reconnect: never}
  alive: {clients: 3, at: brief, keep_alive: 4s, reconnect: never}
  stranger: {clients: 3, at: broker, reconnect: never, tls: {server_name: other.test}}
  pairs:
    clients: 3
    at: broker
    subscriptions: [{topic: "pairs/{n}", qos: 2}]
    publications: [{topic: "pairs/{n}", rate: 20/s, qos: 2, size: 5kB}]
  watcher: {clients: 1, at: broker, subscriptions: [{topic: "will/#", qos: 1}]}
  aborting: {clients: 3, at: broker, end: abort, will: {topic: "will/a{n}", qos: 1}}
  vanishing:
    clients: 3
    at: broker
    keep_alive: 4s
    end: vanish
    will: {topic: "will/v{n}", qos: 1}
  polite: {clients: 3, at: broker, will: {topic: "will/p{n}", qos: 1}}
  resuming: {clients: 3, at: broker, tls: {resume: 100%}}
  returning: {clients: 3, at: broker}
stages:
  - connect: {timeout: 5s}
  - publish: 10min
  - disconnect: {populations: [aborting, vanishing, polite, resuming, returning]}
  - connect: {name: return, populations: [resuming, returning]}
  - disconnect: {}
snapshot_interval: 200ms
clean_start: require
defaults: off
"""


@pytest.fixture(scope="module")
def result(shared_start: RunMaker) -> dict[str, Any]:
    run = shared_start(SCENARIO)
    until_seen(run, lambda: outcomes(run.directory, "idle").total() == CLIENTS)
    end_stage(run.directory)
    run.finish()
    return run.result()


@pytest.mark.parametrize(
    ("name", "connected", "reasons"),
    [
        ("idle", CLIENTS, {"quic_idle_timeout": CLIENTS}),
        ("alive", CLIENTS, {}),
        ("stranger", 0, {"certificate_name": CLIENTS}),
        ("pairs", CLIENTS, {}),
        ("aborting", CLIENTS, {}),
        ("vanishing", CLIENTS, {}),
        ("polite", CLIENTS, {}),
        ("resuming", CLIENTS, {}),
        ("returning", CLIENTS, {}),
    ],
)
def test_clients_over_quic_connect_and_end_with_the_outcomes_of_their_kind(
    result: dict[str, Any], name: str, connected: int, reasons: dict[str, int]
) -> None:
    found = result["populations"][name]
    assert (found["connected_max"], found["outcomes"]) == (connected, reasons)


def test_each_message_over_quic_arrives_once(result: dict[str, Any]) -> None:
    pairs = result["populations"]["pairs"]
    assert pairs["sent_total"] == pairs["acked_total"] > 0
    assert pairs["expected_total"] == pairs["received_total"] == pairs["sent_total"]
    assert (pairs["lost_total"], pairs["duplicate_total"]) == (0, 0)


@pytest.mark.parametrize(("name", "resumed"), [("resuming", CLIENTS), ("returning", 0)])
def test_returns_over_quic_resume_sessions_where_it_is_asked_for(
    result: dict[str, Any], name: str, resumed: int
) -> None:
    found, full = result["populations"][name], 2 * CLIENTS - resumed
    assert (found["tls_full_total"], found["tls_resumed_total"]) == (full, resumed)
    assert found["tls_resume_refused_total"] == 0
    times = (found["connect_time_tls_full_us"], found["connect_time_tls_resumed_us"])
    assert [each["count"] for each in times] == [full, resumed]


def test_a_client_that_aborts_or_vanishes_leaves_a_will_and_one_that_leaves_does_not(
    result: dict[str, Any],
) -> None:
    watcher = result["populations"]["watcher"]
    assert watcher["wills_expected_total"] == watcher["wills_received_total"] == 2 * CLIENTS
    assert watcher["received_total"] == 2 * CLIENTS


def test_targets_and_stale_state_of_a_run_over_quic(result: dict[str, Any]) -> None:
    assert len(result["targets"]) == 2
    assert all(target.startswith("quic://") for target in result["targets"])
    assert result["stale_state"] == []
