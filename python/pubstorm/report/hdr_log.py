"""The latencies of a run as HdrHistogram's own log, which its tools read: one tagged, compressed
histogram for each flow and for each population's acknowledgements, in nanoseconds. The buckets of
ours are those of HdrHistogram with two significant digits, so nothing is lost on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from hdrh.histogram import HdrHistogram

from pubstorm.contract.histogram import MAX_NS, Histogram, bucket_lower_ns
from pubstorm.result import HistogramPair, Result

SIGNIFICANT_DIGITS = 2
NS_IN_MS = 1e6


def hdr_log(result: Result) -> str:
    """The text of `latencies.hlog`."""
    started = datetime.fromisoformat(result.started)
    start_s = started.timestamp()
    lines = [
        f"#[Latencies of {_one_line(result.name)}, in nanoseconds]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch), {started.isoformat()}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for tag, histogram in _tagged(result):
        if histogram.count:
            largest_ms = histogram.max_ns / NS_IN_MS
            payload = _encoded(histogram)
            lines.append(
                f"Tag={tag},{start_s:.3f},{result.duration_s:.3f},{largest_ms:.6f},{payload}"
            )
    return "\n".join(lines) + "\n"


def _tagged(result: Result) -> Iterator[tuple[str, Histogram]]:
    for flow in result.flows:
        yield from _pair(f"delivery:{flow.source}->{flow.to}", flow.histogram_ns)
    for name, population in result.populations.items():
        yield from _pair(f"ack:{name}", population.ack_histogram_ns)


def _pair(name: str, pair: HistogramPair) -> Iterator[tuple[str, Histogram]]:
    """A tag ends at a comma or a space."""
    tag = re.sub(r"[\s,]+", "_", name)
    yield f"{tag}:intended", pair.intended
    yield f"{tag}:actual", pair.actual


def _encoded(histogram: Histogram) -> str:
    hdr = HdrHistogram(1, MAX_NS, SIGNIFICANT_DIGITS)
    for index, count in histogram.buckets:
        hdr.record_value(bucket_lower_ns(index), count)
    encoded: bytes = hdr.encode()
    return encoded.decode("ascii")


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("]", ")")
