"""Samples: single readings of everything that is watched, the load included, on the time axis of
the run, and their file `samples.csv`. It knows no monitor and no plot."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SAMPLES_FILE = "samples.csv"
HEADER = ("at_s", "source", "metric", "value")

Unit = Literal["", "share", "bytes", "per_s", "bytes_per_s", "us", "s"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: what `source` showed of `metric` at an instant after the start of the run."""

    at_s: float
    source: str
    """A population, a broker (`broker-0`), `host`, `agent-0`, or a source of the monitors."""
    metric: str
    """Its name, unit last: `cpu`, `rss_bytes`, `sent_per_s`, `$SYS/messages/dropped`."""
    value: float


@dataclass
class Track:
    """All readings of one metric of one source, in the order of time."""

    at_s: list[float]
    values: list[float]


Tracks = dict[tuple[str, str], Track]
"""Tracks by source and metric."""


def unit_of(metric: str) -> Unit:
    """The unit that a metric's name ends with; shares of CPU are of one core, except for `host`."""
    if metric.startswith("cpu") or metric in {"busy", "memory", "thread_cpu_max"}:
        return "share"
    for suffix in _SUFFIXES:
        if metric.endswith(f"_{suffix}"):
            return suffix
    return ""


def read_samples(path: Path) -> Tracks:
    """The samples in a file, by source and metric; a broken last line is left out. Raises OSError
    where it cannot be read."""
    tracks: Tracks = {}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        next(rows, None)
        for row in rows:
            try:
                at_s, source, metric, value = float(row[0]), row[1], row[2], float(row[3])
            except (IndexError, ValueError):
                continue
            track = tracks.setdefault((source, metric), Track([], []))
            track.at_s.append(at_s)
            track.values.append(value)
    return tracks


def csv_lines(samples: Iterable[Sample]) -> Iterable[str]:
    """Samples as lines of the file, without its header."""
    for sample in samples:
        value = format(sample.value, ".15g")
        yield f"{sample.at_s:.3f},{_field(sample.source)},{_field(sample.metric)},{value}\n"


def _field(text: str) -> str:
    if any(character in text for character in ',"\n'):
        return '"' + text.replace('"', '""').replace("\n", " ") + '"'
    return text


_SUFFIXES: tuple[Unit, ...] = ("bytes_per_s", "bytes", "per_s", "us", "s")
