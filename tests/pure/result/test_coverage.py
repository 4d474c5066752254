"""Readings that are missing: a figure over a span needs enough of those that were due."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pubstorm.contract import Sample, Source
from pubstorm.measure.faults import absences
from pubstorm.metrics.expressions import parse_expression, parse_threshold
from pubstorm.result import FaultResult, LimitedBy, RunResult, Status, Watched
from pubstorm.result.figures import Found, Missing, evaluate
from pubstorm.result.figures.table import cells
from pubstorm.result.samples import ANY, Keeper, Schedule, Span, Tracks, watched
from pubstorm.result.verdict import evaluate_run
from tests.kit.measured import MeasuredMaker

LOAD = Span("publish", 0.7, 14.7)
X = Source.single("endpoint", "x")
BROKER = Source.member("broker", "broker", 0)
EACH_SECOND = [float(n) for n in range(1, 16)]


def tracks_of(**instants: Iterable[float]) -> Tracks:
    """Readings of some metrics of one endpoint."""
    return tracks(X, instants)


def tracks(source: Source, instants: dict[str, Iterable[float]]) -> Tracks:
    kept = Keeper()
    for metric, at_s in instants.items():
        kept.take(Sample(source, metric, each, 5.0) for each in at_s)
    return kept.tracks


def summed(found: Tracks, **changes: object) -> tuple[Watched, ...]:
    values = {"until_s": 15.2, "interval_s": 1.0, **changes}
    return watched(found, (LOAD,), (LOAD,), Schedule(**values))  # type: ignore[arg-type]


def unread(found: Tracks, metric: str = "load", **changes: object) -> tuple[float, bool]:
    (one,) = (each for each in summed(found, **changes) if each.metric == metric)
    assert one.spans["publish"] == one.load
    return one.load.unread_s, one.load.is_enough


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        (EACH_SECOND, (0, True)),
        ([each + 0.6 * (n % 2) for n, each in enumerate(EACH_SECOND)], (0, True)),
        ([each for each in EACH_SECOND if each != 7], (0, True)),
        ([each for each in EACH_SECOND if each not in {7, 8}], (2, False)),
        ([each for each in EACH_SECOND if each % 2], (7, False)),
        ([1.0, 2, 3, 4, 5], (9.7, False)),
        ([11.0, 12, 13, 14, 15], (9.3, False)),
        ([0.1], (14, False)),
    ],
    ids=["all", "late", "one", "two", "each second one", "dies", "comes late", "never in it"],
)
def test_a_figure_needs_nine_of_ten_readings_due(
    instants: list[float], expected: tuple[float, bool]
) -> None:
    assert unread(tracks_of(load=instants)) == expected


def test_a_short_span_needs_a_reading_at_each_barrier() -> None:
    spans = (Span("connect", 3.2, 3.9),)
    (whole,) = watched(tracks_of(load=EACH_SECOND), spans, (), Schedule(15.2, 1.0))
    assert whole.spans["connect"].is_enough
    (silent,) = watched(tracks_of(load=[1.0, 2, 9, 10]), spans, (), Schedule(10.2, 1.0))
    assert silent.spans["connect"].unread_s == 0, "less than two readings"
    assert silent.whole.unread_s == 6


def test_a_metric_that_begins_later_counts_as_read_where_its_source_was() -> None:
    assert unread(tracks_of(up=EACH_SECOND, load=EACH_SECOND[9:])) == (0, True)
    assert unread(tracks_of(up=EACH_SECOND, load=EACH_SECOND[:5])) == (9.7, False)
    assert unread(tracks_of(up=EACH_SECOND, load=[10.5, 11, 12, 13, 14, 15]))[1] is False


def test_a_source_that_is_read_less_often_has_its_own_interval() -> None:
    boxes = tracks(Source.single("broker", "boxes"), {"load": [5.0, 10.0, 15.0]})
    assert unread(boxes, longer_s={"boxes": 5.0}) == (0, True)
    assert unread(boxes)[1] is False


def test_a_broker_that_reports_less_often_is_read_at_its_own_interval() -> None:
    kept = Keeper()
    for at_s in range(10, 300, 60):
        kept.take([Sample(BROKER, "$SYS/uptime", float(at_s), 1.0)])
        kept.take(Sample(BROKER, "$SYS/uptime", at_s + n, 1.0, held=True) for n in range(1, 16))
    found = kept.tracks
    load = Span("publish", 60, 290)
    (one,) = watched(found, (), (load,), Schedule(295, 1.0))
    assert one.load.is_enough
    (one,) = watched(found, (), (Span("publish", 60, 595),), Schedule(600, 1.0))
    assert not one.load.is_enough, "it fell silent after 265 s"


def fault(**changes: object) -> FaultResult:
    values: dict[str, object] = {
        "stage": "publish",
        "name": "kill broker",
        "kind": "kill",
        "victims": ("broker-0",),
        "at_s": 4.0,
        "repaired_at_s": 8.0,
    }
    return FaultResult.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("changes", "enough"),
    [
        ({}, True),
        ({"victims": ("broker-1",)}, False),
        ({"victims": (), "kind": "command", "command": "systemctl stop x"}, True),
        ({"repaired_at_s": None}, True),
        ({"at_s": 6.5}, False),
    ],
)
def test_the_absence_of_what_a_fault_breaks_is_planned(
    changes: dict[str, object], enough: bool
) -> None:
    broken = tracks(BROKER, {"load": [1.0, 2, 3, 4, 10, 11, 12, 13, 14, 15]})
    assert not unread(broken)[1]
    planned = absences([fault(**changes)], 15.2)
    assert unread(broken, absences=planned)[1] is enough
    host = tracks(Source.host(), {"load": [1.0, 2, 3, 4]})
    assert not unread(host, absences={ANY: [Span("", 0, 15.2)]})[1], "no fault breaks the host"


def test_what_snapshots_bring_has_no_schedule() -> None:
    agent = Source.member("agent", "agent", 0)
    publisher = Source.single("publisher", "feed")
    assert unread(tracks(agent, {"cpu": [3.0]}), "cpu") == (0, True)
    found = tracks(publisher, {"lateness_p99_us": [3.0], "cpu": [3.0]})
    assert unread(found, "lateness_p99_us") == (0, True)
    assert not unread(found, "cpu")[1]


def test_a_threshold_on_a_source_that_fell_silent_is_not_met(measured: MeasuredMaker) -> None:
    silent = measured(monitors=summed(tracks_of(load=[1.0, 2, 3, 4, 5])))
    for asked in ("x.load.max", "x.load@publish", "x.load.increase"):
        found = evaluate(silent, parse_expression(asked))
        assert found == Missing("x.load was not read for 9.7 s of 14.0 s", "not read")
    verdict = evaluate_run(silent, [parse_threshold("x.load.max < 100")])
    assert (verdict.status, verdict.thresholds[0].missed) == (Status.FAIL, True)
    read = measured(monitors=summed(tracks_of(load=EACH_SECOND)))
    assert evaluate(read, parse_expression("x.load.max")) == Found(5, "")
    assert evaluate_run(read, [parse_threshold("x.load.max < 100")]).status is Status.PASS


def test_a_source_that_fell_silent_is_evidence(measured: MeasuredMaker) -> None:
    whole = summed(tracks(BROKER, {"rss_bytes": [1.0, 2, 3, 4, 5], "threads": [1.0, 2, 3, 4, 5]}))
    part = summed(tracks_of(up=EACH_SECOND, load=[1.0, 2, 3]))
    verdict = evaluate_run(measured(monitors=(*whole, *part)), [])
    assert "broker-0 was not read for 9.7 s of 14.0 s under load" in verdict.evidence
    assert "x was not read for 11.7 s of 14.0 s under load: load" in verdict.evidence
    assert (verdict.status, verdict.limited_by) == (Status.PASS, LimitedBy.NONE), "all was carried"
    read = measured(monitors=summed(tracks(BROKER, {"rss_bytes": EACH_SECOND})))
    assert not any("not read" in fact for fact in evaluate_run(read, []).evidence)


def test_a_cell_of_a_table_says_that_its_figure_was_not_read(measured: MeasuredMaker) -> None:
    silent = measured(monitors=summed(tracks_of(load=[1.0, 2, 3, 4, 5])))
    result = RunResult.of(silent, evaluate_run(silent, []))
    assert cells({"load": "x.load.max"}, result)["load"].word == "not read"


def test_statistics_that_are_whole_are_stored_as_before() -> None:
    (read,) = summed(tracks_of(load=EACH_SECOND))
    (silent,) = summed(tracks_of(load=EACH_SECOND[:5]))
    assert {"unread_s", "span_s"}.isdisjoint(read.load.model_dump())
    assert Watched.model_validate_json(silent.model_dump_json()) == silent
