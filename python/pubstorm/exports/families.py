"""The protobuf format of Prometheus, which carries native and classic buckets in one histogram:
messages of `io.prometheus.client`, each after its length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto

from pubstorm.contract.histogram import Histogram
from pubstorm.exports.tally import Family, cumulative, exponential

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
    zeros, first, counts = exponential(histogram, SCHEMA)
    message.schema, message.zero_count = SCHEMA, zeros
    # Bucket i of a native histogram ends at 2^(i / 2^schema) seconds.
    message.positive_span.add(offset=first + 1, length=len(counts))
    deltas = (after - before for before, after in zip([0, *counts], counts, strict=False))
    message.positive_delta.extend(deltas)
