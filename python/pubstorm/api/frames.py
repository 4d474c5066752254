"""Tables of a result as DataFrames of pandas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubstorm.errors import UsageError
from pubstorm.report.stored import load_tracks
from pubstorm.result import Result, SearchResult, Series

if TYPE_CHECKING:
    import pandas

TRACKS: Mapping[str, str] = {
    "latency": r"(?P<column>(ack_)?latency_\w+_us)",
    "load": r"(?P<column>(due|sent|acked|received|skipped)_per_s)",
    "clients": r"(?P<column>connected|ready|offline|stalled|in_flight|missing|backlog)",
    "cpu": r"(?P<column>cpu\w*|busy|thread_cpu_max)",
    "memory": r"(?P<column>\w*rss_bytes|private_bytes|memory_\w+_bytes)",
}
"""Frames over time: the metrics that each has, with their columns."""
PARTS = ("populations", "stages", "flows", "phases", "thresholds", "agents")
"""Frames with a row for each part of the result."""


def frame(stored: Result | Series | SearchResult, folder: Path, name: str) -> pandas.DataFrame:
    """Returns a frame by its name."""
    try:
        import pandas
    except ImportError:
        raise UsageError("frames need pandas", "pip install 'pubstorm[pandas]'") from None
    if isinstance(stored, Series | SearchResult):
        runs = stored.steps if isinstance(stored, Series) else stored.trials
        noun = "steps" if isinstance(stored, Series) else "trials"
        _require(name, (noun,))
        return pandas.json_normalize([run.model_dump(mode="json") for run in runs])
    _require(name, ("samples", *TRACKS, *PARTS))
    if name in PARTS:
        return pandas.json_normalize(list(_rows(stored, name)))
    tracks, problem = load_tracks(folder)
    if problem is not None:
        raise UsageError(f"there is no frame {name}: {problem}")
    pattern = TRACKS.get(name, r"(?P<column>.+)")
    found = [
        (at_s, source, match["column"], value)
        for (source, metric), track in tracks.items()
        if (match := re.fullmatch(pattern, metric))
        for at_s, value in zip(track.at_s, track.values, strict=True)
    ]
    long = pandas.DataFrame(found, columns=["at_s", "source", "metric", "value"])
    if name == "samples":
        return long
    wide = long.pivot_table(index=["at_s", "source"], columns="metric", values="value")
    return wide.rename_axis(columns=None).reset_index()


def _rows(result: Result, name: str) -> Iterator[dict[str, Any]]:
    if name == "populations":
        for population, found in result.populations.items():
            yield {"population": population, **found.model_dump(mode="json")}
        return
    parts = {
        "thresholds": result.verdict.thresholds,
        "agents": result.fleet.agents,
        "stages": result.stages,
        "flows": result.flows,
        "phases": result.phases,
    }
    for part in parts[name]:
        yield part.model_dump(mode="json")


def _require(name: str, allowed: tuple[str, ...]) -> None:
    if name not in allowed:
        raise UsageError(f"found the frame {name!r}, allowed are {', '.join(allowed)}")
