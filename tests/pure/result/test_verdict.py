"""Status, limiting component and evidence of a run."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.contract.snapshot import Reason
from pubstorm.result import (
    BridgeResult,
    BrokerResult,
    Event,
    Latency,
    LatencyPair,
    Measured,
    Phase,
    PhaseStatus,
    ServiceResult,
    StalledSubscriber,
    Statistics,
    TargetResult,
    Verdict,
    Watched,
)
from pubstorm.result.figures.thresholds import parse_threshold
from pubstorm.result.verdict import evaluate_run, evaluate_threshold
from tests.kit.measured import MeasuredMaker

UPLINK = BridgeResult(name="uplink", main="cloud", small="boxes", bridges=9, up=9, up_after_s=1.0)


def evaluated(measured: Measured, *thresholds: str) -> Verdict:
    return evaluate_run(measured, [parse_threshold(line) for line in thresholds])


def summary(verdict: Verdict) -> tuple[str, str]:
    return str(verdict.status), str(verdict.limited_by)


@pytest.mark.parametrize(
    "reason",
    [
        "certificate_expired",
        "certificate_untrusted",
        "certificate_name",
        "tls_refused",
        "tls_failed",
        *(reason for reason in Reason if reason.startswith(("upgrade_", "http_"))),
        "wrong_accept_key",
        "no_subprotocol",
    ],
)
def test_every_reason_of_tls_and_websocket_says_what_to_look_at(
    measured: MeasuredMaker, reason: str
) -> None:
    failed = {"connect_failed_total": 3, "outcomes": {reason: 3}}
    evidence = evaluated(measured(device=failed)).evidence
    assert f"device: 3 of 100 connection attempts failed: 3 {reason.replace('_', ' ')}" in evidence
    assert any(line.startswith(f"{reason} (3 ×): ") for line in evidence)


def test_a_good_run_passes_without_a_limit(measured: MeasuredMaker) -> None:
    verdict = evaluated(measured(), "backend.lost == 0", "device.latency.p99 != 1s")
    assert summary(evaluated(measured(), "backend.lost == 0")) == ("pass", "none")
    assert evaluated(measured()).evidence == ()
    assert summary(verdict) == ("fail", "unknown")


@pytest.mark.parametrize(
    ("changes", "expected", "evidence"),
    [
        (
            {"fleet": {"lateness_us": Latency(count=1000, p99=20_000)}},
            ("invalid", "generator"),
            "the generator was late: p99 20.0 ms over 1\u202f000 messages",
        ),
        (
            {"fleet": {"busy_intervals_total": 2, "load_intervals_total": 10}},
            ("invalid", "generator"),
            "in 2 of 10 intervals under load",
        ),
        (
            {"device": {"skipped_total": 7}},
            ("invalid", "generator"),
            "7 of 1\u202f007 messages due were not sent, and nothing but the generator",
        ),
        (
            {"device": {"skipped_total": 7}, "fleet": {"blocked_us": Latency(count=5)}},
            ("pass", "none"),
            "their connection, socket or window did not take them",
        ),
        (
            {"device": {"outcomes": {"no_descriptors": 3}}},
            ("invalid", "host"),
            "3 attempts met the limit of open descriptors: raise it (ulimit -n)",
        ),
        (
            {"device": {"outcomes": {"no_ports": 1}}},
            ("invalid", "host"),
            "1 attempt met a lack of free source ports",
        ),
        (
            {
                "device": {
                    "connected_total": 0,
                    "connected_max": 0,
                    "connect_failed_total": 100,
                    "outcomes": {"connect_refused": 60, "connect_timeout": 40},
                },
                "backend": {"connected_total": 0},
            },
            ("invalid", "target"),
            "none of 101 connection attempts succeeded: 60 connect refused, 40 connect timeout",
        ),
        (
            {
                "device": {
                    "connected_total": 0,
                    "connect_failed_total": 100,
                    "outcomes": {"certificate_untrusted": 100},
                },
                "backend": {"connected_total": 0},
            },
            ("invalid", "target"),
            "certificate_untrusted (100 ×): no authority that the clients trust vouches for the "
            "broker's certificate: name its authority in tls.ca",
        ),
        (
            {"device": {"connect_failed_total": 3, "outcomes": {"tls_refused": 3}}},
            ("pass", "broker"),
            "tls_refused (3 ×): the broker ended the handshake: look whether it speaks TLS at this "
            "port, knows these identities",
        ),
        (
            {"flow": {"received_total": 990, "lost_total": 10}},
            ("pass", "broker"),
            "device → backend: 10 of 1\u202f000 deliveries were lost",
        ),
        (
            {"flow": {"duplicate_total": 3}},
            ("pass", "none"),
            "device → backend: 3 duplicates beside 1\u202f000 expected deliveries",
        ),
        (
            {"device": {"disconnected_total": 5, "outcomes": {"closed_by_broker": 5}}},
            ("pass", "broker"),
            "device: 5 of 100 connections were lost: 5 closed by broker",
        ),
        (
            {"device": {"connect_failed_total": 2, "outcomes": {"not_authorized": 2}}},
            ("pass", "broker"),
            "device: 2 of 100 connection attempts failed: 2 not authorized",
        ),
        (
            {"backend": {"subscribe_failed_total": 1}},
            ("pass", "broker"),
            "backend: 1 of 2 filters were refused",
        ),
        (
            {"fleet": {"blocked_us": Latency(count=100, p99=50_000)}},
            ("pass", "broker"),
            "100 of 1\u202f000 messages waited for window, socket or connection, p99 50.0 ms",
        ),
        (
            {
                "device": {
                    "closed_loop": True,
                    "closed_loop_window": 1,
                    "in_flight_max": 100,
                    "ack_latency_us": LatencyPair(actual=Latency(count=9, min=10, p50=90)),
                }
            },
            ("pass", "window"),
            "kept 100 of 100 places in its windows of 1 in use, and a round trip took 90.0 µs at "
            "p50, 10.0 µs at least: round trips were measured, not what the broker carries",
        ),
        (
            {
                "bridges": (UPLINK,),
                "device": {
                    "closed_loop": True,
                    "closed_loop_window": 1,
                    "in_flight_max": 100,
                    "ack_latency_us": LatencyPair(actual=Latency(count=9, min=10, p50=90)),
                },
            },
            ("pass", "window"),
            "not what the broker carries; they end at the broker of the publishers, before any "
            "bridge",
        ),
        (
            {
                "device": {
                    "closed_loop": True,
                    "closed_loop_window": 50,
                    "in_flight_max": 5000,
                    "ack_latency_us": LatencyPair(actual=Latency(count=9, min=10, p50=900)),
                }
            },
            ("pass", "broker"),
            "messages queued at the broker",
        ),
        (
            {"device": {"closed_loop": True}},
            ("pass", "broker"),
            "device: the closed loop sent what the sockets took",
        ),
        (
            {"backend": {"ready_max": 0, "lost_total": 9, "received_total": 991}},
            ("pass", "none"),
            "backend: never ready: 1 of 1 client; what was meant for them counts as lost",
        ),
        (
            {"events": (Event(at_s=3.25, kind="agent", text="agent 1 (pid 7) was killed"),)},
            ("invalid", "generator"),
            "at 3.2 s: agent 1 (pid 7) was killed",
        ),
        (
            {"events": (Event(at_s=3.0, kind="broker", text="broker a-0 (pid 7) exited"),)},
            ("fail", "broker"),
            "at 3.0 s: broker a-0 (pid 7) exited",
        ),
        (
            {"events": (Event(at_s=3.0, kind="interrupt", text="interrupted by SIGINT"),)},
            ("invalid", "unknown"),
            "interrupted by SIGINT",
        ),
        (
            {"device": {"skipped_total": 7, "abandoned_total": 20}},
            ("pass", "none"),
            "their connection, socket or window did not take them",
        ),
        (
            {"device": {"clients": 500, "asked_max": 110}},
            ("pass", "none"),
            "device: never ready: 10 of 110 clients",
        ),
        (
            {"fleet": {"unfollowed_total": 4}},
            ("pass", "none"),
            "4 deliveries were beyond the ledger's bound",
        ),
    ],
)
def test_each_fact_sets_status_limit_and_evidence(
    changes: dict[str, Any], expected: tuple[str, str], evidence: str, measured: MeasuredMaker
) -> None:
    verdict = evaluated(measured(**changes))
    assert summary(verdict) == expected
    assert any(evidence in fact for fact in verdict.evidence), verdict.evidence


def test_a_change_is_no_evidence_by_itself(measured: MeasuredMaker) -> None:
    events = (Event(at_s=3.0, kind="change", text="+500 device"),)
    assert evaluated(measured(events=events)).evidence == ()


def test_receivers_that_changed_are_reported_as_excluded(measured: MeasuredMaker) -> None:
    *before, publishing = measured().stages
    stages = (*before, publishing.model_copy(update={"excluded": ("device", "idle")}))
    verdict = evaluated(measured(stages=stages))
    received = publishing.populations["device"].received_total
    assert summary(verdict) == ("pass", "none")
    assert verdict.evidence == tuple(
        f"{name}: {count} deliveries in stage {publishing.name} were excluded from loss, because "
        "its clients joined or left meanwhile"
        for name, count in (("device", received), ("idle", 0))
    )


def test_a_run_of_nothing_is_evaluated_without_dividing_by_zero(measured: MeasuredMaker) -> None:
    empty = measured(populations={}, flows=(), stages=())
    idle = {"lateness_us": Latency(), "load_intervals_total": 0}
    for run in (empty, measured(fleet=idle), measured(stages=(), device={"sent_total": 0})):
        assert summary(evaluated(run)) == ("pass", "none")


def test_an_invalid_run_stays_invalid_whatever_its_thresholds_say(measured: MeasuredMaker) -> None:
    late = measured(fleet={"lateness_us": Latency(count=9, p99=1e6)})
    assert summary(evaluated(late, "backend.lost == 0")) == ("invalid", "generator")
    assert summary(evaluated(late, "backend.lost > 0")) == ("invalid", "generator")


def test_a_missed_latency_of_a_healthy_generator_is_the_brokers(measured: MeasuredMaker) -> None:
    verdict = evaluated(measured(), "backend.latency.p99 < 1ms")
    assert summary(verdict) == ("fail", "broker")
    assert verdict.thresholds[0].text == "found 9.96 ms"
    assert any("the generator kept up" in fact for fact in verdict.evidence)


def test_a_latency_that_was_never_measured_fulfils_nothing(measured: MeasuredMaker) -> None:
    outcome = evaluated(measured(), "device.latency.p99 < 100s").thresholds[0]
    assert (outcome.passed, outcome.found, outcome.text) == (
        False,
        None,
        "no delivery to device was expected: device subscribes to nothing",
    )


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        ("device.sent == 1k", True),
        ("device.sent_total != 1000", False),
        ("device.sent < 1000", False),
        ("device.sent <= 1000", True),
        ("device.sent > 1000", False),
        ("device.sent >= 1000", True),
        ("device.connected >= 100", True),
        ("backend.latency.max <= 10ms", True),
        ("backend.latency.actual.max < 9ms", False),
        ("device.ack_latency.p50 == 50us", True),
    ],
)
def test_conditions_mean_what_they_say(line: str, passed: bool, measured: MeasuredMaker) -> None:
    assert evaluate_threshold(measured(), parse_threshold(line)).passed is passed


def phase(status: PhaseStatus, **changes: Any) -> Phase:
    values: dict[str, Any] = {
        "stage": "publish",
        "name": "+1000",
        "start_s": 60,
        "duration_s": 90,
        "clients": 4000,
        "due_per_s": 667,
        "sent_per_s": 667,
        "acked_per_s": 650,
        "received_per_s": 650,
        "queue_growth_per_s": 17,
        "evidence": ("messages waiting grew by 17.0/s",),
        "status": status,
    }
    return Phase(**{**values, **changes})


@pytest.mark.parametrize(
    ("evaluated_phase", "expected", "evidence"),
    [
        (phase(PhaseStatus.HELD), ("pass", "none"), None),
        (
            phase(PhaseStatus.COLLAPSED, collapsed_at_s=70.5),
            ("fail", "broker"),
            "phase +1000 collapsed at 1:10: messages waiting grew by 17.0/s",
        ),
        (
            phase(PhaseStatus.COLLAPSED, collapsed_at_s=9.0, recovered_after_s=12.0, evidence=()),
            ("pass", "broker"),
            "phase +1000 collapsed at 9.0 s and recovered after 12.0 s",
        ),
        (
            phase(PhaseStatus.RECOVERED, recovered_after_s=14.0, evidence=()),
            ("pass", "none"),
            "phase +1000 recovered after 14.0 s",
        ),
        (
            phase(PhaseStatus.NEVER_RECOVERED, evidence=("much was waiting",)),
            ("fail", "broker"),
            "phase +1000 never recovered in 1:30: much was waiting",
        ),
        (
            phase(PhaseStatus.UNKNOWN, evidence=("the generator was late",)),
            ("pass", "none"),
            "phase +1000 says nothing about the target: the generator was late",
        ),
        (
            phase(PhaseStatus.UNKNOWN, starved=True, evidence=("the host was full",)),
            ("invalid", "host"),
            "phase +1000 says nothing about the target: the host was full: end other programs "
            "there, or use a host with more processors",
        ),
    ],
)
def test_a_load_that_was_not_carried_fails_the_run(
    evaluated_phase: Phase,
    expected: tuple[str, str],
    evidence: str | None,
    measured: MeasuredMaker,
) -> None:
    verdict = evaluated(measured(phases=(evaluated_phase,)))
    assert summary(verdict) == expected
    assert verdict.evidence == (() if evidence is None else (evidence,))


def test_phases_that_say_nothing_share_a_line(measured: MeasuredMaker) -> None:
    short = [
        phase(PhaseStatus.UNKNOWN, name=name, evidence=(f"{name} is too short",))
        for name in ("publish", "1.1 × publisher")
    ]
    verdict = evaluated(measured(phases=(*short, phase(PhaseStatus.HELD))))
    assert verdict.evidence == (
        "2 phases say nothing about the target (publish, 1.1 × publisher); of the first: "
        "publish is too short",
    )


def test_a_collapse_under_a_saturated_generator_is_not_the_brokers(
    measured: MeasuredMaker,
) -> None:
    late = {"lateness_us": Latency(count=1000, p99=20_000)}
    run = measured(phases=(phase(PhaseStatus.COLLAPSED),), fleet=late)
    assert summary(evaluated(run)) == ("invalid", "generator")


def watched(source: str, metric: str, value: float, first: float = 0, **spans: float) -> Watched:
    def of(mean: float) -> Statistics:
        return Statistics(count=9, first=first, last=mean, min=mean, mean=mean, max=mean)

    return Watched(
        source=source,
        group=source.rpartition("-")[0] or source,
        metric=metric,
        whole=of(value),
        load=of(value),
        spans={name: of(mean) for name, mean in spans.items()},
    )


@pytest.mark.parametrize(
    ("monitors", "limit", "evidence"),
    [
        ([watched("broker-0", "cpu", 0.94), watched("host", "cpu", 0.94)], "none", None),
        (
            [watched("broker-0", "cpu", 0.98), watched("broker-0", "threads", 1)],
            "broker",
            "broker-0 used 98 % of a core under load, and has one thread only",
        ),
        (
            [watched("broker-0", "cpu", 0.5, publish=0.97, hold=0.99)],
            "broker",
            "broker-0 used 97 % of a core in publish",
        ),
        ([watched("broker-0", "cpu", 1.5), watched("broker-0", "threads", 8)], "none", None),
        (
            [watched("broker-0", "cpu", 1.96), watched("broker-0", "threads", 8)],
            "broker",
            "broker-0 used 98 % of 2 cores under load",
        ),
        ([watched("agent-0", "cpu", 1)], "none", None),
        (
            [watched("host", "cpu", 0.97)],
            "host",
            "the host's processors were busy for 97 % of the time under load",
        ),
        (
            [watched("host", "cpu", 0.97), watched("broker-0", "cpu", 0.99)],
            "broker",
            "the host's processors were busy for 97 % of the time under load",
        ),
        (
            [watched("host", "cpu_steal", 0.2)],
            "host",
            "the hypervisor gave 20 % of the host's time to others under load",
        ),
        (
            [watched("host", "memory_available_bytes", 1e9)],
            "host",
            "the host had 1.00 GB of 24.0 GB memory left",
        ),
        (
            [watched("host", "tcp_listen_overflows", 12, first=5)],
            "none",
            "listeners of this host dropped 7 connection attempts, of all programs, while this run "
            "made 101: if the broker's listener did, raise net.core.somaxconn and the broker's "
            "backlog, or connect more slowly",
        ),
        # More than this run can have caused: other programs did it.
        ([watched("host", "tcp_listen_overflows", 15_090)], "none", None),
        (
            [watched("host", "tcp_retransmits", 3)],
            "none",
            "TCP of this host sent 3 segments again, of all programs, while clients of this run "
            "wrote and read 2\u202f000 packets",
        ),
        ([watched("host", "tcp_retransmits", 10_867)], "none", None),
        ([watched("host", "tcp_retransmits", 2)], "none", None),
        (
            [watched("host", "conntrack", 99), watched("host", "conntrack_max", 100)],
            "host",
            "the firewall followed 99 of at most 100 connections: raise "
            "net.netfilter.nf_conntrack_max",
        ),
    ],
)
def test_what_the_monitors_saw_at_its_limit_is_reported(
    monitors: list[Watched], limit: str, evidence: str | None, measured: MeasuredMaker
) -> None:
    run = measured(
        monitors=tuple(monitors),
        device={"packets_sent_total": 1000, "packets_received_total": 1000},
    )
    verdict = evaluated(run)
    assert summary(verdict) == ("pass", limit)
    assert (evidence in verdict.evidence) if evidence else not verdict.evidence


def test_a_missed_figure_of_a_broker_is_the_brokers(measured: MeasuredMaker) -> None:
    broker = BrokerResult(
        name="main-0", kind="mosquitto", version="2", host="h", port=1, pid=1, died=False
    )
    run = measured(brokers=(broker,), monitors=(watched("main-0", "cpu", 0.5),))
    for line in ("main.cpu < 40%", "main-0.cpu < 40%"):
        assert summary(evaluated(run, line)) == ("fail", "broker")
    assert summary(evaluated(run, "main.threads < 4")) == ("fail", "unknown")


def test_small_brokers_that_are_watched_together_are_the_hosts_limit(
    measured: MeasuredMaker,
) -> None:
    boxes = tuple(
        BrokerResult(
            name=f"boxes-{n}",
            group="boxes",
            kind="mosquitto",
            version="2",
            host="h",
            port=n,
            pid=n,
            died=False,
        )
        for n in range(9)
    )
    full = (watched("boxes", "cpu", 2), watched("boxes", "threads", 9), watched("host", "cpu", 1))
    assert summary(evaluated(measured(brokers=boxes, monitors=full))) == ("pass", "host")


def stalled(number: int, until_s: float | None = None, stage: str = "publish") -> StalledSubscriber:
    return StalledSubscriber(
        population="backend",
        number=number,
        stage=stage,
        since_s=2.0,
        until_s=until_s,
        lasted=until_s is None,
        due=34,
    )


def test_a_stall_for_good_is_the_brokers_and_named_with_its_time(measured: MeasuredMaker) -> None:
    run = measured(
        backend={"stalled_total": 9, "stalled": 8},
        stalls=(*map(stalled, range(17, 25)), stalled(4, 3.5)),
    )
    verdict = evaluated(run)
    assert summary(verdict) == ("pass", "broker")
    for_good, over = verdict.evidence
    assert for_good.startswith(
        "backend: 8 subscribers stalled and got nothing more before the stage ended: backend 17 "
        "(from 2.0 s on, 34 messages due), backend 18"
    )
    assert for_good.endswith("and 5 more")
    assert over == (
        "backend: 1 time a subscriber stalled and recovered: backend 4 (from 2.0 s to 3.5 s, "
        "34 messages due)"
    )


def test_a_stall_that_went_on_limits_nothing(measured: MeasuredMaker) -> None:
    run = measured(backend={"stalled_total": 1}, stalls=(stalled(4, 3.5),))
    assert summary(evaluated(run)) == ("pass", "none")


def test_a_target_beyond_its_part_is_evidence(measured: MeasuredMaker) -> None:
    def target(number: int, connected: int, share: float) -> TargetResult:
        return TargetResult(
            name=f"node-{number}",
            group="node",
            connected_max=connected,
            connected_total=connected,
            connect_failed_total=0,
            share=share,
            planned_share=0.5,
        )

    uneven = evaluated(measured(balance=(target(0, 56, 0.56), target(1, 44, 0.44))))
    assert summary(uneven) == ("pass", "none")
    assert uneven.evidence == (
        "node was not in balance: node-0 had 56 of 100 connections, 56 %; by the plan 50 %",
    )
    assert evaluated(measured(balance=(target(0, 54, 0.54), target(1, 46, 0.46)))).evidence == ()


def test_a_redis_is_at_its_limit_with_one_core(measured: MeasuredMaker) -> None:
    redis = ServiceResult(
        name="users", kind="redis", version="7", host="h", port=1, pid=1, died=False
    )
    monitors = (watched("users", "cpu", 0.98), watched("users", "threads", 5))
    verdict = evaluate_run(measured(services=(redis,), monitors=monitors), ())
    assert "users used 98 % of a core under load, and has one thread only" in verdict.evidence


def test_users_that_a_broker_does_not_know_are_a_matter_of_seeding(measured: MeasuredMaker) -> None:
    run = measured()
    device = run.populations["device"].model_copy(update={"outcomes": {"bad_credentials": 7}})
    populations = {**run.populations, "device": device}
    verdict = evaluate_run(run.model_copy(update={"populations": populations}), ())
    assert any("pubstorm seed TARGET SCENARIO --verify" in fact for fact in verdict.evidence)
