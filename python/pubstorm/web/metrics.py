"""The metrics of a run for Prometheus, at `/metrics`: classic histograms in each format, native
ones in the protobuf format and in OpenMetrics 2.0. The protobuf format carries both in one
histogram, in messages of `io.prometheus.client`, each after its length."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import BucketSpan, NativeHistogram
from prometheus_client.samples import Sample as Line
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pubstorm.contract.histogram import Histogram
from pubstorm.exports.tally import Family, Labels, cumulative, exponential
from pubstorm.web.process import FAMILIES, WebSettings
from pubstorm.web.server import ConnectionLimits, Guard, Guarded, guard_of, serving

TYPE = "application/vnd.google.protobuf"
MESSAGE = "io.prometheus.client.MetricFamily"
CONTENT_TYPE = f"{TYPE}; proto={MESSAGE}; encoding=delimited"
SCHEMA = 3
"""Native buckets grow by 9 %."""
KINDS = {"counter": 0, "gauge": 1, "histogram": 4}
"""Numbers of the enum MetricType, by kind."""
MESSAGES = {
    "LabelPair": ("string name = 1", "string value = 2"),
    "Number": ("double value = 1",),
    "Bucket": ("uint64 cumulative_count = 1", "double upper_bound = 2"),
    "BucketSpan": ("sint32 offset = 1", "uint32 length = 2"),
    "Histogram": (
        "uint64 sample_count = 1",
        "double sample_sum = 2",
        "repeated Bucket bucket = 3",
        "sint32 schema = 5",
        "uint64 zero_count = 7",
        "repeated BucketSpan positive_span = 12",
        "repeated sint64 positive_delta = 13",
    ),
    "Metric": (
        "repeated LabelPair label = 1",
        "Number gauge = 2",
        "Number counter = 3",
        "Histogram histogram = 7",
    ),
    "MetricFamily": (
        "string name = 1",
        "string help = 2",
        "int32 type = 3",
        "repeated Metric metric = 4",
    ),
}
"""The fields that exports fill, of `metrics.proto` in prometheus/client_model. Gauge and Counter
have the same form there, and the enum `type` is an integer on the wire."""


def page(families: Sequence[Family], accept: str) -> tuple[str, bytes]:
    """Returns the content type and the content of metrics, in the format that an Accept header
    wants most."""
    if are_preferred(accept):
        return CONTENT_TYPE, encoded(families)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(families, has_native="version=2.0" in accept))
    try:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)
    except (TypeError, ValueError):  # a version that is no number
        encode, kind = choose_encoder("")
        return kind, encode(registry)


class Figures(Collector):
    """Metrics, as the library renders them."""

    def __init__(self, families: Sequence[Family], *, has_native: bool) -> None:
        self._families = families
        self._has_native = has_native

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics."""
        yield from map(self._metric, self._families)

    def _metric(self, family: Family) -> Metric:
        metric = Metric(family.name.removesuffix("_total"), family.text, family.kind)
        for labels, value in family.points:
            if not isinstance(value, Histogram):
                metric.add_sample(family.name, dict(labels), value)
                continue
            if self._has_native:
                line = Line(family.name, dict(labels), 0.0, native_histogram=_native(value))
                metric.samples.append(line)
            metric.samples.extend(_classic(family.name, labels, value))
        return metric


def _classic(name: str, labels: Labels, histogram: Histogram) -> Iterator[Line]:
    for bound, below in cumulative(histogram):
        end = "+Inf" if bound == math.inf else str(bound)
        yield Line(f"{name}_bucket", {**dict(labels), "le": end}, below)
    yield Line(f"{name}_count", dict(labels), histogram.count)
    yield Line(f"{name}_sum", dict(labels), histogram.sum_ns / 1e9)


def _native(histogram: Histogram) -> NativeHistogram:
    zeros, span, deltas = _native_buckets(histogram)
    spans = [span] if deltas else None
    total, sum_s = histogram.count, histogram.sum_ns / 1e9
    return NativeHistogram(total, sum_s, SCHEMA, 0.0, zeros, spans, None, deltas or None)


def _native_buckets(histogram: Histogram) -> tuple[int, BucketSpan, list[int]]:
    """Returns the count of zeros, the place of the other buckets, and the growth of their counts
    from one to the next. Bucket i of a native histogram ends at 2^(i / 2^schema) seconds."""
    zeros, first, counts = exponential(histogram, SCHEMA)
    deltas = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    return zeros, BucketSpan(first + 1, len(counts)), deltas


def _made() -> Callable[[], Any]:
    """Returns the class MetricFamily."""
    field_type = descriptor_pb2.FieldDescriptorProto
    package = MESSAGE.rpartition(".")[0]
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package=package, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            *repeated, kind, key, _, number = field.split()
            made = message.field.add(name=key, number=int(number))
            made.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in MESSAGES:
                made.type_name = f".{package}.{kind}"
            else:
                made.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(MESSAGE)
    made_class: Callable[[], Any] = message_factory.GetMessageClass(found)
    return made_class


MetricFamily = _made()


def are_preferred(accept: str) -> bool:
    """Returns True if an Accept header wants this format more than any text format."""
    own, others = 0.0, 0.0
    for choice in accept.replace(" ", "").split(","):
        kind, *parameters = choice.split(";")
        values = dict(each.split("=", 1) for each in parameters if "=" in each)
        try:
            weight = float(values.get("q", 1))
        except ValueError:
            continue
        if kind != TYPE:
            others = max(others, weight)
        elif values.get("proto") == MESSAGE and values.get("encoding") == "delimited":
            own = max(own, weight)
    return own > 0 and own >= others


def encoded(families: Iterable[Family]) -> bytes:
    """Returns all metrics in this format."""
    page = BytesIO()
    for family in families:
        message = MetricFamily()
        message.name, message.help = family.name, family.text
        message.type = KINDS[family.kind]
        for labels, value in family.points:
            metric = message.metric.add()
            for name, text in labels:
                metric.label.add(name=name, value=text)
            if isinstance(value, Histogram):
                _fill(metric.histogram, value)
            else:
                getattr(metric, family.kind).value = value
        proto.serialize_length_prefixed(message, page)
    return page.getvalue()


def _fill(message: Any, histogram: Histogram) -> None:
    message.sample_count, message.sample_sum = histogram.count, histogram.sum_ns / 1e9
    for bound, count in cumulative(histogram):
        message.bucket.add(cumulative_count=count, upper_bound=bound)
    zeros, span, deltas = _native_buckets(histogram)
    message.schema, message.zero_count = SCHEMA, zeros
    message.positive_span.add(offset=span.offset, length=span.length)
    message.positive_delta.extend(deltas)


LIMITS = ConnectionLimits(trusted_max=8, idle_s=60)


@dataclass
class HandedOver:
    """The metrics that the controller handed over last."""

    families: tuple[Family, ...] = ()


def application(figures: HandedOver, guard: Guard) -> ASGIApp:
    """Returns the application, behind the guard."""

    def metrics(request: Request) -> Response:
        kind, content = page(figures.families, request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    routes = [Route("/metrics", metrics)]
    return Guarded(Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)]), guard)


async def serve_lines(
    settings: WebSettings, listener: socket.socket, lines: asyncio.StreamReader
) -> None:
    """Serves the metrics that the lines of a controller have, until the lines end."""
    figures, guard = HandedOver(), guard_of(settings)
    async with serving(application(figures, guard), LIMITS, guard.tls, listener):
        while line := await lines.readline():
            # A figure that JSON does not have leaves the page as it was.
            with contextlib.suppress(ValueError):
                figures.families = FAMILIES.validate_json(line)
