"""The latencies of a run as HdrHistogram's own log, which its tools read: for each interval one
tagged, compressed histogram for each flow and each population, in nanoseconds. The buckets of ours
are those of HdrHistogram with two significant digits, so nothing is lost on the way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from hdrh.histogram import HdrHistogram

from pubstorm.contract.histogram import MAX_NS, Histogram, bucket_lower_ns
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot, snapshots_in
from pubstorm.contract.value import Value
from pubstorm.errors import StoredRunError
from pubstorm.metrics.intervals import LOGGED
from pubstorm.result import HistogramPair, Result
from pubstorm.result.timeline.cells import HistogramCells

SIGNIFICANT_DIGITS = 2
SECOND_NS = 10**9
NS_IN_MS = 1e6
INTERVALS_MAX = 1000
"""Intervals of a log at most. They are 1 s wide, or wider in longer runs."""


def hdr_log(run_directory: Path, result: Result) -> str:
    """The text of `latencies.hlog`. Raises StoredRunError if the snapshots of the run do not hold
    all latencies of its result."""
    origin_ns = result.started_unix_ns - result.started_monotonic_ns
    started = datetime.fromtimestamp(result.started_unix_ns / SECOND_NS, UTC)
    lines = [
        f"#[Latencies of {_one_line(result.name)}, in nanoseconds]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started.timestamp():.3f} (seconds since epoch), {started.isoformat()}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    found = 0
    for from_ns, to_ns, histograms in _cells(run_directory / SNAPSHOTS_FILE, result).spans():
        start_s, length_s = (from_ns + origin_ns) / SECOND_NS, (to_ns - from_ns) / SECOND_NS
        for tag, histogram in sorted(histograms.items()):
            if not histogram.count:
                continue
            found += histogram.count if tag.startswith(("delivery:", "ack:")) else 0
            largest_ms = histogram.max_ns / NS_IN_MS
            payload = _encoded(histogram)
            lines.append(f"Tag={tag},{start_s:.3f},{length_s:.3f},{largest_ms:.6f},{payload}")
    if found != (counted := _counted(result)):
        text = f"{SNAPSHOTS_FILE} holds {found} of {counted} latencies"
        raise StoredRunError(text, "the run could not store all of its snapshots")
    return "\n".join(lines) + "\n"


def _cells(path: Path, result: Result) -> HistogramCells[str]:
    """Returns the histograms in the snapshots of a file, by tag."""
    started_ns, names = result.started_monotonic_ns, list(result.populations)
    width_ns = max(math.ceil(result.duration_s / INTERVALS_MAX), 1) * SECOND_NS
    cells = HistogramCells[str](started_ns, width_ns)
    for snapshot in _snapshots(path):
        if snapshot.to_ns > started_ns:
            span = max(snapshot.from_ns, started_ns), snapshot.to_ns
            cells.add(span, _tagged(snapshot, names))
    return cells


def _snapshots(path: Path) -> Iterator[Snapshot]:
    """Yields the snapshots of a file; none if there is no file, since nothing was played. The last
    line may be cut off. Raises StoredRunError if the file cannot be read."""
    try:
        with path.open("rb") as lines:
            yield from snapshots_in(lines)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoredRunError(f"cannot read {path}: {error.strerror}") from error


def _tagged(snapshot: Snapshot, names: Sequence[str]) -> Iterator[tuple[str, Histogram]]:
    """Yields the histograms of a snapshot, each with its tag."""
    flows = ((f"{names[each.source]}->{names[each.to]}", each) for each in snapshot.flows)
    populations = zip(names, snapshot.populations, strict=True)
    parts: Mapping[str, Iterable[tuple[str, Value]]] = {"flow": flows, "population": populations}
    for part, values in parts.items():
        logged = [each for each in LOGGED if each.part == part]
        for name, value in values:
            for each in logged:
                histogram = each.read(value)
                if isinstance(histogram, Histogram):
                    yield each.metric.tag.format(_tag(name)), histogram


def _counted(result: Result) -> int:
    """Returns the number of latencies of deliveries and acknowledgements in a result."""
    populations = result.populations.values()
    pairs: list[HistogramPair] = [
        *(flow.histogram_ns for flow in result.flows),
        *(population.ack_histogram_ns for population in populations),
    ]
    return sum(pair.intended.count + pair.actual.count for pair in pairs)


def _encoded(histogram: Histogram) -> str:
    hdr = HdrHistogram(1, MAX_NS, SIGNIFICANT_DIGITS)
    for index, count in histogram.buckets:
        hdr.record_value(bucket_lower_ns(index), count)
    encoded: bytes = hdr.encode()
    return encoded.decode("ascii")


def _tag(name: str) -> str:
    """A tag ends at a comma or a space."""
    return re.sub(r"[\s,]+", "_", name)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("]", ")")
