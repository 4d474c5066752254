"""Values of metric expressions in a stored result, or the reason for none."""

from __future__ import annotations

from typing import Any

import pytest

from pubstorm.contract.histogram import Histogram
from pubstorm.metrics.expressions import parse_expression, parse_threshold, percentiles_in
from pubstorm.result import (
    BrokerResult,
    HistogramPair,
    Latency,
    LatencyPair,
    Measured,
    MonitorProblem,
    ObserverTraffic,
    PhasePopulation,
    PhaseStatus,
    Rates,
    RunResult,
    ServiceResult,
    Statistics,
    Watched,
)
from pubstorm.result.figures import Found, Missing, evaluate
from pubstorm.result.figures.table import cells
from pubstorm.result.verdict import evaluate_run
from tests.kit.example_fleet import fleet_parts, fleet_stages
from tests.kit.example_zeromq import publisher
from tests.kit.measured import MeasuredMaker, flow, phase, watched


@pytest.fixture
def run(measured: MeasuredMaker) -> Measured:
    rated = {"device": PhasePopulation(acked_per_s=590, ack_latency_us=Latency(count=9, p99=77))}
    return measured(
        backend={"rates": {"acked_per_s": 5, "received_per_s": 100}, "lost_total": 3},
        phases=(phase(name="+500 device", populations=rated),),
        monitors=(
            watched("broker-0", "cpu", 0.5, 0.7, spans={"publish": 0.8}),
            watched("broker-1", "cpu", 0.9, 0.1),
            watched("broker-0", "rss_bytes", 5e6, 7e6),
            watched("broker-0", "$SYS/messages/dropped", 10, 30),
            watched("broker-0", "$SYS/bytes/sent", 1e6, 3e6),
            watched("backend", "received_per_s", 110, 90),
            watched("device", "received_per_s", 1, 2),
            watched("uplink", "connected", 1000, 997),
            watched("host", "cpu", 0.4),
            watched("host", "net_sent_bytes_per_s", 2e6),
            watched("idle", "cpu"),
            watched("node", 'up{job="a"}', 1),
        ),
        monitor_problems=(
            MonitorProblem(source="redis", at_s=1, text="connection refused"),
            MonitorProblem(source="edge-0", group="edge", at_s=1, text="not of this machine"),
        ),
    )


@pytest.mark.parametrize(
    ("expression", "value", "text"),
    [
        ("device.sent", 1000, "1\u202f000"),
        ("sent_total", 1000, "1\u202f000"),
        ("lost", 3, "3"),
        ("acked_per_s", 105, "105/s"),
        ("device.acked_per_s", 100, "100/s"),
        ("latency.p99", 9961.471, "9.96 ms"),
        ("ack_latency.p99", 200, "200 µs"),
        ("device.ack_latency.actual.p99", 150, "150 µs"),
        ("clients", 101, "101"),
        ("device.sent@publish", 1000, "1\u202f000"),
        ("acked_per_s@publish", 100, "100/s"),
        ("device.acked_per_s@+500 device", 590, "590/s"),
        ("device.ack_latency.p99@+500 device", 77, "77.0 µs"),
        ("broker-0.cpu", 0.6, "60 %"),
        ("broker-0.cpu.max", 0.7, "70 %"),
        ("broker.cpu", 0.6, "60 %"),
        ("broker.cpu.max", 0.9, "90 %"),
        ("broker.cpu@publish", 0.8, "80 %"),
        ("broker.rss", 6e6, "6.00 MB"),
        ("broker.rss_bytes.last", 7e6, "7.00 MB"),
        ("broker.$SYS/messages/dropped.increase", 20, "20"),
        ("broker.$SYS/messages/dropped.first", 10, "10"),
        ("host.net_sent", 2e6, "2.00 MB/s"),
        ('node.up{job="a"}.min', 1, "1"),
        ("broker.$SYS/messages/dropped.rate", 20, "20.0/s"),
        ("broker.$SYS/bytes/sent.rate", 2e6, "2.00 MB/s"),
        ("backend.received_per_s.last", 90, "90.0/s"),
        ("received_per_s.last", 92, "92.0/s"),
        ("uplink.connected.min", 997, "997"),
    ],
)
def test_an_expression_has_its_value(
    run: Measured, expression: str, value: float, text: str
) -> None:
    found = evaluate(run, parse_expression(expression))
    assert isinstance(found, Found), found
    assert found.value == pytest.approx(value)
    assert str(found) == text


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("device.latency.p99", "nothing was measured"),
        ("idle.cpu", "nothing was measured"),
        ("broker.cpu@connect", "nothing was measured"),
        ("backend.acked_per_s@+500 device", "nothing was measured"),
        ("device.ack_latency.actual.p99@+500 device", "nothing was measured"),
        ("device.lost@later", "later was not played"),
        ("redis.cpu", "redis is not watched: connection refused"),
        ("edge.cpu", "edge is not watched: not of this machine"),
        ("other.cpu", "other is not watched"),
        ("broker.threads", "broker shows no threads"),
        ("device.cpu", "populations have no metric cpu"),
    ],
)
def test_an_expression_without_a_value_says_why(
    run: Measured, expression: str, reason: str
) -> None:
    assert evaluate(run, parse_expression(expression)) == Missing(reason)


@pytest.mark.parametrize(
    ("steady_s", "metric", "found"),
    [
        (90, "1min.last", "which comes within 1 % of a load after 4:36, and the load lasted 1:30"),
        (275, "1min.last@publish", "and the load lasted 4:35"),
        (276, "1min.last", "5016"),
        (300, "1min.last@publish", "5016"),
        (300, "5min.last", "after 23:00, and the load lasted 5:00"),
    ],
)
def test_a_moving_average_has_no_value_before_it_has_settled(
    measured: MeasuredMaker, steady_s: float, metric: str, found: str
) -> None:
    readings = Statistics(count=5, last=5016)
    watched = tuple(
        Watched(
            source="broker-0",
            kind="broker",
            group="broker",
            metric=f"$SYS/load/messages/received/{minutes}min",
            whole=readings,
            load=readings,
            spans={"publish": readings},
        )
        for minutes in (1, 5)
    )
    connect, publish = measured().stages
    stages = (connect, publish.model_copy(update={"steady_s": steady_s}))
    run = measured(monitors=watched, stages=stages, phases=())
    value = evaluate(run, parse_expression(f"broker.$SYS/load/messages/received/{metric}"))
    assert found in (value.reason if isinstance(value, Missing) else f"{value.value:.0f}")
    assert not isinstance(value, Missing) or value.word == "not settled"


def test_a_stage_has_the_latencies_of_its_own(measured: MeasuredMaker) -> None:
    stages = measured().stages
    pair = LatencyPair(intended=Latency(count=1, p99=5), actual=Latency(count=1, p99=4))
    load = stages[1].populations["device"].model_copy(update={"ack_latency_us": pair})
    played = (stages[0], stages[1].model_copy(update={"populations": {"device": load}}))
    run = measured(stages=played)
    for clock, value in (("", 5), (".intended", 5), (".actual", 4)):
        expression = parse_expression(f"device.ack_latency{clock}.p99@publish")
        assert evaluate(run, expression) == Found(value, "us")


def test_the_name_of_a_stage_is_the_whole_stage_and_not_its_first_phase(
    measured: MeasuredMaker,
) -> None:
    # Only `recovery` reads phases by the name of their stage.
    rated = {"device": PhasePopulation(acked_per_s=590)}
    collapsed = {"status": PhaseStatus.COLLAPSED, "collapsed_at_s": 3, "recovered_after_s": 2}
    first = phase(name="publish", populations=rated, **collapsed)
    run = measured(phases=(first, phase(name="kill mq", populations=rated)))
    whole = evaluate(run, parse_expression("device.acked_per_s@publish"))
    assert isinstance(whole, Found) and whole.value != 590
    assert evaluate(run, parse_expression("device.acked_per_s@kill mq")) == Found(590, "per_s")
    assert evaluate(run, parse_expression("recovery@publish")) == Found(4, "s")


def test_a_threshold_over_a_monitor_is_evaluated_in_words(run: Measured) -> None:
    lines = ("broker.cpu < 80%", "broker.cpu.max < 0.8", "redis.cpu < 80%", "lost == 3")
    verdict = evaluate_run(run, [parse_threshold(line) for line in lines])
    assert [(t.passed, t.text) for t in verdict.thresholds] == [
        (True, "found 60 %"),
        (False, "found 90 %"),
        (False, "redis is not watched: connection refused"),
        (True, "found 3"),
    ]


def test_a_row_of_the_own_table_is_filled_from_the_result(run: Measured) -> None:
    result = RunResult.of(run, evaluate_run(run, []))
    columns = {
        "CPU": "broker.cpu",
        "lost": "lost",
        "result": "verdict",
        "why": "evidence",
        "limit": "limited_by",
        "took": "duration",
        "how": "command",
        "none": "redis.cpu",
        "step": "step",
        "words": "note",
        "clients": "populations.device.clients",
        "where": "target",
    }
    found = cells(columns, result)
    assert (found["CPU"].value, found["CPU"].unit) == (0.6, "share")
    assert (found["took"].value, found["took"].unit) == (10.9, "s")
    assert {heading: cell.text for heading, cell in found.items()} == {
        "CPU": "60 %",
        "lost": "3",
        "result": "pass",
        "why": "–",
        "limit": "none",
        "took": "10.9 s",
        "how": "–",
        "none": "–",
    }


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("node-0.bytes_per_connection", "9.87 kB"),
        ("node.bytes_per_connection", "9.87 kB"),
        ("host.bytes_per_connection", "host: memory did not grow with connections"),
        ("redis.bytes_per_connection", "redis is not watched"),
        ("balance", "124 %"),
        ("node.balance", "124 %"),
        ("boxes.balance", "no name has several targets that clients were connected to"),
        ("connects_per_s", "9\u202f876/s"),
        ("connects_per_s@connect", "9\u202f876/s"),
        ("disconnects_per_s@disconnect", "24\u202f999/s"),
        ("connected_after@publish", "99\u202f996"),
        ("peak_qos0_per_s", "26\u202f000/s"),
        ("peak_qos1_per_s", "nothing came with QoS 1"),
        ("took@disconnect", "4.0 s"),
        ("took@nowhere", "nowhere was not played"),
        ("received_per_s.max", "4\u202f012/s"),
        ("device.stalled", "3"),
    ],
)
def test_metrics_of_a_run_as_a_whole(measured: MeasuredMaker, expression: str, found: str) -> None:
    still = {"stalled_total": 3, "stalled": 1}
    run = measured(**fleet_parts(), device=still, stages=fleet_stages(measured()))
    value = evaluate(run, parse_expression(expression))
    assert (value.reason if isinstance(value, Missing) else str(value)) == found


def test_a_run_without_connect_stages_has_no_rate_of_connecting(measured: MeasuredMaker) -> None:
    found = evaluate(measured(stages=()), parse_expression("connects_per_s"))
    assert found == Missing("no connect stage was played")


def test_any_percentile_that_the_scenario_names_has_its_value(measured: MeasuredMaker) -> None:
    histogram = Histogram.of(range(1_000_000, 101_000_000, 1_000_000))
    shares = percentiles_in("device.latency.p95, p75: latency.p75, x.ack_latency.p99.99")
    pair = HistogramPair(intended=histogram, actual=histogram)
    run = measured(
        device={
            "ack_latency_us": pair.latency_us(shares=shares),
            "connect_time_us": Latency.of(histogram, shares=shares),
        }
    )
    for name, expected in (("p75", 75), ("p95", 95), ("p99.99", 100)):
        for metric in ("ack_latency", "ack_latency.actual", "connect_time"):
            found = evaluate(run, parse_expression(f"device.{metric}.{name}"))
            assert isinstance(found, Found)
            assert found.value == pytest.approx(1000 * expected, rel=1 / 64)
    stored = Measured.model_validate_json(run.model_dump_json())
    assert evaluate(stored, parse_expression("device.ack_latency.p95")) == evaluate(
        run, parse_expression("device.ack_latency.p95")
    )
    assert isinstance(evaluate(run, parse_expression("device.ack_latency.p42")), Missing)


def test_any_percentile_is_read_from_the_stored_histogram(measured: MeasuredMaker) -> None:
    """No scenario names them: the sum over the flows to a population and over its shares, the
    acknowledgements, and the other times. Without a subject it is the worst."""
    low, high = (Histogram.of(range(n * 10**6, 101 * n * 10**6, n * 10**6)) for n in (1, 3))
    pairs = [HistogramPair(intended=each, actual=each) for each in (low, high)]
    into = pairs[0].intended.plus(high)
    both = HistogramPair(intended=into, actual=into)
    time = {"connect_time_us": Latency.of(low), "time_histograms_ns": {"connect_time_us": low}}
    run = measured(
        device={"ack_latency_us": pairs[1].latency_us(), "ack_histogram_ns": pairs[1], **time},
        backend={"latency_us": both.latency_us()},
        flows=(
            flow(histogram_ns=pairs[0]),
            flow(source="other", to="backend/part", histogram_ns=pairs[1]),
            flow(to="device", histogram_ns=pairs[1]),
        ),
    )
    expected = {
        "backend.latency.p95": into.quantile_ns(0.95) / 1000,
        "latency.actual.p66.6": into.quantile_ns(0.666) / 1000,
        "ack_latency.p95": high.quantile_ns(0.95) / 1000,
        "device.connect_time.p37": low.quantile_ns(0.37) / 1000,
    }
    stored = Measured.model_validate_json(run.model_dump_json())
    for expression, value in expected.items():
        found = evaluate(stored, parse_expression(expression))
        assert isinstance(found, Found), expression
        assert found.value == value


def test_a_percentile_that_a_span_does_not_keep_says_what_to_do(run: Measured) -> None:
    found = evaluate(run, parse_expression("device.ack_latency.p95@+500 device"))
    assert isinstance(found, Missing)
    assert "the scenario must name it" in found.reason


def test_a_population_whose_messages_have_qos_0_has_no_acknowledgements(
    measured: MeasuredMaker,
) -> None:
    silent = {"acknowledged": False, "acked_total": 0, "rates": Rates(sent_per_s=100)}
    run = measured(device=silent, backend={"acknowledged": False})
    for asked in (
        "device.acked",
        "device.acked_per_s",
        "device.acked_per_s.max",
        "acked_per_s",
        "acked_per_s@publish",
    ):
        found = evaluate(run, parse_expression(asked))
        assert isinstance(found, Missing), asked
        assert found.reason == "messages of QoS 0 are not acknowledged"
    result = RunResult.of(run, evaluate_run(run, []))
    shown = cells({"acked/s": "acked_per_s", "sent/s": "device.sent_per_s"}, result)
    assert [cell.text for cell in shown.values()] == ["–", "100/s"]


def test_a_population_that_is_never_answered_has_no_messages_acknowledged(
    measured: MeasuredMaker,
) -> None:
    run = measured(device={"acked_total": 0, "rates": Rates(sent_per_s=100)})
    found = evaluate(run, parse_expression("device.acked_per_s"))
    assert isinstance(found, Found)
    assert found.value == 0


def server(name: str, host: str) -> BrokerResult:
    where: dict[str, Any] = {"host": host, "port": 1, "pid": 1, "died": False}
    return BrokerResult(name=name, group=name[:-2], kind="mosquitto", version="2", **where)


HOSTS = (
    watched("host", "cpu", 0.1),
    watched("host-10.0.0.2", "cpu", 0.2, 0.4),
    watched("host-10.0.0.3", "cpu", 0.5),
    watched("host-broker-0", "cpu", 0.6),
)
PLACED = (server("main-0", "10.0.0.2"), server("main-1", "10.0.0.3"), server("near-0", "10.0.0.1"))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("host.cpu", 0.1),
        ("main.host.cpu", 0.5),
        ("main-0.host.cpu", 0.3),
        ("main-0.host.cpu.max", 0.4),
        # Of a broker on the controller's host, by the address of that host in the cluster.
        ("near.host.cpu", 0.1),
        ("users.host.cpu", 0.5),
        ("feed.host.cpu", 0.3),
    ],
)
def test_the_host_of_a_server_that_the_run_placed_is_where_the_server_is(
    measured: MeasuredMaker, expression: str, value: float
) -> None:
    where: dict[str, Any] = {"port": 1, "pid": 1, "died": False}
    users = ServiceResult(name="users", kind="redis", version="7", host="10.0.0.3", **where)
    feed = publisher(name="feed", population="feed", host="10.0.0.2")
    found = evaluate(
        measured(monitors=HOSTS, brokers=PLACED, services=(users,), publishers=(feed,)),
        parse_expression(expression),
    )
    assert isinstance(found, Found), found
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("monitors", "expected"),
    [
        # Through `pubstorm monitor` on the host of a target.
        (HOSTS, 0.6),
        # A target on this machine.
        ((HOSTS[0], watched("broker-0", "cpu", 0.9)), 0.1),
        # A target elsewhere whose `$SYS` alone is read.
        ((HOSTS[0], watched("broker-0", "$SYS/uptime", 9)), None),
    ],
)
def test_the_host_of_a_target_is_not_taken_for_the_controllers(
    measured: MeasuredMaker, monitors: tuple[Watched, ...], expected: float | None
) -> None:
    found = evaluate(measured(monitors=monitors), parse_expression("broker.host.cpu"))
    if expected is None:
        assert found == Missing("broker.host is not watched")
    else:
        assert isinstance(found, Found), found
        assert found.value == expected


def test_a_host_that_could_not_be_read_is_not_replaced_by_another(measured: MeasuredMaker) -> None:
    problem = MonitorProblem(source="host-10.0.0.2", at_s=1, text="no answer")
    run = measured(monitors=HOSTS[:1], brokers=PLACED[:1], monitor_problems=(problem,))
    found = evaluate(run, parse_expression("main.host.cpu"))
    assert found == Missing("main.host is not watched: no answer")


def observer(name: str, target: str) -> ObserverTraffic:
    received: dict[str, Any] = {"received_total": 1, "received_bytes": 1}
    return ObserverTraffic(name=name, target=target, topics=("$SYS/#",), **received)


SYS = "$SYS/clients/connected"


@pytest.mark.parametrize(
    ("subject", "value"),
    [("broker", 7), ("broker-0", 5), ("broker-1", 7), ("topics", 5), ("broker-2", None)],
)
def test_a_source_that_observes_a_target_has_its_own_counters_for_the_target(
    measured: MeasuredMaker, subject: str, value: float | None
) -> None:
    run = measured(
        targets=("one.example:1883", "mqtts://two.example:8883", "three:1883"),
        monitors=tuple(
            watched(name, SYS, count) for name, count in (("topics", 5), ("two", 7), ("far", 9))
        ),
        # The second is observed at another port of its host.
        observers=(
            observer("topics", "one.example:1883"),
            observer("two", "two.example:1883"),
            observer("far", "far.example:1883"),
        ),
    )
    found = evaluate(run, parse_expression(f"{subject}.{SYS}"))
    assert getattr(found, "value", None) == value


def test_two_targets_of_a_host_are_distinguished_by_their_ports(measured: MeasuredMaker) -> None:
    run = measured(
        targets=("one:1883", "one:1884"),
        monitors=(watched("topics", SYS, 5),),
        observers=(observer("topics", "one:1884"),),
    )
    assert isinstance(evaluate(run, parse_expression(f"broker-1.{SYS}")), Found)
    assert isinstance(evaluate(run, parse_expression(f"broker-0.{SYS}")), Missing)


@pytest.mark.parametrize(("subject", "value"), [("log", 5), ("log-1", None), ("log-0", 5)])
def test_a_source_that_observes_a_target_with_a_name_has_counters_of_the_name(
    measured: MeasuredMaker, subject: str, value: float | None
) -> None:
    run = measured(
        targets=("one:1883", "kafka://two:9092"),
        target_names=("mqtt-0", "log-0"),
        monitors=(watched("topics", SYS, 5),),
        observers=(observer("topics", "kafka://two:9092"),),
    )
    found = evaluate(run, parse_expression(f"{subject}.{SYS}"))
    assert getattr(found, "value", None) == value
    assert run.shown_targets == ("mqtt-0 (one:1883)", "log-0 (kafka://two:9092)")
