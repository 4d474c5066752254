"""Samples over time: tracks of everything that is watched, the load included, their file
`samples.csv`, and the growth of a count between readings."""

from __future__ import annotations

import csv
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pubstorm.contract.source import Sample, Source, SourceKind, StoredSource
from pubstorm.contract.value import LATER

START_FILE = "start.json"
RUN_FORMAT: Final = 2
"""Version of the format of a run directory, in its start."""
SAMPLES_FILE = "samples.csv"
EVENTS_FILE = "events.jsonl"
HEADER = ("at_s", "kind", "source", "metric", "value", "held")

HELD = "1"
"""Mark of a reading that repeats the last known value."""


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


Tracks = dict[tuple[Source, str], Track]
"""Tracks by source and metric."""
Sources = dict[tuple[str, str], Source]
"""Sources by kind and name."""


def read_samples(run_directory: Path) -> Tracks:
    """Returns the samples of a run, by source and metric. Raises OSError if their file cannot be
    read."""
    tracks: Tracks = {}
    sources = read_sources(run_directory)
    known: dict[tuple[str, str, str], Track] = {}
    with (run_directory / SAMPLES_FILE).open(encoding="utf-8", newline="") as stream:
        for row in _rows(stream):
            with suppress(ValueError):
                at_s, kind, name, metric, value, held = row
                reading = float(at_s), float(value)
                track = known.get((kind, name, metric))
                if track is None:
                    source = _source(kind, name, sources)
                    track = known[kind, name, metric] = tracks[source, metric] = Track()
                track.add(*reading, held=held == HELD)
    return tracks


def read_sources(run_directory: Path) -> Sources:
    """Returns the sources among the stored events; none if these cannot be read."""
    sources: Sources = {}
    with suppress(OSError), (run_directory / EVENTS_FILE).open("rb") as lines:
        for line in lines:
            with suppress(ValidationError):
                source = StoredSource.model_validate_json(line).source
                sources[source.kind, source.name] = source
    return sources


def samples_in(lines: Iterable[str], sources: Sources) -> Iterator[Sample]:
    """Yields the samples of stored lines; the header and broken lines are left out. A source that
    is not among the known ones has no group, and is added to them."""
    for row in _rows(lines):
        with suppress(ValueError):
            at_s, kind, name, metric, value, held = row
            reading = float(at_s), float(value)
            yield Sample(_source(kind, name, sources), metric, *reading, held == HELD)


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    rows = csv.reader(lines)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue


def _source(kind: str, name: str, sources: Sources) -> Source:
    """Returns a source by its kind and name. Raises ValueError if there is no such kind."""
    source = sources.get((kind, name))
    if source is None:
        source = sources[kind, name] = Source.single(_KIND.validate_python(kind), name)
    return source


def csv_lines(samples: Iterable[Sample]) -> Iterator[str]:
    """Samples as lines of the file, without its header."""
    for sample in samples:
        value = format(sample.value, ".15g")
        held = HELD if sample.held else ""
        source = f"{sample.source.kind},{_field(sample.source.name)}"
        yield f"{sample.at_s:.3f},{source},{_field(sample.metric)},{value},{held}\n"


def _field(text: str) -> str:
    if any(character in text for character in ',"\n'):
        return '"' + text.replace('"', '""').replace("\n", " ") + '"'
    return text


_KIND: TypeAdapter[SourceKind] = TypeAdapter(SourceKind, config=LATER)
