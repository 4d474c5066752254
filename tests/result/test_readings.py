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
    assert found.whole == Statistics(count=5, first=1, last=0.5, min=0.5, mean=2.7, max=5)
    assert found.load == Statistics(count=2, first=5, last=3, min=3, mean=4, max=5)
    assert found.spans["connect"].mean == 1
    assert found.spans["publish"] == Statistics(count=3, first=5, last=4, min=3, mean=4, max=5)
    assert found.spans["leave"] == Statistics()


def test_spans_of_one_name_are_taken_together() -> None:
    spans = (Span("publish", 0, 1), Span("publish", 3, 4))
    (found,) = readings(1, 2, 100, 3, 4).watched(spans, ())
    assert found.spans["publish"] == Statistics(count=4, first=1, last=4, min=1, mean=2.5, max=4)


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
