"""Readings in short, over the whole run and over named spans of it."""

from __future__ import annotations

import pytest

from pubstorm.readings import Readings, Span, group_of, statistics
from pubstorm.result import Statistics
from pubstorm.samples import Sample


def readings(*values: float, source: str = "broker-0", metric: str = "cpu") -> Readings:
    kept = Readings()
    kept.add(Sample(float(n), source, metric, value) for n, value in enumerate(values))
    return kept


def test_each_figure_is_told_over_the_run_the_load_and_each_span() -> None:
    spans = (Span("connect", 0, 0.9), Span("publish", 1, 3), Span("leave", 3.5, 3.9))
    (found,) = readings(1, 5, 3, 4, 0.5).watched(spans, (Span("", 1, 2.5),))
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
    (found,) = readings(1, 2, 100, 3, 4).watched(spans, ())
    publish = found.spans["publish"]
    assert (publish.count, publish.first, publish.last, publish.mean) == (4, 1, 4, 2.5)
    assert publish.rate_per_s == 1, "what grew between them belongs to neither"


def test_a_count_that_falls_began_anew() -> None:
    (found,) = readings(10, 16, 2, 5).watched((), ())
    assert found.whole.rate_per_s == pytest.approx((6 + 2 + 3) / 3, rel=1e-5)
    (single,) = readings(7).watched((), ())
    assert single.whole.rate_per_s == 0


def test_without_load_the_whole_run_stands_for_it() -> None:
    (found,) = readings(1, 2).watched((), ())
    assert found.load == found.whole


def test_figures_come_in_the_order_of_their_names() -> None:
    kept = readings(1, source="host")
    kept.add([Sample(0, "broker-1", "rss_bytes", 1), Sample(0, "broker-1", "cpu", 1)])
    found = [(each.source, each.metric) for each in kept.watched((), ())]
    assert found == [("broker-1", "cpu"), ("broker-1", "rss_bytes"), ("host", "cpu")]


@pytest.mark.parametrize(
    ("source", "group"),
    [("broker-0", "broker"), ("main-eu-12", "main-eu"), ("host", "host"), ("box-a", "box-a")],
)
def test_a_group_is_a_source_without_its_number(source: str, group: str) -> None:
    assert group_of(source) == group


def test_nothing_read_is_all_zeros() -> None:
    assert statistics([]) == Statistics()
