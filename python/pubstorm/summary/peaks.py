"""The largest sums over all populations of a run. Pure arithmetic on what was read over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pubstorm.merge import Totals
from pubstorm.result import Peak, Peaks
from pubstorm.samples import Tracks


def peaks(totals: Totals, tracks: Tracks, populations: Collection[str]) -> Peaks:
    """The peaks of a run; its rates are those of the time axis, whose spans all populations
    share."""
    return Peaks(
        connected=totals.connected_peak(),
        sent_per_s=_peak(tracks, populations, "sent_per_s"),
        received_per_s=_peak(tracks, populations, "received_per_s"),
    )


def _peak(tracks: Tracks, populations: Collection[str], metric: str) -> Peak:
    sums: dict[float, float] = defaultdict(float)
    for (source, name), track in tracks.items():
        if source in populations and name == metric:
            for at_s, value in zip(track.at_s, track.values, strict=True):
                sums[at_s] += value
    if not any(sums.values()):
        return Peak()
    at_s, value = max(sums.items(), key=lambda each: each[1])
    return Peak(value=round(value, 2), at_s=at_s)
