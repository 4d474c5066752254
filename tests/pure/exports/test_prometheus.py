"""The metrics for Prometheus: sums, names, and both forms of histograms."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import proto
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from pubstorm.contract import Sample
from pubstorm.exports import Event, FaultState, Samples
from pubstorm.exports.tally import METRICS, Tally
from pubstorm.web.metrics import (
    CONTENT_TYPE,
    MetricFamily,
    are_preferred,
)
from pubstorm.web.metrics import page as rendered
from pubstorm.web.process import FAMILIES
from tests.kit import made
from tests.kit.made_run import LATENCIES_NS, a_run, interval

TEXT_FIRST = (
    "application/openmetrics-text;version=1.0.0;q=0.6,application/vnd.google.protobuf;"
    "proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,*/*;q=0.2"
)
PROMETHEUS_2 = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited;"
    "q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2"
)
NATIVE = "application/openmetrics-text; version=2.0.0"


class Endpoint(Tally):
    """The sums of a controller, and the page that the other process makes of them."""

    def page(self, accept: str) -> tuple[str, bytes]:
        return rendered(FAMILIES.validate_json(FAMILIES.dump_json(self.families())), accept)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


def asked(endpoint: Endpoint, accept: str) -> tuple[str, bytes]:
    """The type and the content of the page in the format that a scraper asks for."""
    return endpoint.page(accept)


def page(endpoint: Endpoint, accept: str = "") -> str:
    return asked(endpoint, accept)[1].decode()


def value(text: str, name: str, **labels: str) -> float:
    found = [
        sample.value
        for family in plain(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return float(found[0])


def test_counters_are_sums_since_the_start_by_stage(endpoint: Endpoint) -> None:
    run = a_run()
    for second in range(3):
        endpoint.take(run, interval(second, stage=min(second, 1)))
    text = page(endpoint)
    of_device = {"population": "device", "qos": "1", "run": "20261123-s"}
    assert value(text, "pubstorm_sent_total", stage="connect", **of_device) == 100
    assert value(text, "pubstorm_sent_total", stage="publish", **of_device) == 200
    assert value(text, "pubstorm_sent_bytes_total", stage="publish", **of_device) == 10_000
    of_flow = {"population": "backend", "publisher": "device", "qos": "1", "stage": "publish"}
    assert value(text, "pubstorm_received_total", **of_flow) == 200
    assert value(text, "pubstorm_stage_active", stage="publish") == 1
    assert value(text, "pubstorm_agent_cpu_seconds_total", agent="0") == 0.75


def test_stages_of_one_name_have_one_series(endpoint: Endpoint) -> None:
    run = a_run()
    first, second = run.plan.stages[:2]
    stages = (first.model_copy(update={"name": second.name}), second, *run.plan.stages[2:])
    run = replace(run, plan=run.plan.model_copy(update={"stages": stages}))
    for number in range(3):
        endpoint.take(run, interval(number, stage=min(number, 1)))
    text = page(endpoint)
    of_stage = {"stage": second.name, "population": "device"}
    assert value(text, "pubstorm_sent_total", **of_stage) == 300
    of_flow = {"population": "backend", "publisher": "device", "stage": second.name}
    assert value(text, "pubstorm_received_total", **of_flow) == 300
    samples = [(s.name, *sorted(s.labels.items())) for f in plain(text) for s in f.samples]
    assert len(samples) == len(set(samples))


def test_states_are_sums_over_the_agents_that_still_report(endpoint: Endpoint) -> None:
    run = a_run()
    endpoint.take(run, interval(0, agent=0))
    endpoint.take(run, interval(0, agent=1))
    assert value(page(endpoint), "pubstorm_clients_connected", population="device") == 20
    endpoint.take(run, interval(9, agent=1))
    assert value(page(endpoint), "pubstorm_clients_connected", population="device") == 10


def test_classic_buckets_hold_the_latencies_in_seconds(endpoint: Endpoint) -> None:
    endpoint.take(a_run(), interval(0))
    text, name = page(endpoint), "pubstorm_latency_seconds"
    for bound, count in (("0.0005", 0), ("0.01", 10), ("0.05", 50), ("0.25", 100), ("+Inf", 100)):
        found = value(text, f"{name}_bucket", le=bound)
        assert found == pytest.approx(count, abs=1), bound  # a bucket of the engine is 0.8 % wide
    assert value(text, f"{name}_count") == 100
    assert value(text, f"{name}_sum") == pytest.approx(sum(LATENCIES_NS) / 1e9)


def test_native_histograms_hold_the_same_counts(endpoint: Endpoint) -> None:
    endpoint.take(a_run(), interval(0))
    text = page(endpoint, NATIVE)
    lines = [line for line in text.splitlines() if line.startswith("pubstorm_latency_seconds{")]
    (found,) = re.findall(
        r"\{count:(\d+).*schema:(-?\d+).*spans:\[(-?\d+):(\d+)\].*deltas:\[(.*)\]", lines[0]
    )
    count, schema, first, length = map(int, found[:4])
    counts, level = [], 0
    for delta in map(int, found[4].split(",")):
        level += delta
        counts.append(level)
    assert (sum(counts), len(counts)) == (count, length) == (100, length)
    # Bucket i of a schema ends at 2^(i / 2^schema) seconds.
    below = sum(n for place, n in enumerate(counts) if 2 ** ((first + place) / 2**schema) <= 0.05)
    width = 2 ** (1 / 2**schema)
    assert 50 / width - 1 <= below <= 50
    assert math.isclose(2 ** ((first + length - 1) / 2**schema), 0.1, rel_tol=width - 1)
    assert "count:" not in page(endpoint), "an older format has classic buckets alone"


def families(endpoint: Endpoint, accept: str) -> list[Any]:
    kind, content = asked(endpoint, accept)
    assert kind == CONTENT_TYPE
    stream = BytesIO(content)
    found: list[Any] = []
    while (message := proto.parse_length_prefixed(MetricFamily, stream)) is not None:
        found.append(message)
    return found


def test_the_protobuf_format_has_the_figures_of_the_text(endpoint: Endpoint) -> None:
    run = a_run()
    endpoint.take(run, interval(0))
    endpoint.take(run, Samples([Sample(made.source("broker"), "cpu", 1.0, 0.0)]))
    lines = {}
    for family in families(endpoint, PROMETHEUS_3):
        kind = {0: "counter", 1: "gauge", 4: "histogram"}[family.type]
        assert METRICS[family.name] == (kind, family.help)
        for metric in family.metric:
            labels = frozenset((label.name, label.value) for label in metric.label)
            assert metric.HasField(kind)
            if kind != "histogram":
                lines[family.name, labels] = getattr(metric, kind).value
                continue
            histogram = metric.histogram
            lines[f"{family.name}_count", labels] = histogram.sample_count
            lines[f"{family.name}_sum", labels] = histogram.sample_sum
            for bucket in histogram.bucket:
                bound = (
                    "le",
                    "+Inf" if bucket.upper_bound == math.inf else str(bucket.upper_bound),
                )
                lines[f"{family.name}_bucket", labels | {bound}] = bucket.cumulative_count
    text = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain(page(endpoint))
        for sample in family.samples
    }
    assert lines == text


def test_native_and_classic_buckets_of_a_histogram_hold_the_same_counts(
    endpoint: Endpoint,
) -> None:
    endpoint.take(a_run(), interval(0))
    named = {family.name: family for family in families(endpoint, CONTENT_TYPE)}
    family = named["pubstorm_latency_seconds"]
    histogram = family.metric[0].histogram
    (span,) = histogram.positive_span
    counts = [*accumulate(histogram.positive_delta)]
    assert (histogram.schema, histogram.zero_count, span.length) == (3, 0, len(counts))
    assert sum(counts) == histogram.sample_count == histogram.bucket[-1].cumulative_count == 100
    ends = [2 ** ((span.offset + place) / 2**3) for place in range(len(counts))]
    below = sum(count for end, count in zip(ends, counts, strict=True) if end <= 0.05)
    assert 50 / 2 ** (1 / 8) - 1 <= below <= 50


@pytest.mark.parametrize(
    ("accept", "is_chosen"),
    [
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        (TEXT_FIRST, False),
        (CONTENT_TYPE, True),
        (f"{CONTENT_TYPE};q=0", False),
        (f"{CONTENT_TYPE};q=much", False),
        (CONTENT_TYPE.replace("delimited", "text"), False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_scraper_gets_the_format_that_it_likes_most(accept: str, is_chosen: bool) -> None:
    assert are_preferred(accept) is is_chosen


def test_names_follow_the_conventions_and_each_format_is_read(endpoint: Endpoint) -> None:
    run = a_run()
    endpoint.take(run, interval(0))
    endpoint.take(run, Event(at_s=1, kind="fault", text="a fault"))
    endpoint.take(run, FaultState("cut", True))
    samples = [
        Sample(made.source("broker"), "cpu", 1.0, 0.5),
        Sample(made.source("device"), "ready", 1.0, 1),
    ]
    endpoint.take(run, Samples(samples))
    families = [*plain(page(endpoint))]
    newer = page(endpoint, "application/openmetrics-text; version=1.0.0")
    assert [*openmetrics(newer)]  # type: ignore[no-untyped-call]
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert METRICS[name][0] == family.type
        assert family.documentation
        assert not re.search(r"_(us|ms|ns|per_s|total_bytes|total_seconds)(_|$)", family.name)
    text = page(endpoint)
    assert value(text, "pubstorm_fault_active", fault="cut") == 1
    assert value(text, "pubstorm_events_total", kind="fault") == 1
    assert value(text, "pubstorm_monitor", source="broker", metric="cpu") == 0.5


def test_another_run_begins_at_zero(endpoint: Endpoint) -> None:
    endpoint.take(a_run("first"), interval(0))
    endpoint.take(a_run("second"), interval(0))
    text = page(endpoint)
    assert 'run="first"' not in text
    assert value(text, "pubstorm_sent_total", run="second", population="device") == 100


def test_the_end_of_a_run_leaves_sums_and_no_states(endpoint: Endpoint) -> None:
    endpoint.take(a_run(), interval(0))
    endpoint.end()
    text = page(endpoint)
    assert value(text, "pubstorm_sent_total", population="device") == 100
    assert "pubstorm_stage_active" not in text and "pubstorm_clients_connected" not in text


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=new", "text/plain; version=a.b", ";;q=,"]
)
def test_an_accept_header_that_makes_no_sense_gets_plain_text(
    accept: str, endpoint: Endpoint
) -> None:
    endpoint.take(a_run(), interval(0))
    assert value(page(endpoint, accept), "pubstorm_sent_total", population="device") == 100


def test_the_guide_lists_every_metric() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "exports.md"
    rows = re.findall(r"^\| `(pubstorm_\w+)` \| (\w+): ", page.read_text(encoding="utf-8"), re.M)
    assert dict(rows) == {name: kind for name, (kind, _) in METRICS.items()}
