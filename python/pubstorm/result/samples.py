"""Samples: single readings of everything that is watched, the load included, on the time axis of
the run, their file `samples.csv`, and the growth of a count between readings."""

from __future__ import annotations

import csv
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SAMPLES_FILE = "samples.csv"
HEADER = ("at_s", "source", "metric", "value", "held")

HELD = "1"
"""Mark of a reading that repeats the last known value."""

HOST = "host"
"""Source of the figures of the controller's host."""
OTHER_HOST = f"{HOST}-"
"""Beginning of the sources of other hosts. An address or the name of a source follows. No other
name begins so."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: what `source` showed of `metric` at an instant after the start of the run."""

    at_s: float
    source: str
    """A population, a broker (`broker-0`), `host`, `agent-0`, or a source of the monitors."""
    metric: str
    """Name, unit last: `cpu`, `rss_bytes`, `sent_per_s`, `$SYS/messages/dropped`."""
    value: float
    held: bool = False
    """True if the sample repeats the last known value."""


def is_host(source: str) -> bool:
    """Returns True if a source is a host."""
    return source == HOST or source.startswith(OTHER_HOST)


class Track:
    """All samples of one metric of one source, in the order of time: 17 bytes each."""

    def __init__(
        self,
        at_s: Iterable[float] = (),
        values: Iterable[float] = (),
        held: Collection[int] = (),
    ) -> None:
        """`held` are the places of samples that repeat the last known value."""
        self.at_s = array("d", at_s)
        self.values = array("d", values)
        self.held = array("b", (place in held for place in range(len(self.at_s))))
        """1 for a sample that repeats the last known value, without news from the source."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Track):
            return NotImplemented
        own, others = (self.at_s, self.values, self.held), (other.at_s, other.values, other.held)
        return own == others

    __hash__ = None  # type: ignore[assignment]

    def add(self, at_s: float, value: float, *, held: bool = False) -> None:
        """Adds a sample."""
        self.at_s.append(at_s)
        self.values.append(value)
        self.held.append(held)

    def between(self, from_s: float, to_s: float) -> Track:
        """The samples of a span, its ends included."""
        places = slice(bisect_left(self.at_s, from_s), bisect_right(self.at_s, to_s))
        part = Track(self.at_s[places], self.values[places])
        part.held = self.held[places]
        return part

    def growth(self) -> list[Growth]:
        """Growth of a count between its distinct samples."""
        news = [place for place, is_held in enumerate(self.held) if not is_held]
        return growth([self.at_s[n] for n in news], [self.values[n] for n in news])


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a count between two readings."""

    from_s: float
    to_s: float
    amount: float

    @property
    def per_s(self) -> float:
        """Growth per second."""
        return self.amount / (self.to_s - self.from_s)

    def within(self, from_s: float, to_s: float) -> float:
        """The share of the growth that belongs to a span, by overlap in time."""
        overlap_s = min(self.to_s, to_s) - max(self.from_s, from_s)
        return self.amount * max(overlap_s, 0.0) / (self.to_s - self.from_s)


def growth(at_s: Sequence[float], values: Sequence[float]) -> list[Growth]:
    """Growth of a count from each distinct reading to the next; a count that fell started again
    at zero. The definition behind every rate of a count: in tables, thresholds and plots."""
    latest_at = dict(zip(at_s, values, strict=True))
    return [
        Growth(from_s, to_s, value - before if value >= before else value)
        for (from_s, before), (to_s, value) in pairwise(latest_at.items())
    ]


Tracks = dict[tuple[str, str], Track]
"""Tracks by source and metric."""


def read_samples(path: Path) -> Tracks:
    """Returns the samples in a file, by source and metric. A line that was cut off is left out.
    Raises OSError if the file cannot be read."""
    tracks: Tracks = {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        next(rows, None)
        for row in rows:
            try:
                at_s, source, metric, value, held = row
                sample = float(at_s), float(value)
            except ValueError:
                continue
            tracks.setdefault((source, metric), Track()).add(*sample, held=held == HELD)
    return tracks


def csv_lines(samples: Iterable[Sample]) -> Iterable[str]:
    """Samples as lines of the file, without its header."""
    for sample in samples:
        value = format(sample.value, ".15g")
        held = HELD if sample.held else ""
        yield f"{sample.at_s:.3f},{_field(sample.source)},{_field(sample.metric)},{value},{held}\n"


def _field(text: str) -> str:
    if any(character in text for character in ',"\n'):
        return '"' + text.replace('"', '""').replace("\n", " ") + '"'
    return text
