"""The culprit of a run: the evidence with the longest reach, and of equal ones the most direct."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.result import LimitedBy
from pubstorm.result.verdict.culprit import Directness, Evidence, EvidenceKind, Uncarried, limit
from tests.kit.measured import MeasuredMaker
from tests.pure.result.made_runs import run_of, verdict_of

BUSY = {"host": {"cpu": 0.99}}
MAIN = {"name": "main-0", "host": "127.0.0.1"}
LOST = {"lost_total": 500, "received_total": 500}
SMALL_WINDOW = {
    "open_loop_window": 1,
    "in_flight_max": 100,
    "skipped_total": 4000,
    "rates": {"sent_per_s": 2000, "acked_per_s": 2000},
    "ack_latency_us": {"actual": {"count": 900, "mean": 50_000, "min": 49_000, "p50": 50_000}},
}
UNREADY = {"connect_failed_total": 1271, "ready_max": 60, "outcomes": {"connect_reset": 1271}}
SLOW = {"read_rate_per_s": 50.0, "rates": {"received_per_s": 50}}
LATE = {"clients": 3, "ready_max": 3, "rates": {"received_per_s": 50}}
DROPS = {"main-0": {"$SYS/messages/dropped": [0, 500]}}
BEHIND = {
    "name": "publish",
    "status": "collapsed",
    **dict.fromkeys(("due_per_s", "sent_per_s", "acked_per_s", "received_per_s"), 1000),
    "queue_growth_per_s": 0,
}

SITUATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is missing on a busy host": ({"monitors": BUSY}, "none"),
    "nothing is missing, and the broker is full": (
        {"brokers": [MAIN], "monitors": {"main-0": {"cpu": 0.99, "threads": 1}}},
        "none",
    ),
    "nothing is missing though agents starved": ({"fleet": {"starved_share": 0.4}}, "none"),
    "nothing is missing though a broker starved": (
        {"brokers": [MAIN], "monitors": {**BUSY, "main-0": {"run_delay": 0.6}}},
        "none",
    ),
    "clients are only held on a busy host": (
        {
            "device": {"rates": {}, "sent_total": 0},
            "backend": {"expected_total": 0, "received_total": 0, "rates": {}},
            "flows": [],
            "monitors": BUSY,
        },
        "none",
    ),
    "a loss on a busy host that starves nothing": (
        {"flow": LOST, "monitors": {**BUSY, "broker-0": {"run_delay": 0.01}}},
        "broker",
    ),
    "a loss on a busy host that may starve the broker": (
        {"flow": LOST, "monitors": BUSY},
        "unknown",
    ),
    "a loss on a busy host that may starve a broker of the run": (
        {"flow": LOST, "brokers": [MAIN], "monitors": {**BUSY, "main-0": {"cpu": 0.1}}},
        "unknown",
    ),
    "a broker that refuses clients on a busy host, and was not read": (
        {
            "device": UNREADY,
            "phases": [{**BEHIND, "sent_per_s": 0, "received_per_s": 0}],
            "monitors": BUSY,
        },
        "broker",
    ),
    "a loss of a broker elsewhere while the host of the agents is busy": (
        {"flow": LOST, "monitors": BUSY, "targets": ["10.0.0.1:1883"]},
        "broker",
    ),
    "a broker out of files on a busy host": (
        {
            "device": UNREADY,
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"descriptors": 700, "descriptors_max": 700}},
            "fleet": {"starved_share": 0.3},
        },
        "broker",
    ),
    "the drops of a broker on a busy host": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, **DROPS},
            "fleet": {"starved_share": 0.2},
        },
        "broker",
    ),
    "the drops of a broker that agents' starvation could explain as well": (
        {
            "flow": {"lost_total": 200},
            "brokers": [MAIN],
            "monitors": {**BUSY, **DROPS},
            "fleet": {"starved_share": 0.3},
        },
        "broker",
    ),
    "a broker whose quota holds it on a busy host": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, **DROPS, "main-0": {"run_delay": 0.97, "throttled": 0.96}},
            "fleet": {"starved_share": 0.3},
        },
        "broker",
    ),
    "a broker without a processor on a host with others left": (
        {"flow": LOST, "brokers": [MAIN], "monitors": {"main-0": {"run_delay": 0.97}}},
        "broker",
    ),
    "a broker that a full host starves": (
        {"flow": LOST, "brokers": [MAIN], "monitors": {**BUSY, "main-0": {"run_delay": 0.6}}},
        "host",
    ),
    "a broker that a full host starves, and its drops": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"run_delay": 0.6, "$SYS/messages/dropped": [0, 500]}},
        },
        "host",
    ),
    "a broker that a full host starves far less than it loses": (
        {"flow": LOST, "brokers": [MAIN], "monitors": {**BUSY, "main-0": {"run_delay": 0.1}}},
        "broker",
    ),
    "a broker that a full host starves for more than a phase lacks": (
        {
            "phases": [{**BEHIND, "queue_growth_per_s": 160}],
            "monitors": {**BUSY, "broker-0": {"run_delay": 0.42}},
        },
        "host",
    ),
    "a broker that a full host starves for far less than a phase lacks": (
        {
            "phases": [{**BEHIND, "sent_per_s": 300}],
            "monitors": {**BUSY, "broker-0": {"run_delay": 0.2}},
        },
        "broker",
    ),
    "a broker that takes nothing while a full host starves it a little": (
        {
            "phases": [{**BEHIND, "received_per_s": 300}],
            "monitors": {**BUSY, "broker-0": {"run_delay": 0.2}},
        },
        "broker",
    ),
    "lost wills of a broker that a full host starves": (
        {
            "flow": {**LOST, "wills_expected_total": 500},
            "monitors": {**BUSY, "broker-0": {"run_delay": 0.6}},
        },
        "broker",
    ),
    "a frozen broker beside agents that starve a little": (
        {"flow": {"lost_total": 360}, "fleet": {"starved_share": 0.117}},
        "broker",
    ),
    "an outage that was made up for beside agents that starve": (
        {
            "device": {"skipped_total": 1, "disconnected_total": 1},
            "events": [{"at_s": 4.0, "kind": "outage", "text": "nothing came"}],
            "phases": [{"name": "publish", "status": "collapsed", "recovered_after_s": 5}],
            "fleet": {"starved_share": 0.123},
        },
        "broker",
    ),
    "agents that starve as much as is lost": (
        {"flow": {"lost_total": 100}, "fleet": {"starved_share": 0.12}},
        "host",
    ),
    "an agent without a processor that reads, beside drops": (
        {
            "flow": {"lost_total": 900},
            "brokers": [MAIN],
            "monitors": {"main-0": {"$SYS/messages/dropped": [0, 900]}},
            "fleet": {"starved_share": 0.97},
        },
        "host",
    ),
    "a full window of an open loop": (
        {"device": SMALL_WINDOW, "fleet": {"blocked_us": {"count": 900, "p99": 50_000}}},
        "window",
    ),
    "a full window of an open loop on a busy host": (
        {
            "device": SMALL_WINDOW,
            "monitors": BUSY,
            "fleet": {"starved_share": 0.2, "blocked_us": {"count": 900, "p99": 50_000}},
        },
        "window",
    ),
    "a full window whose messages all wait, on a busy host": (
        {
            "device": {**SMALL_WINDOW, "skipped_total": 0},
            "phases": [{"name": "publish", "status": "collapsed"}],
            "monitors": BUSY,
            "fleet": {"starved_share": 0.3, "blocked_us": {"count": 900, "p99": 50_000}},
        },
        "window",
    ),
    "a full window that only waits": (
        {
            "device": {**SMALL_WINDOW, "skipped_total": 0},
            "fleet": {"blocked_us": {"count": 900, "p99": 50_000}},
        },
        "window",
    ),
    "a full window of an open loop, and queues at the broker": (
        {
            "device": {
                **SMALL_WINDOW,
                "ack_latency_us": {
                    "actual": {"count": 900, "mean": 50_000, "min": 90, "p50": 45_000}
                },
                "disconnected_total": 1,
            }
        },
        "broker",
    ),
    "a window that is not full": (
        {"device": {**SMALL_WINDOW, "in_flight_max": 20, "disconnected_total": 1}},
        "broker",
    ),
    "a window of a closed loop on a busy host": (
        {
            "device": {
                "closed_loop": True,
                "closed_loop_window": 1,
                "in_flight_max": 100,
                "ack_latency_us": {"actual": {"count": 9, "min": 10, "p50": 90}},
            },
            "monitors": BUSY,
            "fleet": {"starved_share": 0.2},
        },
        "window",
    ),
    "a closed loop without one acknowledgement": (
        {
            "device": {
                "closed_loop": True,
                "closed_loop_window": 1,
                "in_flight_max": 100,
                "ack_latency_us": {},
            }
        },
        "broker",
    ),
    "subscribers that read slowly on purpose": ({"flow": LOST, "backend": SLOW}, "scenario"),
    "consumers of which one at a time takes messages, and acknowledges late": (
        {"flow": LOST, "backend": {**LATE, "queue_limits": {"takes_per_s": 50.0, "takers": 1}}},
        "scenario",
    ),
    "consumers that take less than their late acknowledgements allow": (
        {"flow": LOST, "backend": {**LATE, "queue_limits": {"takes_per_s": 50.0}}},
        "broker",
    ),
    "subscribers that read slowly on purpose, and drops of the broker": (
        {"flow": LOST, "backend": SLOW, "brokers": [MAIN], "monitors": {**BUSY, **DROPS}},
        "scenario",
    ),
    "subscribers that read slowly on purpose, beside agents without a processor": (
        {"flow": LOST, "backend": SLOW, "monitors": BUSY, "fleet": {"starved_share": 0.62}},
        "scenario",
    ),
    "subscribers that read less for agents without a processor": (
        {
            "flow": LOST,
            "backend": {**SLOW, "read_rate_per_s": 100.0},
            "brokers": [MAIN],
            "monitors": {**BUSY, **DROPS},
            "fleet": {"starved_share": 0.4},
        },
        "scenario",
    ),
    "subscribers that read less than agents without a processor explain": (
        {
            "flow": LOST,
            "backend": {**SLOW, "read_rate_per_s": 100.0},
            "brokers": [MAIN],
            "monitors": {**BUSY, **DROPS},
            "fleet": {"starved_share": 0.3},
        },
        "broker",
    ),
    "subscribers that read slower than they may": (
        {"flow": LOST, "backend": {**SLOW, "read_rate_per_s": 500.0}},
        "broker",
    ),
    "a full broker that loses": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"cpu": 0.99, "threads": 1}},
        },
        "broker",
    ),
    "a firewall that has no room for clients": (
        {"device": UNREADY, "monitors": {"host": {"conntrack": 99, "conntrack_max": 100}}},
        "host",
    ),
    "a firewall that is full beside a loss": (
        {"flow": LOST, "monitors": {"host": {"conntrack": 99, "conntrack_max": 100}}},
        "broker",
    ),
    "a hypervisor that takes more than is lost": (
        {"flow": {"lost_total": 100}, "monitors": {"host": {"cpu_steal": 0.2}}},
        "host",
    ),
    "a loss in a stage with a fault": (
        {
            "flow": {"lost_total": 7},
            "faults": [{}],
            "publish": {
                "flows": [
                    {
                        "source": "device",
                        "to": "backend",
                        "qos": [0],
                        "expected_total": 1000,
                        "lost_total": 7,
                    }
                ]
            },
            "fleet": {"starved_share": 0.2},
        },
        "none",
    ),
    "a path that is gone for all clients that lost": (
        {"device": {"disconnected_total": 100, "outcomes": {"path_timeout": 100}}, "flow": LOST},
        "network",
    ),
    "a path that is gone for one client beside many losses": (
        {"device": {"disconnected_total": 1, "outcomes": {"path_timeout": 1}}, "flow": LOST},
        "broker",
    ),
    "a path that is gone for one client of those that the broker closed": (
        {
            "device": {
                "disconnected_total": 100,
                "outcomes": {"path_timeout": 1, "closed_by_broker": 99},
            }
        },
        "broker",
    ),
    "a path that a fault cut": (
        {
            "device": {"disconnected_total": 9, "outcomes": {"path_timeout": 9}},
            "faults": [{}],
            "publish": {"populations": {"device": {"disconnected_total": 9}}},
        },
        "none",
    ),
    "packets above what the scenario lets its clients take": (
        {"device": {"disconnected_total": 50, "outcomes": {"packet_too_large": 50}}},
        "scenario",
    ),
    "a SUBSCRIBE without an answer": (
        {"device": {"disconnected_total": 50, "outcomes": {"subscribe_timeout": 50}}},
        "broker",
    ),
    "packets that the generator cannot write, beside losses": (
        {
            "device": {"connect_failed_total": 50, "outcomes": {"cannot_encode": 50}},
            "flow": LOST,
        },
        "generator",
    ),
    "bytes that a broker leaves unread on a busy host that starves it a little": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"run_delay": 0.3, "tcp_unread_bytes": 900_000}},
        },
        "broker",
    ),
    "bytes that a broker without a processor leaves unread": (
        {
            "flow": LOST,
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"run_delay": 0.8, "tcp_unread_bytes": 900_000}},
        },
        "host",
    ),
    "a threshold about nothing, beside a starved broker and agents": (
        {
            "thresholds": ["cloud.cpu < 100%"],
            "brokers": [MAIN],
            "monitors": {**BUSY, "main-0": {"run_delay": 0.8}},
            "fleet": {"starved_share": 0.8},
        },
        "unknown",
    ),
    "a publisher that drops on a busy host": (
        {"zeromq": {"lost": 3200}, "monitors": {**BUSY, "feed": {"cpu": 0.6}}},
        "publisher",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_has_its_culprit(measured: MeasuredMaker, name: str) -> None:
    changes, culprit = SITUATIONS[name]
    verdict = verdict_of(measured, {**changes})
    assert verdict.limited_by == culprit, verdict.evidence


def test_a_latency_that_is_missed_is_no_limit_of_the_host(measured: MeasuredMaker) -> None:
    read = {**BUSY, "broker-0": {"run_delay": 0.01}}
    missed = {"thresholds": ["backend.latency.p99 < 1ms"]}
    assert verdict_of(measured, {**missed, "monitors": read}).limited_by == "broker"
    assert verdict_of(measured, {**missed, "monitors": BUSY}).limited_by == "unknown"
    full = {**BUSY, "main-0": {"run_delay": 0.6}}
    starved = {**missed, "brokers": [MAIN], "monitors": full}
    assert verdict_of(measured, starved).limited_by == "host"


def test_an_agent_without_a_processor_is_evidence_of_late_readings(
    measured: MeasuredMaker,
) -> None:
    verdict = verdict_of(measured, {"fleet": {"starved_share": 0.4}})
    assert (verdict.status, verdict.limited_by) == ("pass", "none")
    assert any("no processor for 40 %" in fact for fact in verdict.evidence)
    missed = {"thresholds": ["backend.latency.p99 < 1ms"]}
    few = verdict_of(measured, {**missed, "fleet": {"starved_share": 0.4}})
    most = verdict_of(measured, {**missed, "fleet": {"starved_share": 0.7}})
    assert (few.limited_by, most.limited_by) == ("broker", "host")


def test_a_broker_out_of_files_may_keep_one_to_refuse_with(measured: MeasuredMaker) -> None:
    files = {"descriptors": 39, "descriptors_max": 40}
    out = {"device": UNREADY, "brokers": [MAIN], "monitors": {"main-0": files}}
    assert any("39 of at most 40" in fact for fact in verdict_of(measured, out).evidence)


SYMPTOM, STARVED, FILES = EvidenceKind.AT_BROKER, EvidenceKind.STARVED_AGENTS, EvidenceKind.NO_FILES


@pytest.mark.parametrize(
    ("evidence", "culprit"),
    [
        ([], "none"),
        ([STARVED(1.0), EvidenceKind.FULL_BROKER(1.0)], "none"),
        ([SYMPTOM()], "broker"),
        ([SYMPTOM(), STARVED(0.3)], "broker"),
        ([STARVED(0.6), SYMPTOM()], "host"),
        ([STARVED(1.0), FILES(1.0)], "broker"),
        ([STARVED(1.0), FILES(0.4)], "host"),
        ([EvidenceKind.WINDOW(0.4), STARVED(0.3), SYMPTOM()], "window"),
        ([EvidenceKind.WINDOW(0.2), STARVED(0.3), SYMPTOM()], "broker"),
        ([EvidenceKind.SLOW_READERS(0.91), EvidenceKind.DROPS(0.09), SYMPTOM(0.09)], "scenario"),
        ([EvidenceKind.UNEXPLAINED(), FILES(0.7)], "broker"),
        ([EvidenceKind.UNEXPLAINED(), STARVED(0.06)], "unknown"),
        ([EvidenceKind.STARVED_BROKER(0.56), EvidenceKind.ON_THE_PATH()], "network"),
    ],
)
def test_the_longest_reach_decides(evidence: list[Evidence], culprit: str) -> None:
    assert limit(evidence) == limit(reversed(evidence)) == culprit


def test_symptoms_name_what_carries_or_nothing() -> None:
    symptoms = {kind.culprit for kind in EvidenceKind if kind.directness is Directness.SYMPTOM}
    carriers = {LimitedBy.BROKER, LimitedBy.PUBLISHER}
    assert symptoms == {*carriers, LimitedBy.UNKNOWN}
    states = [
        kind for kind in EvidenceKind if kind.directness is Directness.SYMPTOM and kind.is_state
    ]
    assert states == [EvidenceKind.UNSEEN]


def test_a_share_of_the_time_explains_no_more_than_its_size(measured: MeasuredMaker) -> None:
    missing = Uncarried.of(run_of(measured, {"flow": {"lost_total": 360}}))
    assert missing.deliveries == pytest.approx(0.36)
    assert missing.of_time(0.117) == pytest.approx(0.325)
    assert missing.of_time(0.9) == 1.0
    assert missing.of_lost(36) == pytest.approx(0.1)
    unready = Uncarried.of(run_of(measured, {"device": {"ready_max": 0}}))
    assert (unready.of_time(0.9), unready.of_lost(0)) == (0.0, 0.0)
    assert Uncarried.of(measured()).of_time(0.25) == 0.25
