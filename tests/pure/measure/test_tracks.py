"""Readings in short, over the whole run and over named spans of it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract import Sample, Source, split_member
from pubstorm.fleet.programs import Assignment
from pubstorm.measure.recorder import Recorder
from pubstorm.measure.run_log import RunLog
from pubstorm.output import name_of
from pubstorm.play.directory import RunDirectory
from pubstorm.play.kept import kept_tracks
from pubstorm.quantities import SECOND_NS
from pubstorm.result import Statistics
from pubstorm.result.samples import (
    HEADER,
    SAMPLES_FILE,
    Keeper,
    Span,
    Tracks,
    csv_lines,
    read_samples,
    samples_in,
    watched,
)
from pubstorm.result.timeline.cells import growth
from pubstorm.result.timeline.lane import Edges
from tests.kit import made
from tests.kit.bounded import CONTROL


def readings(*values: float, source: str = "broker-0", metric: str = "cpu") -> Tracks:
    kept = Keeper()
    kept.take(
        Sample(made.source(source), metric, float(n), value) for n, value in enumerate(values)
    )
    return kept.tracks


def test_each_figure_is_reported_over_the_run_the_load_and_each_span() -> None:
    spans = (Span("connect", 0, 0.9), Span("publish", 1, 3), Span("leave", 3.5, 3.9))
    (found,) = watched(readings(1, 5, 3, 4, 0.5), spans, (Span("", 1, 2.5),))
    assert (found.source, found.group, found.metric) == ("broker-0", "broker", "cpu")
    whole, load = found.whole, found.load
    assert (whole.count, whole.first, whole.last) == (5, 1, 0.5)
    assert (whole.min, whole.mean, whole.max) == (0.5, 2.7, 5)
    assert (load.count, load.first, load.last, load.min, load.mean) == (2, 5, 3, 3, 4)
    assert found.spans["connect"].mean == 1
    publish = found.spans["publish"]
    assert (publish.count, publish.first, publish.last, publish.max) == (3, 5, 4, 5)
    assert found.spans["leave"] == Statistics()


def test_spans_of_one_name_are_taken_together() -> None:
    spans = (Span("publish", 0, 1), Span("publish", 3, 4))
    (found,) = watched(readings(1, 2, 100, 3, 4), spans, ())
    publish = found.spans["publish"]
    assert (publish.count, publish.first, publish.last, publish.mean) == (4, 1, 4, 2.5)
    assert publish.rate_per_s == 1, "what grew between them belongs to neither"


def test_a_count_that_falls_began_anew() -> None:
    (found,) = watched(readings(10, 16, 2, 5), (), ())
    assert found.whole.rate_per_s == pytest.approx((6 + 2 + 3) / 3, rel=1e-5)
    (single,) = watched(readings(7), (), ())
    assert single.whole.rate_per_s is None, "one reading says nothing about growth"


def reported(interval_s: int, phase_s: float, duration_s: int, rate_per_s: float) -> Tracks:
    """A counter that grows evenly, read each second, of which the broker reports less often."""
    kept = Keeper()
    known = None
    for second in range(duration_s):
        last_s = phase_s + interval_s * ((second - phase_s) // interval_s)
        news = last_s != known and last_s >= 0
        at_s = last_s if news else float(second)
        value = rate_per_s * max(last_s, 0)
        kept.take([Sample(made.source("broker-0"), "$SYS/messages/sent", at_s, value, not news)])
        known = last_s
    return kept.tracks


@pytest.mark.parametrize(
    ("interval_s", "load_s"), [(1, 8), (2, 8), (1, 60), (2, 60), (5, 60), (11, 60), (11, 24)]
)
@pytest.mark.parametrize("phase_s", [0.0, 0.48, 0.99])
def test_a_rate_is_growth_between_distinct_readings(
    interval_s: int, load_s: int, phase_s: float
) -> None:
    kept = reported(interval_s, phase_s, 80, 62_255)
    (found,) = watched(kept, (), (Span("", 3, 3 + load_s),))
    assert found.load.rate_per_s == pytest.approx(62_255, rel=1e-5)
    assert found.load.count >= load_s, "what is repeated counts for the other statistics"


def test_a_rate_of_a_time_with_one_report_is_none() -> None:
    (found,) = watched(reported(11, 0.5, 40, 100), (), (Span("", 10, 16),))
    assert (found.load.count, found.load.rate_per_s) == (7, None)


def test_readings_of_one_instant_lose_no_growth() -> None:
    grown = growth([0.0, 1.0, 1.0, 2.0], [0.0, 5.0, 8.0, 10.0])
    assert [(each.from_s, each.to_s, each.amount) for each in grown] == [(0, 1, 8), (1, 2, 2)]
    assert grown[0].within(0.5, 3) == 4
    assert grown[0].within(1, 3) == 0


def test_without_load_the_whole_run_stands_for_it() -> None:
    (found,) = watched(readings(1, 2), (), ())
    assert found.load == found.whole


def test_figures_come_in_the_order_of_their_names() -> None:
    kept = Keeper()
    names = ("host", "cpu"), ("broker-1", "rss_bytes"), ("broker-1", "cpu")
    kept.take(Sample(made.source(name), metric, 0, 1) for name, metric in names)
    found = [(each.source, each.metric) for each in watched(kept.tracks, (), ())]
    assert found == [("broker-1", "cpu"), ("broker-1", "rss_bytes"), ("host", "cpu")]


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("broker-0", ("broker", 0)),
        ("main-eu-12", ("main-eu", 12)),
        ("host", ("host", None)),
        ("box-a", ("box-a", None)),
        ("-3", ("-3", None)),
    ],
)
def test_a_member_is_a_group_and_a_number(name: str, member: tuple[str, int | None]) -> None:
    assert split_member(name) == member


def test_stored_samples_have_the_groups_of_their_sources(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    recorder = Recorder(made.golden_plan(), Assignment(1), RunLog(0), directory)
    recorder.add_samples([Sample(Source("broker", "b-0", "b", 0), "cpu", 1.0, 0.5)])
    recorder.add_samples([Sample(Source.single("host", "host"), "cpu", 1.0, 0.5)])
    directory.close()
    found = [(each.kind, each.name, each.group, each.number) for each, _ in read_samples(tmp_path)]
    assert found == [("broker", "b-0", "b", 0), ("host", "host", "host", None)]


ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(names=st.lists(ANY_TEXT, max_size=5, unique_by=name_of))
def test_samples_are_read_back_by_any_reader_of_csv(names: list[str]) -> None:
    samples = [Sample(made.source("host"), name_of(name), 1.0, 0.5) for name in names]
    text = ",".join(HEADER) + "\n" + "".join(csv_lines(samples))
    assert not CONTROL.search(text)
    _, *rows = csv.reader(io.StringIO(text, newline=""))
    assert [row[3] for row in rows] == [each.metric for each in samples]
    assert [*samples_in(io.StringIO(text, newline=""), {})] == samples


def test_a_stray_quote_costs_its_row_only(tmp_path: Path) -> None:
    rows = [f"{n}.0,host,host,{name},{n}," for n, name in enumerate(('"cpu', 'a"b', "cpu", "cpu"))]
    text = "\n".join((",".join(HEADER), *rows)) + "\n"
    (tmp_path / SAMPLES_FILE).write_text(text)
    found = {metric: [*track.values] for (_, metric), track in read_samples(tmp_path).items()}
    assert found == {'a"b': [1], "cpu": [2, 3]}


def test_a_run_whose_controller_was_killed_keeps_the_samples_of_its_monitors(
    tmp_path: Path,
) -> None:
    samples = [
        Sample(made.source("host"), "cpu", 1.0, 0.5),
        Sample(made.source("broker-0"), "$SYS/messages/dropped", 1.0, 7),
        Sample(made.source("agent-0"), "rss_bytes", 1.0, 9),
        Sample(made.source("device"), "sent_per_s", 1.0, 100),
        Sample(made.source("device"), "latency_p50_us", 1.0, 3),
    ]
    file = tmp_path / SAMPLES_FILE
    file.write_text(",".join(HEADER) + "\n" + "".join(csv_lines(samples)))
    found = {source.name: metric for source, metric in kept_tracks(tmp_path, Keeper())}
    assert found == {
        "host": "cpu",
        "broker-0": "$SYS/messages/dropped",
        "agent-0": "rss_bytes",
        "device": "sent_per_s",
    }
    assert kept_tracks(tmp_path / "missing", Keeper()) == {}


def test_readings_of_two_stages_are_kept_apart_where_a_killed_run_has_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubstorm.result.samples.READINGS_MAX", 100)
    monkeypatch.setattr("pubstorm.result.samples.OWN_MIN", 10)
    readings = [Sample(made.source("host"), "cpu", float(at_s), 0.5) for at_s in range(600)]
    text = ",".join(HEADER) + "\n" + "".join(csv_lines(readings))
    (tmp_path / SAMPLES_FILE).write_text(text)
    edges = Edges(0)
    edges.add(90 * SECOND_NS)
    (track,) = kept_tracks(tmp_path, Keeper(edges)).values()
    assert track.count == 600
    spans = [(cell.at_s[0], cell.at_s[-1]) for cell in track.cells()]
    assert len(spans) > 2
    assert not [span for span in spans if span[0] < 90 <= span[1]]
