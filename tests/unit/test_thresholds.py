"""Thresholds: the line, and the place of its metric in the result."""

import pytest

from pubstorm.result import PopulationResult
from pubstorm.thresholds import METRICS, parse_threshold
from pubstorm.units import UnfitError


@pytest.mark.parametrize(
    ("line", "metric", "op", "value"),
    [
        ("device.lost == 0", ("lost_total",), "==", 0),
        ("device.lost_total==0", ("lost_total",), "==", 0),
        ("device.connected >= 10k", ("connected_max",), ">=", 10_000),
        ("device.latency.p99 < 100ms", ("latency_us", "intended", "p99"), "<", 100_000),
        ("device.latency.actual.p50<1ms", ("latency_us", "actual", "p50"), "<", 1_000),
        ("device.ack_latency.max <= 2s", ("ack_latency_us", "intended", "max"), "<=", 2_000_000),
        ("device.connect_time.p999 != 5us", ("connect_time_us", "p999"), "!=", 5),
    ],
)
def test_a_line_names_a_place_in_the_result(
    line: str, metric: tuple[str, ...], op: str, value: float
) -> None:
    threshold = parse_threshold(line)
    assert threshold.population == "device"
    assert (threshold.metric, threshold.op, threshold.value) == (metric, op, value)
    assert threshold.source == line


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("device.lots == 0", "lost"),
        ("device.latency.p98 < 1s", "latency.p9"),
        ("device.latency.p99 < 100", "write 100s"),
        ("device.lost = 0", None),
        ("device.lost == 5ms", None),
        ("lost == 0", "for example"),
        ("", "for example"),
    ],
)
def test_a_wrong_line_is_explained(line: str, hint: str | None) -> None:
    with pytest.raises(UnfitError) as caught:
        parse_threshold(line)
    assert (hint is None) == (caught.value.hint is None)
    assert hint is None or hint in str(caught.value.hint)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_in_the_result(name: str) -> None:
    found: object = PopulationResult(clients=1)
    for step in METRICS[name]:
        found = getattr(found, step)
    assert isinstance(found, (int, float))
