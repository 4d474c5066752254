"""Clients over QUIC that send CONNECT in 0-RTT: a broker that has their sessions accepts it, and
one that was killed and started again rejects it. Each CONNECT has its effect once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.runs import RunMaker
from tests.system.runs.underway import counted, end_stage, ready, until_seen

pytestmark = pytest.mark.xdist_group("quic")

CLIENTS = 4
SCENARIO = """\
topology: {brokers: {broker: {kind: embedded, transport: quic}}}
populations:
  early:
    clients: 4
    keep_alive: 4s
    tls: {resume: 100%, early_data: true}
    subscriptions: [{topic: "early/{n}", qos: 2}]
    publications: [{topic: "early/{n}", rate: 20/s, qos: 2}]
  resuming: {clients: 4, keep_alive: 4s, tls: {resume: 100%}}
stages:
  - connect: {timeout: 5s}
  - disconnect: {name: leave}
  - connect: {name: return}
  - publish: {name: accepted, for: 2s}
  - hold: {for: 10min, faults: [{at: 500ms, kill: broker, for: 1s}]}
  - publish: {name: rejected, for: 2s}
  - disconnect: {}
snapshot_interval: 200ms
defaults: off
"""


@pytest.fixture(scope="module")
def populations(shared_start: RunMaker) -> dict[str, Any]:
    """The hold stage lasts until all clients were cut off and are back."""
    run = shared_start(SCENARIO)

    def are_back() -> bool:
        return all(
            counted(run.directory, name, "disconnected_total") == CLIENTS
            and ready(run.directory, name) == CLIENTS
            for name in ("early", "resuming")
        )

    until_seen(run, are_back)
    end_stage(run.directory)
    run.finish()
    found: dict[str, Any] = run.result()["populations"]
    return found


@pytest.mark.parametrize(("name", "early"), [("early", CLIENTS), ("resuming", 0)])
def test_the_broker_with_the_sessions_accepts_0_rtt_and_the_one_without_rejects_it(
    populations: dict[str, Any], name: str, early: int
) -> None:
    found = populations[name]
    # The first handshakes, and those with the broker that was started again.
    assert (found["tls_full_total"], found["tls_resumed_total"]) == (2 * CLIENTS, CLIENTS)
    assert found["tls_resume_refused_total"] == CLIENTS
    assert (found["tls_early_accepted_total"], found["tls_early_rejected_total"]) == (early, early)
    times = ("connect_time_tls_full_us", "connect_time_tls_resumed_us", "connect_time_tls_early_us")
    assert [found[each]["count"] for each in times] == [2 * CLIENTS, CLIENTS - early, early]
    assert found["connect_time_us"]["count"] == 3 * CLIENTS
    assert found["disconnected_total"] == CLIENTS, "only the kill has ended connections"


def test_each_message_after_0_rtt_arrives_once(populations: dict[str, Any]) -> None:
    early = populations["early"]
    assert early["sent_total"] == early["acked_total"] > 0
    assert early["expected_total"] == early["received_total"] == early["sent_total"]
    assert (early["lost_total"], early["duplicate_total"]) == (0, 0)
