"""Samples over time: tracks of everything that is watched, the load included, their statistics over
named spans, and the growth of a count between readings. The files of a run that grow while it is
played, and their lines."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from pathlib import Path
from statistics import median
from typing import Final

from pydantic import TypeAdapter, ValidationError

from pubstorm.contract import LATER, OF_LOAD, Sample, Source, SourceKind, StoredSource
from pubstorm.files import lines_of
from pubstorm.metrics.monitors import OF_AGENTS_UNDER_TEST
from pubstorm.result.interval import slope
from pubstorm.result.journal import CellSums, cell_of, field_text, journal_lines, rows
from pubstorm.result.machinery import Statistics, Watched
from pubstorm.result.timeline.cells import (
    FIELDS,
    LATE_SHARE,
    MINUTES_MIN,
    OWN_MIN,
    READINGS_MAX,
    TRACK_MINUTES_MAX,
    Growth,
    Merging,
    ReadingCell,
    Readings,
    growth,
    in_hours,
    in_minutes,
    own_cells,
)
from pubstorm.result.timeline.lane import Edges

START_FILE = "start.json"
RUN_FORMAT: Final = 2
"""Version of the format of a run directory, in its start."""
SAMPLES_FILE = "samples.csv"
EVENTS_FILE = "events.jsonl"
HEADER = ("at_s", "kind", "source", "metric", "value", "held")

MINUTE_S = 60
TURN = 100
"""Samples that are added for each track that is merged, beside the first."""
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
MISSING_MIN = 1.5
"""Intervals without a reading from which a span is not covered: one reading may be missing."""


def is_in_range(at_s: float, value: float) -> bool:
    """Returns True if the instant and the value of a sample are numbers that can be summed up."""
    return 0 <= at_s <= AT_MAX_S and abs(value) < VALUE_MAX


class Track:
    """The samples of one metric of one source, in the order of time: 17 bytes each. Of old ones,
    which are merged into cells, it has a few points and exact sums."""

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
        self.merged = 0
        """Points of cells, which are the first ones."""
        self.minutes = 0
        """Cells of a minute, which follow those of an hour."""
        self._cells = array("d")
        self._late: dict[int, Counter[int]] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Track):
            return NotImplemented
        own, others = (self.at_s, self.values, self.held), (other.at_s, other.values, other.held)
        return own == others and list(self.cells()) == list(other.cells())

    __hash__ = None  # type: ignore[assignment]

    def add(self, at_s: float, value: float, *, held: bool = False) -> None:
        """Adds a sample."""
        self.at_s.append(at_s)
        self.values.append(value)
        self.held.append(held)

    def add_cell(self, cell: ReadingCell) -> None:
        """Adds a cell, which lies after all others. There are no samples after it yet."""
        self._extend((cell.at_s, cell.values, cell.held))
        self._close((len(cell.at_s), cell.count, cell.total, cell.amount, cell.late))

    def close_cell(self, columns: list[str]) -> int:
        """Makes the samples that are not merged the points of a cell, whose sums were stored.
        Returns the number of points; 0 if others are not merged. Raises ValueError if the sums are
        damaged."""
        found = cell_of(columns)
        if found is None or found[0] != len(self.at_s) - self.merged:
            return 0
        is_minute = self.at_s[-1] - self.at_s[self.merged] <= MINUTE_S
        self._close(found)
        self.minutes = self.minutes + 1 if is_minute else 0
        return found[0]

    def _close(self, cell: CellSums) -> None:
        points, *sums, late = cell
        if late:
            self._late[len(self._cells) // FIELDS] = late
        self._cells.extend((points, *sums))
        self.merged += points

    def cells(self) -> Iterator[ReadingCell]:
        """Yields the cells of the samples that are merged."""
        first = 0
        for number in range(len(self._cells) // FIELDS):
            points, count, total, amount = self._cells[FIELDS * number : FIELDS * (number + 1)]
            place = slice(first, first := first + int(points))
            late = self._late.get(number, Counter())
            own = self.at_s[place], self.values[place], self.held[place]
            yield ReadingCell(*own, int(count), total, amount, late)

    def own(self, first: int | None = None, until: int | None = None) -> Readings:
        """Returns the samples that are not merged; of those, some by their places."""
        places = slice(self.merged if first is None else first, until)
        return self.at_s[places], self.values[places], self.held[places]

    def age(self, own_max: int, minutes_max: int, grid: Merging) -> None:
        """Merges all but the latest samples into minutes, and all but the latest minutes into
        hours."""
        until = max(len(self.at_s) - own_max, self.merged)
        # The latest cell may grow by samples of its minute.
        cells, rest = list(self.cells()), self.own(until)
        hours, minutes = cells[: len(cells) - self.minutes], cells[len(cells) - self.minutes :]
        minutes = in_minutes([*minutes, *own_cells(self.own(None, until), grid)], grid)
        first = max(len(minutes) - minutes_max, 0)
        old = in_hours([*hours[-1:], *minutes[:first]], grid)
        self._clear()
        for cell in (*hours[:-1], *old, *minutes[first:]):
            self.add_cell(cell)
        self._extend(rest)
        self.minutes = len(minutes) - first

    def between(self, from_s: float, to_s: float) -> Track:
        """The samples of a span, its ends included."""
        part = Track()
        if self.merged and from_s <= self.at_s[self.merged - 1]:
            for cell in self.cells():
                if (inside := cell.between(from_s, to_s)) is not None:
                    part.add_cell(inside)
        first = bisect_left(self.at_s, from_s, lo=self.merged)
        until = bisect_right(self.at_s, to_s, lo=self.merged)
        part._extend(self.own(first, until))
        return part

    @property
    def merged_s(self) -> float:
        """Instant of the last point of a cell; 0 if there is no cell."""
        return self.at_s[self.merged - 1] if self.merged else 0.0

    def news(self) -> Iterator[float]:
        """Yields the instants of distinct samples that are not merged."""
        at_s, _, held = self.own()
        return (instant_s for instant_s, is_held in zip(at_s, held, strict=True) if not is_held)

    def growth(self) -> list[Growth]:
        """Growth of a count between its distinct samples, and over those of each cell."""
        found, before = list[Growth](), None
        for cell in self.cells():
            first, last = cell.news(), cell.news(last=True)
            if first is not None and last is not None:
                found += growth(*zip(before, first, strict=True)) if before else ()
                found += [Growth(first[0], last[0], cell.amount)] if first[0] < last[0] else []
                before = last
        at_s, values, held = self.own()
        news = [place for place, is_held in enumerate(held) if not is_held]
        own = [(at_s[n], values[n]) for n in news]
        instants = [*([before] if before else []), *own]
        return found + growth([at for at, _ in instants], [value for _, value in instants])

    def has(self, instant_s: float) -> bool:
        """True if a sample has an instant, or a cell reaches over it."""
        place = bisect_left(self.at_s, instant_s, lo=self.merged)
        if self.at_s[place : place + 1] == array("d", [instant_s]):
            return True
        return any(cell.at_s[0] <= instant_s <= cell.at_s[-1] for cell in self.cells())

    def steps(self, interval_s: float) -> Iterator[tuple[float, float]]:
        """Yields the ends of each step between two samples; inside a cell, those of steps that are
        longer than an interval."""
        before_s = None
        for cell in self.cells():
            if before_s is not None:
                yield before_s, cell.at_s[0]
            yield from cell.steps(interval_s)
            before_s = cell.at_s[-1]
        yield from pairwise(self.at_s[max(self.merged - 1, 0) :])

    def _clear(self) -> None:
        for column in (self.at_s, self.values, self.held, self._cells):
            del column[:]
        self._late.clear()
        self.merged = self.minutes = 0

    def _extend(self, readings: Readings) -> None:
        at_s, values, held = readings
        self.at_s.extend(at_s)
        self.values.extend(values)
        self.held.extend(held)

    @property
    def count(self) -> int:
        """Samples, with those that are merged."""
        return len(self.at_s) - self.merged + int(sum(self._cells[1::FIELDS]))

    def means(self) -> Iterator[tuple[float, float, int]]:
        """Yields the means of cells and the samples after them: instant, value, and number of
        samples."""
        for cell in self.cells():
            yield (cell.at_s[0] + cell.at_s[-1]) / 2, cell.total / cell.count, cell.count
        at_s, values, _ = self.own()
        yield from zip(at_s, values, repeat(1))

    @property
    def sums(self) -> Iterable[float]:
        """Numbers that add up to the sum of all samples."""
        return chain(self._cells[2::FIELDS], self.values[self.merged :])


Tracks = dict[tuple[Source, str], Track]
"""Tracks by source and metric."""


Wanted = Callable[[Source, str], bool]
"""Chooses tracks by source and metric."""


class Keeper:
    """Keeps tracks small: the more samples they have, the older are those that it merges."""

    def __init__(self, edges: Edges | None = None, interval_s: float = 1.0) -> None:
        """Nothing is merged across edges."""
        self.tracks: Tracks = {}
        self.interval_s = interval_s
        """Shortest time between two readings of a source that are due."""
        self._edges = edges or Edges(0)
        self._own = 0
        """Samples that are not merged."""
        self._turn = 0
        """Number of the track that was merged last."""
        self._named: dict[tuple[str, ...], Track | None] = {}
        """Tracks by the names of stored samples; None: it is not wanted."""

    @property
    def merging(self) -> Merging:
        """The rule by which readings are merged."""
        return Merging(self._edges, self.interval_s)

    def take(self, samples: Iterable[Sample]) -> None:
        """Adds samples, those of one source in the order of time."""
        before = self._own
        for sample in samples:
            track = self.track(sample.source, sample.metric)
            track.add(sample.at_s, sample.value, held=sample.held)
            self._own += 1
        if self._own > READINGS_MAX:
            self.bound(self._own - before)

    def read(self, lines: Iterable[str], sources: Sources, is_wanted: Wanted | None = None) -> None:
        """Adds the samples of stored lines, as `samples_in` reads them, and their cells."""
        for row in rows(lines):
            with suppress(ValueError):
                at_s, kind, name, metric, value, held, *cell = row
                reading, names = _reading(at_s, value), (kind, name, metric)
                if names not in self._named:
                    source = _source(kind, name, sources)
                    wanted = is_wanted is None or is_wanted(source, metric)
                    self._named[names] = self.track(source, metric) if wanted else None
                if (track := self._named[names]) is not None:
                    track.add(*reading, held=held == HELD)
                    self._own += 1
                    if cell:
                        self._own -= track.close_cell(cell)
                    if self._own > READINGS_MAX:
                        self.bound(1)

    def track(self, source: Source, metric: str) -> Track:
        """Returns a track, a new one if there is none."""
        found = self.tracks.get((source, metric))
        if found is None:
            found = self.tracks[source, metric] = Track()
        return found

    def bound(self, added: int) -> None:
        """Merges the older half of a few tracks, if too many samples are kept after some that were
        added. The tracks have their turns, since all at once would hold up the run for seconds."""
        tracks = [*self.tracks.values()]
        own_max = max(READINGS_MAX // 2 // max(len(tracks), 1), OWN_MIN)
        for _ in range(1 + added // TURN):
            if self._own <= 2 * own_max * len(tracks):
                return
            self._turn += 1
            track = tracks[self._turn % len(tracks)]
            before = len(track.at_s) - track.merged
            track.age(own_max, max(TRACK_MINUTES_MAX // len(tracks), MINUTES_MIN), self.merging)
            self._own -= before - (len(track.at_s) - track.merged)


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

    def silences(
        self, source: Source, steps: Iterable[tuple[float, float]], due_s: float
    ) -> list[Span]:
        """Returns the spans in which readings were due and none came: of each interval without a
        reading that which precedes it. `steps` lie between the readings of the source."""
        found = []
        away = self.absences.get(source.name, ())
        if source.kind in UNDER_TEST:
            away = [*away, *self.absences.get(ANY, ())]
        for before_s, after_s in steps:
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
            due_s = intervals_s[source]
            steps = _steps(tracks, source, track, schedule.interval_s)
            last = track.at_s[-1] if track.at_s else 0.0, schedule.until_s + due_s
            silences = schedule.silences(source, chain(steps, [last]), due_s)
            cover = _Cover(due_s, schedule.until_s, silences)
        found.append(_watched(source, metric, (track, cover), (by_name, load)))
    return tuple(found)


def is_monitored(source: Source, metric: str) -> bool:
    """True if a monitor reads a metric of a source; others come from snapshots of agents."""
    of_publisher = source.kind == "publisher" and metric in OF_AGENTS_UNDER_TEST
    return source.kind not in OF_LOAD and not of_publisher


def _steps(
    tracks: Tracks, source: Source, track: Track, interval_s: float
) -> Iterator[tuple[float, float]]:
    """Yields the steps between the readings of a track, from the start of the run on. Before its
    first reading they are those at which the source was read: a metric with labels begins with its
    first count. A source is read where another metric has a reading of the same instant as the
    first one."""
    first_s = track.at_s[0] if track.at_s else 0.0
    for (other, _), beside in tracks.items():
        if other == source and beside.at_s and beside.at_s[0] < first_s and beside.has(first_s):
            yield 0.0, beside.at_s[0]
            for before_s, after_s in beside.steps(interval_s):
                if before_s < first_s:
                    yield before_s, min(after_s, first_s)
            break
    else:
        yield 0.0, first_s
    yield from track.steps(interval_s)


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
    line = slope(chain.from_iterable(part.means() for part in parts))
    return Statistics(
        count=(count := sum(part.count for part in parts)),
        first=values[0],
        last=values[-1],
        min=min(values),
        mean=float(f"{math.fsum(chain.from_iterable(part.sums for part in parts)) / count:.6g}"),
        max=max(values),
        rate_per_s=float(f"{amount / length_s:.6g}") if length_s else None,
        **({} if line is None else line.fields()),
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
    (source, metric), _ = entry
    return source.name, metric, source.kind


def _over(readings: tuple[Track, _Cover | None], spans: Sequence[Span]) -> Statistics:
    track, cover = readings
    found = statistics([track.between(span.from_s, span.to_s) for span in spans])
    return _covered(found, cover, spans)


def _covered(found: Statistics, cover: _Cover | None, spans: Sequence[Span]) -> Statistics:
    missing = {} if cover is None else cover.over(spans)
    return found.model_copy(update=missing) if missing else found


def read_samples(
    run_directory: Path, is_wanted: Wanted | None = None, keeper: Keeper | None = None
) -> Tracks:
    """Returns the samples of a run, by source and metric; `is_wanted` chooses among them. `keeper`
    merges them if there are many. Raises OSError if their file cannot be read."""
    kept = keeper or Keeper()
    lines = journal_lines(run_directory, SAMPLES_FILE)
    kept.read((line.decode() for line in lines), read_sources(run_directory), is_wanted)
    return kept.tracks


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


def samples_in(lines: Iterable[str], sources: Sources) -> Iterator[Sample]:
    """Yields the samples of stored lines, with the points of those that are merged; the header and
    broken lines are left out. A source that is not among the known ones has no group, and is added
    to them."""
    for row in rows(lines):
        with suppress(ValueError):
            at_s, kind, name, metric, value, held, *_ = row
            reading = _reading(at_s, value)
            yield Sample(_source(kind, name, sources), metric, *reading, held == HELD)


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
        source = f"{sample.source.kind},{field_text(sample.source.name)}"
        yield f"{sample.at_s:.3f},{source},{field_text(sample.metric)},{value},{held}\n"


_KIND: TypeAdapter[SourceKind] = TypeAdapter(SourceKind, config=LATER)
