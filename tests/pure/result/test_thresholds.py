"""Thresholds: the line, its metric and its value in the metric's unit."""

import pytest

from pubstorm.metrics.expressions import (
    Expression,
    Operator,
    check_population_metric,
    check_reading,
    parse_expression,
    parse_threshold,
    percentiles_in,
)
from pubstorm.quantities import UnfitError


@pytest.mark.parametrize(
    ("line", "expression", "op", "value"),
    [
        ("device.lost == 0", ("device", "lost"), "==", 0),
        ("device.lost_total==0", ("device", "lost_total"), "==", 0),
        ("device.connected >= 10k", ("device", "connected"), ">=", 10_000),
        ("device.latency.p99 < 100ms", ("device", "latency", "p99"), "<", 100_000),
        ("device.latency.actual.p50<1ms", ("device", "latency.actual", "p50"), "<", 1_000),
        ("device.ack_latency.max <= 2s", ("device", "ack_latency", "max"), "<=", 2_000_000),
        ("device.connect_time.p999 != 5us", ("device", "connect_time", "p999"), "!=", 5),
        ("device.latency.p95 < 1ms", ("device", "latency", "p95"), "<", 1000),
        ("ack_latency.p99.99 < 1ms", (None, "ack_latency", "p99.99"), "<", 1000),
        ("a.latency.actual.p99.9@s < 1ms", ("a", "latency.actual", "p99.9", "s"), "<", 1000),
        ("feed.lateness.p75 < 1ms", ("feed", "lateness", "p75"), "<", 1000),
        ("lost == 0", (None, "lost"), "==", 0),
        ("latency.p99 < 100ms", (None, "latency", "p99"), "<", 100_000),
        (
            "device.acked_per_s@steady >= 490/s",
            ("device", "acked_per_s", None, "steady"),
            ">=",
            490,
        ),
        ("device.acked_per_s >= 490", ("device", "acked_per_s"), ">=", 490),
        ("broker.cpu < 80%", ("broker", "cpu"), "<", 0.8),
        ("broker-0.cpu.max < 0.8", ("broker-0", "cpu", "max"), "<", 0.8),
        ("broker.rss < 500MB", ("broker", "rss"), "<", 500e6),
        ("broker.rss_bytes@a=b > 1kB", ("broker", "rss_bytes", None, "a=b"), ">", 1000),
        ("host.net_sent < 10MB/s", ("host", "net_sent"), "<", 10e6),
        ("agent.lateness_p99.max < 1ms", ("agent", "lateness_p99", "max"), "<", 1000),
        (
            "broker.$SYS/messages/dropped.increase == 0",
            ("broker", "$SYS/messages/dropped", "increase"),
            "==",
            0,
        ),
        ("node.up{job=\"a.max\",x='@'} == 1", ("node", "up{job=\"a.max\",x='@'}"), "==", 1),
        ('node.heap{a=">="}.last@load < 5MB', ("node", 'heap{a=">="}', "last", "load"), "<", 5e6),
        ("node.duration_s.max < 100ms", ("node", "duration_s", "max"), "<", 0.1),
        ("node.share.max < 50%", ("node", "share", "max"), "<", 0.5),
    ],
)
def test_a_line_is_a_metric_and_a_value_in_its_unit(
    line: str, expression: tuple[str, ...], op: Operator, value: float
) -> None:
    threshold = parse_threshold(line)
    assert threshold.expression == Expression(*expression)
    assert threshold.op == op
    assert threshold.value == pytest.approx(value)
    assert threshold.source == line


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("lots == 0", "lost"),
        ("device.latency < 1s", "latency.p99"),
        ("latency.p100 < 1s", "latency.p99"),
        ("ack_latency.p0 < 1s", "ack_latency.p99"),
        ("device.sent.p95 < 1s", None),
        ("device.lost.max == 0", None),
        ("device.latency.p99 < 100", "write 100s or 100ms"),
        ("device.latency.p99 < soon", "a unit"),
        ("device.lost = 0", None),
        ("device.lost == 5ms", None),
        ("broker.cpu < 80ms", None),
        ("broker.rss < 500", "500MB"),
        ("device.acked_per_s > 5ms", None),
        ("host.net_sent < 10MB", None),
        ("node.anything < soon", None),
        ("device.lost@ == 0", "for example"),
        ("device.lost ==", "for example"),
        ("== 0", "for example"),
        ("", "for example"),
    ],
)
def test_a_wrong_line_is_explained(line: str, hint: str | None) -> None:
    with pytest.raises(UnfitError) as caught:
        parse_threshold(line)
    assert (hint is None) == (caught.value.hint is None), caught.value.hint
    assert hint is None or hint in str(caught.value.hint)


def test_a_wrong_percentile_names_what_is_allowed() -> None:
    allowed = r"allowed are latency\.mean, .* and any percentile between p0 and p100 such as \.p95"
    with pytest.raises(UnfitError, match=allowed):
        parse_threshold("latency.p123 < 1s")
    with pytest.raises(UnfitError, match=allowed):
        check_population_metric(parse_expression("device.latency.p123"))
    with pytest.raises(UnfitError, match=r"allowed are mean, min, max"):
        check_reading(parse_expression("broker.cpu.p95"), ("cpu",))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("thresholds: [device.latency.p95 < 1s, ack_latency.p99.99@load < 1s]", ["p95", "p99.99"]),
        ("table: {p75: device.latency.p75}\n# with --set table.a=lateness.p5", ["p75", "p5"]),
        ("latency.p99, latency.p999, cpu.p100, up.p1x, a.p50.5.1", ["p99"]),
        ("", []),
    ],
)
def test_percentiles_of_a_scenario_are_found_in_its_text(text: str, names: list[str]) -> None:
    found = percentiles_in(text)
    assert list(found) == names
    assert all(share == pytest.approx(float(name[1:]) / 100) for name, share in found.items())
