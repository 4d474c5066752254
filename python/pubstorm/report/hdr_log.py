"""The latencies of a run as HdrHistogram's own log, which its tools read: for each interval one
tagged, compressed histogram for each flow and each population, in nanoseconds. The buckets of ours
are those of HdrHistogram with two significant digits, so nothing is lost on the way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

from hdrh.histogram import HdrHistogram
from pydantic import ValidationError

from pubstorm.contract.histogram import MAX_NS, Histogram, bucket_lower_ns
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.contract.value import Value
from pubstorm.errors import StoredRunError
from pubstorm.metrics.intervals import LOGGED
from pubstorm.result import HistogramPair, Result

SIGNIFICANT_DIGITS = 2
SECOND_NS = 10**9
NS_IN_MS = 1e6
INTERVALS_MAX = 1000
"""Intervals of a log at most. They are 1 s wide, or wider in longer runs."""
OPEN_MAX = 8
"""Intervals that are kept open for agents that are behind."""


@dataclass
class _Interval:
    """The sums of all agents in one interval."""

    from_ns: int
    to_ns: int
    sums: RunSum = field(default_factory=RunSum)


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
    found, names = 0, list(result.populations)
    for interval in _intervals(_snapshots(run_directory / SNAPSHOTS_FILE), result):
        start_s = (interval.from_ns + origin_ns) / SECOND_NS
        length_s = (interval.to_ns - interval.from_ns) / SECOND_NS
        for tag, histogram in sorted(_tagged(interval.sums, names), key=itemgetter(0)):
            found += histogram.count if tag.startswith(("delivery:", "ack:")) else 0
            largest_ms = histogram.max_ns / NS_IN_MS
            payload = _encoded(histogram)
            lines.append(f"Tag={tag},{start_s:.3f},{length_s:.3f},{largest_ms:.6f},{payload}")
    if found != (counted := _counted(result)):
        text = f"{SNAPSHOTS_FILE} holds {found} of {counted} latencies"
        raise StoredRunError(text, "the run could not store all of its snapshots")
    return "\n".join(lines) + "\n"


def _intervals(snapshots: Iterable[Snapshot], result: Result) -> Iterator[_Interval]:
    """Yields the intervals in the order of time. A snapshot belongs to the interval of its middle,
    or to the earliest that is still open."""
    started_ns = result.started_monotonic_ns
    width_ns = max(math.ceil(result.duration_s / INTERVALS_MAX), 1) * SECOND_NS
    open_intervals: dict[int, _Interval] = {}
    first_open = 0
    for snapshot in snapshots:
        from_ns, to_ns = max(snapshot.from_ns, started_ns), snapshot.to_ns
        if to_ns <= started_ns:
            continue
        place = max(((from_ns + to_ns) // 2 - started_ns) // width_ns, first_open)
        interval = open_intervals.setdefault(place, _Interval(from_ns, to_ns))
        interval.from_ns = min(interval.from_ns, from_ns)
        interval.to_ns = max(interval.to_ns, to_ns)
        interval.sums.take(snapshot)
        first_open = max(first_open, place - OPEN_MAX)
        for over in sorted(number for number in open_intervals if number < first_open):
            yield open_intervals.pop(over)
    for _, interval in sorted(open_intervals.items()):
        yield interval


def _snapshots(path: Path) -> Iterator[Snapshot]:
    """Yields the snapshots of a file; none if there is no file, since nothing was played. The last
    line may be cut off. Raises StoredRunError if the file cannot be read."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                with suppress(ValidationError):
                    yield Snapshot.model_validate_json(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoredRunError(f"cannot read {path}: {error.strerror}") from error


def _tagged(sums: RunSum, names: Sequence[str]) -> list[tuple[str, Histogram]]:
    """Returns the histograms with counts, each with its tag."""
    flows = ((f"{names[each.source]}->{names[each.to]}", each) for each in sums.flows().values())
    populations = ((name, sums.population([index])) for index, name in enumerate(names))
    parts: Mapping[str, Iterable[tuple[str, Value]]] = {"flow": flows, "population": populations}
    found = (
        (each.metric.tag.format(_tag(name)), each.read(value))
        for part, values in parts.items()
        for name, value in values
        for each in LOGGED
        if each.part == part
    )
    return [(tag, each) for tag, each in found if isinstance(each, Histogram) and each.count]


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
