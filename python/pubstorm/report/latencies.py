"""All latencies of a run in the two forms of HdrHistogram. The plot by percentile has on its
horizontal axis the share of messages that took longer, on a logarithmic scale, so that the rare
slow ones can be seen. The log, which its tools read, has for each interval one tagged, compressed
histogram for each flow and each population, in nanoseconds. The buckets of ours and their numbers
are those of HdrHistogram with two significant digits, so nothing is lost on the way."""

from __future__ import annotations

import math
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any

from pubstorm.contract import Value
from pubstorm.contract.histogram import MAX_NS, Histogram, bucket_upper_ns
from pubstorm.contract.snapshot import SNAPSHOTS_FILE, Snapshot
from pubstorm.errors import StoredRunError
from pubstorm.metrics import LOGGED, columns_of
from pubstorm.output import without_controls
from pubstorm.quantities import shortened
from pubstorm.report.plot import (
    DASHES,
    GRID,
    HOVER,
    NO_MORE,
    Plot,
    figure,
    looks,
    scatter,
    value_axis,
)
from pubstorm.result import HistogramPair, RunResult
from pubstorm.result.journal import journal_lines, snapshots_in
from pubstorm.result.timeline.cells import HistogramCells

NS_IN_MS = 1e6
SOLID, DOT = DASHES.index("solid"), DASHES.index("dot")
STEP = 1.02
"""Points of a curve lie at least this factor apart on the horizontal axis."""
SIGNIFICANT_DIGITS = 2
HDR_PLAIN, HDR_COMPRESSED = 0x1C849313, 0x1C849314
"""First words of a histogram of HdrHistogram, and of one that is compressed."""
SECOND_NS = 10**9
INTERVALS_MAX = 1000
"""Intervals of a log at most. They are 1 s wide, or wider in longer runs."""


def percentile_plot(result: RunResult) -> Plot | None:
    """Every latency of the run as a curve; None where none was measured."""
    found = [
        (number, f"{name}, from {since}", histogram, dash)
        for number, (name, pair) in enumerate([*_alone(result), *_pairs(result)])
        for since, histogram, dash in (
            ("scheduled", pair.intended, SOLID),
            ("sent", pair.actual, DOT),
        )
        if histogram.count
    ]
    if not found:
        return None
    own = looks((number, dash) for number, _, _, dash in found)
    curves = [
        curve(name, histogram, look)
        for (_, name, histogram, _), look in zip(found, own, strict=True)
    ]
    furthest = max(curve["x"][-1] for curve in curves)
    return Plot(
        key="percentiles",
        title="Latency by percentile",
        caption="At 99 %, the height of a curve is the time that 99 of 100 messages did not "
        "exceed. Further right are the rare slow ones, up to the slowest of all. Solid: from the "
        "scheduled instant. Dotted: from the instant it was sent, which hides the "
        "sender's wait.",
        figure=figure(
            curves, percentile_axis(furthest), value_axis("latency (ms, logarithmic)", log=True)
        ),
        part="latency",
    )


def _alone(result: RunResult) -> Iterator[tuple[str, HistogramPair]]:
    """Yields the distributions of each population that have no twin from the actual send."""
    for name, population in result.populations.items():
        for metric, column in columns_of("curves"):
            found = population.time_histograms_ns.get(metric.at)
            if found is not None:
                yield f"{name} {column.head}", HistogramPair(intended=found)


def _pairs(result: RunResult) -> Iterator[tuple[str, HistogramPair]]:
    for flow in result.flows:
        yield f"{flow.source} → {flow.to}", flow.histogram_ns
    for name, population in result.populations.items():
        yield f"{name} acks", population.ack_histogram_ns


def curve(name: str, histogram: Histogram, look: tuple[str, str]) -> dict[str, Any]:
    """Returns the line of a histogram; `look` is its colour and its dash."""
    hue, dash = look
    rarities, latencies = points(histogram)
    return scatter(
        name,
        [shortened(each) for each in rarities],
        [shortened(each / NS_IN_MS) for each in latencies],
        line={"color": hue, "width": 1.8, "dash": dash, "shape": "vh"},
        hovertemplate=f"{HOVER} ms, exceeded by 1 in %{{x:,.4~r}}{NO_MORE}",
    )


def points(histogram: Histogram) -> tuple[list[float], list[float]]:
    """The curve of a histogram that holds something: 1/(1-q) and the quantile in nanoseconds. The
    largest of n lies at n, for nothing rarer was seen."""
    rarities: list[float] = [1.0]
    latencies: list[float] = [max(histogram.min_ns, 1)]
    below = 0
    for index, count in histogram.buckets:
        below += count
        rarity = histogram.count / max(histogram.count - below, 1)
        if rarity >= rarities[-1] * STEP:
            rarities.append(rarity)
            latencies.append(max(min(bucket_upper_ns(index), histogram.max_ns), 1))
    if latencies[-1] < histogram.max_ns:
        rarities.append(histogram.count)
        latencies.append(histogram.max_ns)
    return rarities, latencies


def percentile_axis(furthest: float) -> dict[str, Any]:
    """Returns the horizontal axis, with ticks at 0, 50, 90, 99 … %."""
    ticks, labels, power = [1, 2], ["0", "50 %"], 1
    while 10**power <= 10 * furthest:
        ticks.append(10**power)
        digits = f"{100 - 100 / 10**power:.{max(power - 2, 0)}f}"
        labels.append(f"{digits} %")
        power += 1
    return {
        "type": "log",
        "title": {
            "text": "percentile of messages (logarithmic towards the slowest)",
            "standoff": 8,
        },
        "tickvals": ticks,
        "ticktext": labels,
        "gridcolor": GRID,
    }


def hdr_log(run_directory: Path, result: RunResult) -> str:
    """The text of `latencies.hlog`. Raises StoredRunError if the snapshots of the run do not hold
    all latencies of its result."""
    origin_ns = result.started_unix_ns - result.started_monotonic_ns
    started = datetime.fromtimestamp(result.started_unix_ns / SECOND_NS, UTC)
    name = " ".join(result.name.split()).replace("]", ")")
    lines = [
        f"#[Latencies of {name}, in nanoseconds]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started.timestamp():.3f} (seconds since epoch), {started.isoformat()}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    found = 0
    for from_ns, to_ns, histograms in _cells(run_directory, result).spans():
        start_s, length_s = (from_ns + origin_ns) / SECOND_NS, (to_ns - from_ns) / SECOND_NS
        for tag, histogram in sorted(histograms.items()):
            if not histogram.count:
                continue
            found += histogram.count if tag.startswith(("delivery:", "ack:")) else 0
            largest_ms = histogram.max_ns / NS_IN_MS
            payload = _encoded(histogram)
            lines.append(f"Tag={tag},{start_s:.3f},{length_s:.3f},{largest_ms:.6f},{payload}")
    counted = sum(pair.intended.count + pair.actual.count for _, pair in _pairs(result))
    if found != counted:
        text = f"{SNAPSHOTS_FILE} holds {found} of {counted} latencies"
        raise StoredRunError(text, "the run could not store all of its snapshots")
    return without_controls("\n".join(lines) + "\n")


def _cells(run_directory: Path, result: RunResult) -> HistogramCells[str]:
    """Returns the histograms in the snapshots of a file, by tag."""
    started_ns, names = result.started_monotonic_ns, list(result.populations)
    width_ns = max(math.ceil(result.duration_s / INTERVALS_MAX), 1) * SECOND_NS
    cells = HistogramCells[str](started_ns, width_ns)
    for snapshot in _snapshots(run_directory, len(names)):
        if snapshot.to_ns > started_ns:
            span = max(snapshot.from_ns, started_ns), snapshot.to_ns
            cells.add(span, _tagged(snapshot, names))
    return cells


def _snapshots(run_directory: Path, populations: int) -> Iterator[Snapshot]:
    """Yields the snapshots of a run; none if there is no file, since nothing was played. The last
    line may be cut off. Raises StoredRunError if the file cannot be read."""
    try:
        yield from snapshots_in(journal_lines(run_directory, SNAPSHOTS_FILE), populations)
    except FileNotFoundError:
        return
    except OSError as error:
        text = f"cannot read {run_directory / SNAPSHOTS_FILE}: {error.strerror or error}"
        raise StoredRunError(text) from error


def _tagged(snapshot: Snapshot, names: Sequence[str]) -> Iterator[tuple[str, Histogram]]:
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


def _encoded(histogram: Histogram) -> str:
    """Returns a histogram as HdrHistogram stores it, compressed, in its second version: counts from
    the first bucket on, and runs of empty ones as negative numbers."""
    counts, after = bytearray(), 0
    for index, count in histogram.buckets:
        if index > after:
            counts += _zig_zag(after - index)
        counts += _zig_zag(count)
        after = index + 1
    head = pack(">iiiiqqd", HDR_PLAIN, len(counts), 0, SIGNIFICANT_DIGITS, 1, MAX_NS, 1.0)
    packed = zlib.compress(head + counts)
    return b64encode(pack(">ii", HDR_COMPRESSED, len(packed)) + packed).decode("ascii")


def _zig_zag(number: int) -> bytes:
    """Returns a whole number in groups of 7 bits, the lowest first, with its sign in the lowest
    bit."""
    left = number << 1 if number >= 0 else (-number << 1) - 1
    groups = bytearray()
    while left > 0x7F:
        groups.append(left & 0x7F | 0x80)
        left >>= 7
    groups.append(left)
    return bytes(groups)


def _tag(name: str) -> str:
    """A tag ends at a comma or a space."""
    return re.sub(r"[\s,]+", "_", name)
