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
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.source import OF_LOAD, Sample, Source, SourceKind, StoredSource
from pubstorm.contract.value import LATER
from pubstorm.files import lines_of, opened
from pubstorm.metrics.monitors import OF_AGENTS_UNDER_TEST
from pubstorm.output import name_of
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
VALUE_MAX: Final = 1e18
"""Values of samples are smaller than this: sums and squares of larger ones, which exporters and
brokers may state, are beyond all numbers."""
AT_MAX_S: Final = 1e9
"""Latest instant of a sample, in seconds after the start of the run."""
ROW_CHARS_MAX: Final = 2**16
"""Longest row of samples."""
UNDER_TEST: Collection[SourceKind] = ("broker", "service", "process", "endpoint", "bridge")
"""Kinds of sources that a command of the user may break."""
ANY = ""
"""Name of all sources under test."""
LATE_SHARE = 0.1
"""Share of an interval by which a reading may be late and the next one not."""
MISSING_MIN = 1.5
"""Intervals without a reading from which a span is not covered: one reading may be missing."""


def is_in_range(at_s: float, value: float) -> bool:
    """Returns True if the instant and the value of a sample are numbers that can be summed up."""
    return 0 <= at_s <= AT_MAX_S and abs(value) < VALUE_MAX


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

    def news(self) -> Iterator[float]:
        """Yields the instants of distinct samples."""
        return (at_s for at_s, is_held in zip(self.at_s, self.held, strict=True) if not is_held)

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


@dataclass(frozen=True, slots=True)
class Schedule:
    """The readings of monitors that are due in a run, from its start to its end."""

    until_s: float
    """End of the run, in seconds after its start."""
    interval_s: float
    """Time between two readings of a source."""
    longer_s: Mapping[str, float] = field(default_factory=dict)
    """The same of sources that are read less often, by their names."""
    absences: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Spans in which the plan breaks a source, by its name: no reading is due. Those of every
    source under test have the name ANY."""

    def intervals_s(self, tracks: Tracks) -> dict[Source, float]:
        """Returns the time between two readings of each source. A broker that reports less often
        than it is read has the time between its own reports."""
        news: dict[Source, set[float]] = {source: set() for source, _ in tracks}
        for (source, _), track in tracks.items():
            if any(track.held):
                news[source].update(track.news())
        found = {}
        for source, instants in news.items():
            due_s = self.longer_s.get(source.name, self.interval_s)
            steps = (after - before for before, after in pairwise(sorted(instants)))
            found[source] = max(due_s, median([s for s in steps if s > due_s / 2] or [due_s]))
        return found

    def silences(self, source: Source, at_s: Sequence[float], due_s: float) -> list[Span]:
        """Returns the spans in which readings were due and none came: of each interval without a
        reading that which precedes it."""
        found = []
        away = self.absences.get(source.name, ())
        if source.kind in UNDER_TEST:
            away = [*away, *self.absences.get(ANY, ())]
        for before_s, after_s in pairwise([0.0, *at_s, self.until_s + due_s]):
            missing = math.floor((after_s - before_s) / due_s + LATE_SHARE) - 1
            if missing > 0:
                found += _without(Span("", before_s, before_s + missing * due_s), away)
        return found


def _without(span: Span, away: Iterable[Span]) -> list[Span]:
    """Returns the parts of a span outside of others."""
    parts = [span]
    for other in away:
        ends = [(each.from_s, min(each.to_s, other.from_s)) for each in parts]
        ends += [(max(each.from_s, other.to_s), each.to_s) for each in parts]
        parts = [Span("", from_s, to_s) for from_s, to_s in ends if from_s < to_s]
    return parts


def watched(
    tracks: Tracks,
    spans: Sequence[Span],
    load: Sequence[Span],
    schedule: Schedule | None = None,
) -> tuple[Watched, ...]:
    """Each figure over the whole run, over the load, and over each name among the spans. With a
    schedule, statistics have the time for which no reading came."""
    by_name: dict[str, list[Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    intervals_s = {} if schedule is None else schedule.intervals_s(tracks)
    found = []
    for (source, metric), track in sorted(tracks.items(), key=_place):
        cover = None
        if schedule is not None and is_monitored(source, metric):
            due_s, own = intervals_s[source], _with_earlier(tracks, source, track)
            cover = _Cover(due_s, schedule.until_s, schedule.silences(source, own, due_s))
        found.append(_watched(source, metric, (track, cover), (by_name, load)))
    return tuple(found)


def is_monitored(source: Source, metric: str) -> bool:
    """True if a monitor reads a metric of a source; others come from snapshots of agents."""
    of_publisher = source.kind == "publisher" and metric in OF_AGENTS_UNDER_TEST
    return source.kind not in OF_LOAD and not of_publisher


def _with_earlier(tracks: Tracks, source: Source, track: Track) -> Sequence[float]:
    """Returns the instants of a track, and those before its first reading at which the source was
    read: a metric with labels begins with its first count. A source is read where another metric
    has a reading of the same instant as the first one."""
    first_s = track.at_s[0] if track.at_s else 0.0
    for (other, _), beside in tracks.items():
        place = bisect_left(beside.at_s, first_s) if other == source else 0
        if 0 < place < len(beside.at_s) and beside.at_s[place] == first_s:
            return beside.at_s[:place] + track.at_s
    return track.at_s


@dataclass(frozen=True, slots=True)
class _Cover:
    """The readings that are missing in a track."""

    due_s: float
    """Time between two readings that are due."""
    until_s: float
    """End of the run."""
    silences: Sequence[Span]

    def over(self, spans: Iterable[Span]) -> dict[str, float]:
        """Returns the fields of statistics over some spans. One reading that is missing there is
        none."""
        parts = [(each.from_s, min(each.to_s, self.until_s)) for each in spans]
        unread_s = math.fsum(
            max(min(to_s, silence.to_s) - max(from_s, silence.from_s), 0.0)
            for from_s, to_s in parts
            for silence in self.silences
        )
        if unread_s < MISSING_MIN * self.due_s:
            return {}
        span_s = math.fsum(to_s - from_s for from_s, to_s in parts)
        return {"unread_s": round(unread_s, 3), "span_s": round(span_s, 3)}


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
    readings: tuple[Track, _Cover | None],
    spans: tuple[Mapping[str, Sequence[Span]], Sequence[Span]],
) -> Watched:
    (track, cover), (by_name, load) = readings, spans
    whole = _covered(statistics([track]), cover, [Span("", 0.0, math.inf)])
    return Watched(
        source=source.name,
        kind=source.kind,
        group=source.group,
        metric=metric,
        whole=whole,
        load=_over(readings, load) if load else whole,
        spans={name: _over(readings, each) for name, each in by_name.items()},
    )


def _place(entry: tuple[tuple[Source, str], Track]) -> tuple[str, str, str]:
    """Returns the place of a track in the order of names."""
    (source, metric), _ = entry
    return source.name, metric, source.kind


def _over(readings: tuple[Track, _Cover | None], spans: Sequence[Span]) -> Statistics:
    track, cover = readings
    found = statistics([track.between(span.from_s, span.to_s) for span in spans])
    return _covered(found, cover, spans)


def _covered(found: Statistics, cover: _Cover | None, spans: Sequence[Span]) -> Statistics:
    missing = {} if cover is None else cover.over(spans)
    return found.model_copy(update=missing) if missing else found


def read_samples(run_directory: Path) -> Tracks:
    """Returns the samples of a run, by source and metric. Raises OSError if their file cannot be
    read."""
    tracks: Tracks = {}
    sources = read_sources(run_directory)
    known: dict[tuple[str, str, str], Track] = {}
    for line in lines_of(run_directory / SAMPLES_FILE):
        text = line.decode()
        with suppress(ValueError):
            at_s, kind, name, metric, value, held = _cells(text)
            reading = _reading(at_s, value)
            track = known.get((kind, name, metric))
            if track is None:
                source = _source(kind, name, sources)
                track = known[kind, name, metric] = tracks[source, metric] = Track()
            track.add(*reading, held=held == HELD)
    return tracks


def _reading(at_s: str, value: str) -> tuple[float, float]:
    """Returns instant and value. Raises ValueError if one is no number, or beyond the range."""
    reading = round(float(at_s), 3), float(value)
    if not is_in_range(*reading):
        raise ValueError
    return reading


def read_sources(run_directory: Path) -> Sources:
    """Returns the sources among the stored events; none if these cannot be read."""
    sources: Sources = {}
    with suppress(OSError):
        for line in lines_of(run_directory / EVENTS_FILE):
            with suppress(ValidationError):
                source = StoredSource.model_validate_json(line).source
                sources[source.kind, source.name] = source
    return sources


def samples_in(lines: Iterable[bytes], sources: Sources) -> Iterator[Sample]:
    """Yields the samples of stored lines; the header and broken lines are left out. A source that
    is not among the known ones has no group, and is added to them."""
    for line in lines:
        with suppress(ValueError):
            at_s, kind, name, metric, value, held = _cells(line.decode(errors="replace"))
            reading = _reading(at_s, value)
            yield Sample(_source(kind, name, sources), metric, *reading, held == HELD)


def snapshots_in(lines: Iterable[bytes]) -> Iterator[Snapshot]:
    """Yields the snapshots of stored lines; the last line may be cut off."""
    for line in lines:
        with suppress(ValidationError):
            yield Snapshot.model_validate_json(line)


def _cells(line: str) -> list[str]:
    """Returns the cells of a line. A row is one line, so a stray quote spoils no other row. Raises
    ValueError for a line that is no row."""
    text = line.rstrip("\r\n")
    if len(text) > ROW_CHARS_MAX:
        raise ValueError
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader((text,), strict=True), [])
    except csv.Error as error:
        raise ValueError from error


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
    name = name_of(text)
    return '"' + name.replace('"', '""') + '"' if "," in name or '"' in name else name


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
            with opened(self._path) as stream:
                stream.seek(self._offset)
                data = stream.read(CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


_KIND: TypeAdapter[SourceKind] = TypeAdapter(SourceKind, config=LATER)
