"""What the monitors read, kept by source and metric until the run is over, and in short over named
spans of it. It knows no monitor and no file."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pubstorm.result import Statistics, Watched
from pubstorm.samples import Growth, Sample, growth


@dataclass(frozen=True, slots=True)
class Span:
    """A named part of the run, in seconds after its start; ends included."""

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """All readings of one metric of one source, in the order of time: 17 bytes each."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    held: array[int] = field(default_factory=lambda: array("b"))
    """1 for a reading that repeats the last known value, without news from the source."""

    def within(self, spans: Iterable[Span]) -> list[Kept]:
        """What was read in each of some spans."""
        places = [
            slice(bisect_left(self.at_s, span.from_s), bisect_right(self.at_s, span.to_s))
            for span in spans
        ]
        return [Kept(self.at_s[p], self.values[p], self.held[p]) for p in places]

    def growth(self) -> list[Growth]:
        """Growth of a count between its distinct readings."""
        news = [place for place, is_held in enumerate(self.held) if not is_held]
        return growth([self.at_s[n] for n in news], [self.values[n] for n in news])


class Readings:
    """Everything that was watched in a run."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[str, str], Kept] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Keeps samples; those of one source come in the order of time."""
        for sample in samples:
            track = self._tracks.setdefault((sample.source, sample.metric), Kept())
            track.at_s.append(sample.at_s)
            track.values.append(sample.value)
            track.held.append(sample.held)

    def watched(self, spans: Sequence[Span], load: Sequence[Span]) -> tuple[Watched, ...]:
        """Each figure over the whole run, over the load, and over each name among the spans."""
        by_name: dict[str, list[Span]] = {}
        for span in spans:
            by_name.setdefault(span.name, []).append(span)
        return tuple(
            _watched(source, metric, track, (by_name, load))
            for (source, metric), track in sorted(self._tracks.items())
        )


def group_of(source: str) -> str:
    """The name that sources of one kind share: without the number at its end."""
    return re.sub(r"-\d+$", "", source)


def statistics(parts: Sequence[Kept]) -> Statistics:
    """Readings of some spans in short."""
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
    source: str,
    metric: str,
    track: Kept,
    spans: tuple[Mapping[str, Sequence[Span]], Sequence[Span]],
) -> Watched:
    by_name, load = spans
    whole = statistics([track])
    return Watched(
        source=source,
        group=group_of(source),
        metric=metric,
        whole=whole,
        load=statistics(track.within(load)) if load else whole,
        spans={name: statistics(track.within(each)) for name, each in by_name.items()},
    )
