"""Readings that were merged: they take little room, and statistics of whole cells are those of all
readings."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract import Sample, Source
from pubstorm.result.samples import Keeper, Schedule, Span, Track, statistics, watched
from pubstorm.result.timeline.cells import FIELDS, POINTS_MAX, Merging
from pubstorm.result.timeline.lane import Edges

BROKER = Source.member("broker", "broker", 0)
EDGES_S = (0, 100, 4000)
GRID_S = 1.0
STEPS = st.sampled_from([0.5, 1.0, 1.0, 1.0, 2.0, 7.0, 40.0])
READING = st.tuples(STEPS, st.integers(0, 100), st.booleans())


def grid() -> Merging:
    edges = Edges(0)
    for at_s in EDGES_S:
        edges.add(at_s * 10**9)
    return Merging(edges, GRID_S)


def track_of(found: Sequence[tuple[float, int, bool]]) -> Track:
    track, at_s = Track(), 0.25
    for step_s, value, held in found:
        at_s += step_s
        track.add(at_s, value, held=held)
    return track


def aged(track: Track, *ages: tuple[int, int]) -> Track:
    found = Track()
    found._extend((array("d", track.at_s), track.values, track.held))
    for own_max, minutes_max in ages:
        found.age(own_max, minutes_max, grid())
    return found


@given(st.lists(READING, min_size=1, max_size=300), st.integers(0, 20), st.integers(0, 3))
def test_statistics_of_merged_readings_are_those_of_all(
    found: list[tuple[float, int, bool]], own_max: int, minutes_max: int
) -> None:
    track = track_of(found)
    small = aged(track, (own_max + 50, minutes_max + 2), (own_max, minutes_max))
    for from_s, to_s in [(0, 10**6), *zip(EDGES_S, (*EDGES_S[1:], 10**6), strict=True)]:
        whole = statistics([track.between(from_s, to_s - 0.001)])
        assert statistics([small.between(from_s, to_s - 0.001)]) == whole


@given(st.lists(STEPS, min_size=1, max_size=300), st.integers(0, 20), st.integers(0, 3))
def test_time_without_merged_readings_is_that_without_readings(
    steps: list[float], own_max: int, minutes_max: int
) -> None:
    track = track_of([(step_s, 5, False) for step_s in steps])
    small = aged(track, (own_max + 50, minutes_max + 2), (own_max, minutes_max))
    schedule = Schedule(track.at_s[-1] + 3, GRID_S)
    spans = [Span("first", 0, 100), Span("second", 100, 4000)]
    key = BROKER, "cpu"
    one, other = (watched({key: each}, spans, (), schedule)[0] for each in (track, small))
    assert one.whole == other.whole
    for name in one.spans:
        assert other.spans[name].unread_s == pytest.approx(one.spans[name].unread_s)


@given(st.lists(READING, min_size=1, max_size=300))
def test_readings_become_hours_at_once_or_by_minutes(
    found: list[tuple[float, int, bool]],
) -> None:
    track = track_of(found)
    at_once = list(aged(track, (0, 0)).cells())
    by_minutes = list(aged(track, (100, 9), (20, 5), (0, 0)).cells())
    assert at_once == by_minutes


def test_a_month_of_readings_is_bounded_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubstorm.result.samples.READINGS_MAX", 2000)
    monkeypatch.setattr("pubstorm.result.samples.TRACK_MINUTES_MAX", 300)
    monkeypatch.setattr("pubstorm.result.samples.OWN_MIN", 100)
    kept, hours = Keeper(), 12
    for second in range(hours * 3600):
        kept.take(Sample(BROKER, metric, float(second), second % 7) for metric in ("cpu", "rss"))
    for track in kept.tracks.values():
        own, cells = len(track.at_s) - track.merged, list(track.cells())
        assert 500 <= own <= 2000
        assert track.minutes == 150
        assert len(cells) <= track.minutes + hours
        assert track.merged <= POINTS_MAX * len(cells)
        assert track.count == hours * 3600
        assert len(track._cells) == FIELDS * len(cells)
        assert statistics([track]).max == 6
    (found, _) = watched(kept.tracks, (), (), Schedule(hours * 3600, 1.0))
    assert found.whole.is_enough and not found.whole.unread_s


def test_a_silence_of_an_old_hour_is_still_known() -> None:
    silent = [(1.0, 5, False)] * 600 + [(301.0, 5, False)] + [(1.0, 5, False)] * 2700
    small = aged(track_of(silent), (0, 0))
    assert len(list(small.cells())) == 3, "an edge, and an hour that begins"
    (found,) = watched({(BROKER, "cpu"): small}, (), (), Schedule(3601.25, 1.0))
    assert found.whole.unread_s == 300
