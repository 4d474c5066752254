"""The figures that a run is remembered by."""

from __future__ import annotations

import pytest

from pubstorm.metrics.expressions import parse_threshold
from pubstorm.report.of_run import key_figures
from pubstorm.report.watched import broker_sources
from pubstorm.result import (
    Latency,
    Peak,
    Peaks,
    PublisherResult,
    Rates,
    RunResult,
    Status,
    ThresholdOutcome,
)
from tests.kit.example_run import Shape, write_run


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return write_run(tmp_path_factory.mktemp("run"), Shape(duration_s=20, carries=False))


def test_few_messages_and_connections_have_no_rate(result: RunResult) -> None:
    few = {"sent_total": 9, "acked_total": 1, "received_total": 0, "expected_total": 0}
    populations = {name: each.model_copy(update=few) for name, each in result.populations.items()}
    one = {"device-0": populations["device-0"]}
    stages = tuple(
        stage.model_copy(update={"connects_per_s": 66.7, "populations": one})
        for stage in result.stages
    )
    changes = {"populations": one, "stages": stages}
    found = {each.name: each for each in key_figures(result.model_copy(update=changes))}
    assert (found["messages sent"].value, found["messages sent"].note) == ("9", "in all")
    assert found["messages acked"].value == "1"
    assert "peak dispatch rate" not in found


def test_messages_outside_of_the_load_have_no_rate(result: RunResult) -> None:
    wills = {"sent_total": 0, "acked_total": 0, "received_total": 200, "rates": Rates()}
    watcher = result.populations["backend"].model_copy(update=wills)
    changes = {"populations": {"watcher": watcher}, "peaks": Peaks()}
    found = {each.name: each for each in key_figures(result.model_copy(update=changes))}
    assert (found["messages received"].value, found["messages received"].note) == ("200", "in all")


def test_messages_of_other_programs_are_a_figure(result: RunResult) -> None:
    nothing = dict.fromkeys(("sent_total", "acked_total", "received_total", "lost_total"), 0)
    others = {**nothing, "expected_total": 0, "rates": Rates(), "foreign_total": 3080}
    population = result.populations["backend"].model_copy(update=others)
    changes = {"populations": {"sub": population}, "peaks": Peaks()}
    found = key_figures(result.model_copy(update=changes))
    assert ("foreign messages", "3\u202f080") in [(f.name, f.value) for f in found[:6]]
    assert "foreign messages" not in [figure.name for figure in key_figures(result)]


def test_publishers_under_test_are_no_clients(result: RunResult) -> None:
    publisher = PublisherResult(
        name="feed",
        population="device-0",
        kind="libzmq",
        pid=1,
        address="127.0.0.1:5556",
        high_water_mark=1000,
    )
    found = {f.name: f for f in key_figures(result.model_copy(update={"publishers": (publisher,)}))}
    assert found["clients connected"].note == "of 1 planned"


def test_the_peak_dispatch_rate_names_the_peak_of_each_qos(result: RunResult) -> None:
    peak = Peak(value=30_000, at_s=9)
    by_qos = {"0": Peak(value=26_000, at_s=9), "1": Peak(value=4_000, at_s=8)}

    def note(found: dict[str, Peak]) -> str:
        peaks = Peaks(received_per_s=peak, received_by_qos=found)
        figures = key_figures(result.model_copy(update={"peaks": peaks}))
        return next(each.note for each in figures if each.name == "peak dispatch rate")

    parts = "; QoS 0 26\u202f000 /s, QoS 1 4\u202f000 /s at most"
    assert note(by_qos) == f"largest rate of an interval, at 9.0 s{parts}"
    assert note({"0": peak}) == "largest rate of an interval, at 9.0 s"


def outcome(expression: str, *, passed: bool) -> ThresholdOutcome:
    asked = parse_threshold(expression).expression
    return ThresholdOutcome(
        expression=expression,
        figure=str(asked),
        metric=asked.metric,
        found=1,
        passed=passed,
        text="found 1",
    )


def test_what_is_bad_comes_first_and_says_so(result: RunResult) -> None:
    thresholds = (
        outcome("device-0.ack_latency.p99 < 1s", passed=True),
        outcome("backend.latency.p99 < 1ms", passed=False),
        outcome("backend.latency.max < 1h", passed=True),
    )
    verdict = result.verdict.model_copy(update={"status": Status.FAIL, "thresholds": thresholds})
    figures = key_figures(result.model_copy(update={"verdict": verdict}))
    assert [(each.name, each.status) for each in figures[:2]] == [
        ("messages lost", Status.FAIL),
        ("delivery p99", Status.FAIL),
    ]
    names = [each.name for each in figures]
    assert names.index("messages sent") < names.index("generator busy")
    passed = next(each for each in figures if each.name == "acknowledgement p99")
    assert passed.status is Status.PASS
    assert {each.status for each in figures[2:] if each != passed} == {None}


def test_a_generator_that_is_late_is_marked(result: RunResult) -> None:
    late = result.fleet.lateness_us.model_copy(update={"p99": 10_001.0})
    fleet = result.fleet.model_copy(update={"lateness_us": late})
    found = {f.name: f.status for f in key_figures(result.model_copy(update={"fleet": fleet}))}
    assert found["generator late p99"] is Status.INVALID
    assert found["generator busy"] is None


def test_what_was_not_measured_is_left_out(result: RunResult) -> None:
    bare = result.model_copy(update={"populations": {}, "monitors": (), "brokers": ()})
    assert [figure.name for figure in key_figures(bare)] == [
        "clients connected",
        "generator late p99",
        "generator busy",
    ]


def test_a_broker_that_the_run_did_not_start_counts_where_it_is_watched(result: RunResult) -> None:
    assert broker_sources(result) == {"broker-0"}
    none_started = result.model_copy(update={"brokers": ()})
    assert broker_sources(none_started) == {"broker-0", "boxes", "redis"}


def test_brokers_that_are_watched_together_count_where_there_are_no_others(
    result: RunResult,
) -> None:
    boxes = tuple(broker for broker in result.brokers if broker.group == "boxes")
    assert broker_sources(result.model_copy(update={"brokers": boxes})) == {"boxes"}


def test_a_figure_of_a_source_that_fell_silent_says_so(result: RunResult) -> None:
    missing = {"unread_s": 9.7, "span_s": 14.0}
    monitors = tuple(
        each.model_copy(
            update={
                "whole": each.whole.model_copy(update=missing),
                "load": each.load.model_copy(update=missing),
            }
        )
        for each in result.monitors
    )
    silent = result.model_copy(update={"monitors": monitors})
    notes = [each.note for each in key_figures(silent) if each.name.startswith(("CPU", "memory"))]
    assert len(notes) == 2
    assert all(note.endswith("; not read for 9.7 s of 14.0 s") for note in notes)


@pytest.mark.parametrize(
    ("expression", "figure", "status"),
    [
        ("backend.latency.p99 < 50ms", "delivery p99", Status.PASS),
        ("latency.p99 < 50ms", "delivery p99", Status.PASS),
        ("backend.latency.p99@steady < 50ms", "delivery p99", None),
        ("backend.latency.p50 < 50ms", "delivery p99", None),
        ("device-0.latency.p99 < 50ms", "delivery p99", None),
        ("device-0.sent_per_s > 1", "messages sent", Status.PASS),
        ("device-0.sent_per_s.min > 1", "messages sent", None),
        ("device-0.sent_per_s@more > 1", "messages sent", None),
        ("broker-0.connected > 1", "clients connected", None),
    ],
)
def test_a_figure_is_good_for_its_own_span_and_statistic_only(
    expression: str, figure: str, status: Status | None, result: RunResult
) -> None:
    def status_in(verdict: Status) -> Status | None:
        changes = {"status": verdict, "thresholds": (outcome(expression, passed=True),)}
        changed = result.verdict.model_copy(update=changes)
        found = {f.name: f for f in key_figures(result.model_copy(update={"verdict": changed}))}
        return found[figure].status

    assert status_in(Status.PASS) is status
    assert status_in(Status.INVALID) is None, "its figures are no evidence"


def test_one_message_has_no_percentile(result: RunResult) -> None:
    backend = result.populations["backend"]
    one = Latency(count=1, mean=900, min=900, p50=900, p90=900, p99=900, p999=900, max=900)
    few = {
        "received_total": 1,
        "latency_us": backend.latency_us.model_copy(update={"intended": one}),
    }
    populations = {"backend": backend.model_copy(update=few)}
    fleet = result.fleet.model_copy(update={"lateness_us": one})
    changes = {"populations": populations, "fleet": fleet}
    found = {f.name: f for f in key_figures(result.model_copy(update=changes))}
    assert {"delivery max", "generator late max"} <= {*found}
    assert found["delivery max"].note == "largest of 1 message"
    assert not any("p99" in name for name in found)
