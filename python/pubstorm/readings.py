"""What the monitors read, kept by source and metric until the run is over, and in short over named
spans of it. It knows no monitor and no file."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pubstorm.result import Statistics, Watched
from pubstorm.samples import Sample


@dataclass(frozen=True, slots=True)
class Span:
    """A named part of the run, in seconds after its start; ends included."""

    name: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """All readings of one metric of one source, in the order of time: 16 bytes each."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def within(self, spans: Iterable[Span]) -> list[Kept]:
        """What was read in each of some spans."""
        places = [
            slice(bisect_left(self.at_s, span.from_s), bisect_right(self.at_s, span.to_s))
            for span in spans
        ]
        return [Kept(self.at_s[place], self.values[place]) for place in places]

    def growth(self) -> float:
        """By how much a count has grown; one that fell began anew at zero."""
        pairs = pairwise(self.values)
        return math.fsum(value - before if value >= before else value for before, value in pairs)

    @property
    def length_s(self) -> float:
        """Time from the first reading to the last."""
        return self.at_s[-1] - self.at_s[0] if self.at_s else 0.0


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
    length_s = sum(part.length_s for part in parts)
    growth = sum(part.growth() for part in parts)
    return Statistics(
        count=len(values),
        first=values[0],
        last=values[-1],
        min=min(values),
        mean=float(f"{math.fsum(values) / len(values):.6g}"),
        max=max(values),
        rate_per_s=float(f"{growth / length_s:.6g}") if length_s else 0.0,
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
