"""Parts of a percentile: means of the messages near it, in any case the whole together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubstorm.contract.histogram import CELL_BITS, DELAYS, Delays, Histogram, bucket_index, parts_ns
from pubstorm.result import RunDelay

MS = 10**6
QUICK, SLOW = (bucket_index(ms * MS) >> CELL_BITS for ms in (1, 100))
NOTHING = dict.fromkeys(DELAYS, 0.0)


@pytest.mark.parametrize(
    ("delays", "quantile", "expected_ms"),
    [
        pytest.param((), 0.5, {}, id="agents that report no delays"),
        pytest.param(
            ((SLOW, 80 * MS, 0, 0, 0),),
            0.5,
            {"rest": 1},
            id="delays of other messages do not count",
        ),
        pytest.param(
            ((SLOW, 80 * MS, 0, 0, 0),),
            0.995,
            {"generator": 80, "rest": 20},
            id="the slowest message by itself",
        ),
        pytest.param(
            ((QUICK, 0, 99 * MS // 2, 99 * MS // 4, 0),),
            0.5,
            {"window": 0.5, "socket": 0.25, "rest": 0.25},
            id="means of the messages near the median",
        ),
        pytest.param(
            ((SLOW, 300 * MS, 0, 0, 100 * MS),),
            0.995,
            {"generator": 75, "connection": 25, "rest": 0},
            id="delays beyond the latency, by a wrong clock",
        ),
    ],
)
def test_parts_of_a_percentile(
    delays: Delays, quantile: float, expected_ms: dict[str, float]
) -> None:
    histogram = Histogram.of([MS] * 99 + [100 * MS])
    found = parts_ns(delays, histogram, quantile)
    expected = {name: ms * MS for name, ms in expected_ms.items()}
    if expected:
        expected = {**NOTHING, **expected}
    assert found == pytest.approx(expected, rel=0.01, abs=1)


DURATIONS = st.lists(st.integers(0, 1 << 45), min_size=1, max_size=20)
SUMS = st.integers(0, 1 << 50)


@given(DURATIONS, st.lists(st.tuples(SUMS, SUMS, SUMS, SUMS), min_size=20, max_size=20))
def test_parts_and_rest_are_the_percentile(
    durations_ns: list[int], delays: list[tuple[int, int, int, int]]
) -> None:
    histogram = Histogram.of(durations_ns)
    cells = sorted({index >> CELL_BITS for index, _ in histogram.buckets})
    found: Delays = tuple((i, *each) for i, each in zip(cells, delays, strict=False))
    for quantile in (0.0, 0.5, 0.99, 1.0):
        parts = parts_ns(found, histogram, quantile)
        assert all(part >= 0 for part in parts.values())
        assert sum(parts.values()) == pytest.approx(histogram.quantile_ns(quantile))


def test_nothing_was_measured() -> None:
    assert parts_ns(((QUICK, 1, 0, 0, 0),), Histogram(), 0.5) == {}


@pytest.mark.parametrize(
    ("latency_ms", "most_ms"),
    [
        pytest.param(3, 3, id="a short latency may be all"),
        pytest.param(100, 20, id="two agents, and two intervals that it touches"),
        pytest.param(2_500, 40, id="and two that it fills"),
    ],
)
def test_most_time_without_a_processor_of_a_latency(latency_ms: int, most_ms: int) -> None:
    delay = RunDelay(longest_ns=5 * MS, interval_ns=1000 * MS)
    assert delay.most_ns(latency_ms * MS) == most_ms * MS
