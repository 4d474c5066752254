"""What the monitors saw, in short: each watched figure over the whole run and over each stage and
phase. The readings themselves are in `samples.csv`. It knows no monitor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pubstorm.value import Value


class Statistics(Value):
    """Readings of a span, in short; zeros where there are none."""

    count: int = 0
    """Readings."""
    first: float = 0.0
    """The first."""
    last: float = 0.0
    """The last."""
    min: float = 0.0
    """The smallest."""
    mean: float = 0.0
    """Arithmetic mean."""
    max: float = 0.0
    """The largest."""
    rate_per_s: float | None = None
    """Growth of a count per second, from the first distinct reading to the last. A count that
    falls started again at zero. null: fewer than two distinct readings."""


class Watched(Value):
    """One figure of one source."""

    source: str
    """A broker (`broker-0`) or many of one name (`boxes`), `host`, `agent-0`, bridges, a source of
    the monitors, or for its rates a population."""
    group: str
    """What a threshold may call it: the source without its number."""
    metric: str
    """Its name, unit last."""
    whole: Statistics
    """Over the whole run."""
    load: Statistics
    """Over the publish stages, without their drains; equal to `whole` where there are none."""
    spans: dict[str, Statistics] = Field(default_factory=dict)
    """Over each stage and each phase, by name."""


class Observer(Value):
    """A client that only watches, and is load for the broker too. Its traffic is in no other
    figure."""

    name: str
    """The source it reads for."""
    target: str
    """Where it is connected."""
    topics: tuple[str, ...]
    """What it subscribes to."""
    received_total: int
    """Messages that it received."""
    received_bytes: int
    """Their payloads together, in bytes."""
    problem: str | None = None
    """What kept it from watching, if anything did."""


class MonitorGap(Value):
    """A time in which the controller did not run: no monitor was read."""

    from_s: float
    """Its start, after that of the run."""
    to_s: float
    """Its end."""


class MonitorProblem(Value):
    """Something that could not be watched."""

    source: str
    """What was to be watched."""
    at_s: float
    """When, after the start of the run."""
    text: str
    """What was found, and what to do."""


class ProfiledSymbol(Value):
    """A function in the profile of a broker."""

    share: float
    """Share of the samples that were in it."""
    command: str
    """The program."""
    module: str
    """The file or kernel that it is in."""
    symbol: str
    """Its name."""


class ProfileResult(Value):
    """What `perf record` found, or why there is no profile."""

    broker: str
    """What was profiled."""
    stage: str
    """In which stage."""
    status: Literal["recorded", "missing"]
    """missing: perf is not there, not allowed, or found nothing."""
    text: str
    """What was done, or what is missing and how to get it."""
    samples_total: int = 0
    """Samples taken."""
    symbols: tuple[ProfiledSymbol, ...] = ()
    """Those with the largest shares, largest first."""
    folded_file: str | None = None
    """File of folded stacks in the run directory, one `a;b;c count` on each line."""


class Residue(Value):
    """What was found on a broker before the run, or left by it and removed."""

    target: str
    """The broker."""
    when: Literal["before", "after"]
    """Before the run, or after it."""
    what: Literal["retained", "sessions", "queued", "unknown"]
    """Retained messages that this run's clients would get or that its topics have; sessions of
    this run's client identifiers; messages queued for them; or it could not be looked for."""
    total: int
    """How many."""
    text: str
    """In words, with examples."""
