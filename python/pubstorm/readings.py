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

    def within(self, spans: Iterable[Span]) -> Sequence[float]:
        """The values read in some spans."""
        return [
            value
            for span in spans
            for value in self.values[
                bisect_left(self.at_s, span.from_s) : bisect_right(self.at_s, span.to_s)
            ]
        ]


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


def statistics(values: Sequence[float]) -> Statistics:
    """Some readings in short."""
    if not values:
        return Statistics()
    return Statistics(
        count=len(values),
        first=values[0],
        last=values[-1],
        min=min(values),
        mean=float(f"{math.fsum(values) / len(values):.6g}"),
        max=max(values),
    )


def _watched(
    source: str,
    metric: str,
    track: Kept,
    spans: tuple[Mapping[str, Sequence[Span]], Sequence[Span]],
) -> Watched:
    by_name, load = spans
    whole = statistics(track.values)
    return Watched(
        source=source,
        group=group_of(source),
        metric=metric,
        whole=whole,
        load=statistics(track.within(load)) if load else whole,
        spans={name: statistics(track.within(each)) for name, each in by_name.items()},
    )
