"""Samples over time: tracks of everything that is watched, the load included, their statistics over
named spans, and the growth of a count between readings. The files of a run that grow while it is
played, and their lines."""

from __future__ import annotations

import csv
import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.source import Sample, Source, SourceKind, StoredSource
from pubstorm.contract.value import LATER
from pubstorm.result.monitors import Statistics, Watched

START_FILE = "start.json"
RUN_FORMAT: Final = 2
"""Version of the format of a run directory, in its start."""
SAMPLES_FILE = "samples.csv"
EVENTS_FILE = "events.jsonl"
HEADER = ("at_s", "kind", "source", "metric", "value", "held")

CHUNK_BYTES = 2**20
"""Bytes of a growing file that are read at once, so that other work is not held up by a long
file."""
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


@dataclass(frozen=True, slots=True)
class Span:
    """A named part of the run, in seconds after its start; ends included."""

    name: str
    from_s: float
    to_s: float


def watched(tracks: Tracks, spans: Sequence[Span], load: Sequence[Span]) -> tuple[Watched, ...]:
    """Each figure over the whole run, over the load, and over each name among the spans."""
    by_name: dict[str, list[Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    return tuple(
        _watched(source, metric, track, (by_name, load))
        for (source, metric), track in sorted(tracks.items(), key=_place)
    )


def statistics(parts: Sequence[Track]) -> Statistics:
    """Statistics of the samples of some spans."""
    values = [value for part in parts for value in part.values]
    if not values:
        return Statistics()
    grown = [each for part in parts for each in part.growth()]
    length_s = math.fsum(each.to_s - each.from_s for each in grown)
    amount = math.fsum(each.amount for each in grown)
    return Statistics(
        count=len(values),
        first=values[0],
        last=values[-1],
        min=min(values),
        mean=float(f"{math.fsum(values) / len(values):.6g}"),
        max=max(values),
        rate_per_s=float(f"{amount / length_s:.6g}") if length_s else None,
    )


def _watched(
    source: Source,
    metric: str,
    track: Track,
    spans: tuple[Mapping[str, Sequence[Span]], Sequence[Span]],
) -> Watched:
    by_name, load = spans
    whole = statistics([track])
    return Watched(
        source=source.name,
        kind=source.kind,
        group=source.group,
        metric=metric,
        whole=whole,
        load=_over(track, load) if load else whole,
        spans={name: _over(track, each) for name, each in by_name.items()},
    )


def _place(entry: tuple[tuple[Source, str], Track]) -> tuple[str, str, str]:
    """Returns the place of a track in the order of names."""
    (source, metric), _ = entry
    return source.name, metric, source.kind


def _over(track: Track, spans: Iterable[Span]) -> Statistics:
    return statistics([track.between(span.from_s, span.to_s) for span in spans])


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


def snapshots_in(lines: Iterable[bytes]) -> Iterator[Snapshot]:
    """Yields the snapshots of stored lines; the last line may be cut off."""
    for line in lines:
        with suppress(ValidationError):
            yield Snapshot.model_validate_json(line)


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


class Tail:
    """The complete lines of a growing file that were not read yet, in the order of writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Returns the next complete lines, without their ends; none if there is no file. A line
        that is not complete is kept for later."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read(CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


_KIND: TypeAdapter[SourceKind] = TypeAdapter(SourceKind, config=LATER)
