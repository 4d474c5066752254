"""Sums samples up over the whole run, over its load and over named spans of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pubstorm.contract.source import Source
from pubstorm.result import Statistics, Watched
from pubstorm.result.samples import Track, Tracks


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
