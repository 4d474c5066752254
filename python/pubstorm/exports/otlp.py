"""Metrics for an OpenTelemetry collector, by OTLP over gRPC or HTTP: sums since the start, present
states, and exponential histograms."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from pubstorm.contract.histogram import Histogram
from pubstorm.errors import UsageError, extra_hint
from pubstorm.exports import Item, Run
from pubstorm.exports.tally import Family, Tally, exponential

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import export as sdk

PUSH_S = 5.0
"""Time between two pushes."""
TIMEOUT_S = 2.0
"""Longest time of a push with its retries."""
SCALE = 3
"""Buckets grow by 9 %."""


class Collector:
    """An OpenTelemetry collector, as an export. Its own thread waits for the network. Items that
    come meanwhile are added afterwards, so a push that fails loses no count."""

    def __init__(self, url: str) -> None:
        """Raises UsageError for a wrong URL, or without the extra `otlp`."""
        self.name = f"--otlp {url}"
        self.unit = ("push", "pushes")
        self.dropped = 0
        self.problem = ""
        self._tally = Tally()
        self._exporter = _exporter(url)
        self._pushed = time.monotonic()

    def take(self, run: Run, item: Item) -> None:
        """Adds an item to the sums."""
        if self._tally.run is not None and run is not self._tally.run:
            self._push()
        self._tally.take(run, item)

    def rest(self) -> None:
        """Pushes, if a push is due."""
        if time.monotonic() - self._pushed >= PUSH_S:
            self._push()

    def end(self) -> None:
        """Pushes the last figures."""
        self._push()
        self._tally.end()

    def close(self) -> None:
        """Ends the connection."""
        self._exporter.shutdown(timeout_millis=0)

    def _push(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        run, families = self._tally.run, self._tally.families()
        if run is not None and families:
            data = _data(run, families)
            result = self._exporter.export(data, timeout_millis=TIMEOUT_S * 1000)
            if result is not MetricExportResult.SUCCESS:
                self.dropped += 1
                self.problem = "the collector did not take them"
        self._pushed = time.monotonic()


def _exporter(url: str) -> sdk.MetricExporter:
    parts = _parts(url)
    if parts is None or parts.scheme not in {"http", "https", "grpc", "grpcs"}:
        raise UsageError(
            f"found --otlp {url}, allowed is http[s]://HOST:PORT[/PATH] or grpc[s]://HOST:PORT",
            "a collector listens at grpc://localhost:4317 and http://localhost:4318",
        )
    try:
        if parts.scheme.startswith("grpc"):
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
                OTLPMetricExporter as GrpcExporter,
            )

            is_plain = parts.scheme == "grpc"
            made: sdk.MetricExporter = GrpcExporter(
                parts.netloc, insecure=is_plain, timeout=TIMEOUT_S
            )
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
                OTLPMetricExporter as HttpExporter,
            )

            path = parts.path if parts.path.strip("/") else "/v1/metrics"
            endpoint = parts._replace(path=path).geturl()
            made = HttpExporter(endpoint, timeout=TIMEOUT_S)
    except ImportError as error:
        raise UsageError(
            "--otlp needs the OpenTelemetry SDK, which is not installed",
            extra_hint("otlp"),
        ) from error
    # A failure is a finding of the run; the library would also print it.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    return made


def _parts(url: str) -> SplitResult | None:
    """Returns the parts of a URL; None if it has no host, or a port that cannot be."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def _data(run: Run, families: Sequence[Family]) -> sdk.MetricsData:
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    resource = Resource({"service.name": "pubstorm", "pubstorm.scenario": run.scenario})
    metrics = [
        # A collector adds `_total` for Prometheus, and no unit that the name has already.
        sdk.Metric(
            family.name.removesuffix("_total"),
            family.text,
            _unit(family.name),
            _points(run, family),
        )
        for family in families
    ]
    scope = sdk.ScopeMetrics(InstrumentationScope("pubstorm"), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


def _unit(name: str) -> str:
    plain = name.removesuffix("_total")
    return "s" if plain.endswith("_seconds") else "By" if plain.endswith("_bytes") else ""


def _points(run: Run, family: Family) -> sdk.DataT:
    from opentelemetry.sdk.metrics import export as sdk

    start, now = run.started_unix_ns, time.time_ns()
    total = sdk.AggregationTemporality.CUMULATIVE
    if family.kind == "histogram":
        return sdk.ExponentialHistogram(list(_histograms(family, start, now)), total)
    numbers = [
        sdk.NumberDataPoint(dict(labels), start, now, value)
        for labels, value in family.points
        if not isinstance(value, Histogram)
    ]
    if family.kind == "gauge":
        return sdk.Gauge(numbers)
    return sdk.Sum(numbers, total, is_monotonic=True)


def _histograms(
    family: Family, start: int, now: int
) -> Iterator[sdk.ExponentialHistogramDataPoint]:
    from opentelemetry.sdk.metrics import export as sdk

    for labels, each in family.points:
        if not isinstance(each, Histogram):
            continue
        zeros, first, counts = exponential(each, SCALE)
        yield sdk.ExponentialHistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=start,
            time_unix_nano=now,
            count=each.count,
            sum=each.sum_ns / 1e9,
            scale=SCALE,
            zero_count=zeros,
            positive=sdk.Buckets(first, counts),
            negative=sdk.Buckets(0, []),
            flags=0,
            min=each.min_ns / 1e9,
            max=each.max_ns / 1e9,
        )
