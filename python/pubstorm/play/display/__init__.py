"""The display of a run. `Summary` is the state of the run at one instant; a `Live` shows one after
another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pubstorm.exports import Exports
from pubstorm.output import warn
from pubstorm.quantities import span_text
from pubstorm.result import Latency

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class PopulationSummary:
    """A population at one instant."""

    name: str
    clients: int
    figures: Mapping[str, float] = field(default_factory=dict)
    """By the names of samples; what is not among them is 0."""


@dataclass(frozen=True)
class StageTime:
    """The progress of a stage."""

    name: str
    """Name of the stage."""
    number: int
    """Number from 1."""
    stages: int
    """Number of stages."""
    share: float
    """Share of the stage that is done, 0 to 1."""
    connected_share: float
    """Share of its clients that are connected, 0 to 1."""
    left_s: float | None
    """Time left in the stage; None: the stage ends on a condition."""
    rest_s: float
    """Least time that this stage and later ones still take."""

    def left_text(self, after_s: float) -> str:
        """Returns the time that is left of the whole run, series or search."""
        return f"about {span_text(self.rest_s + after_s)} left in all"


@dataclass(frozen=True)
class Summary:
    """A run at one instant. Rates and latency are those of the last interval."""

    elapsed_s: float
    time: StageTime
    """Progress of the stage."""
    populations: tuple[PopulationSummary, ...]
    publishes: bool = False
    """True if clients publish in the stage."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Messages since the start, by the names of their rates without `_per_s`."""
    latency: Latency = field(default_factory=Latency)
    """From the intended send to the delivery, or to the acknowledgement if there are no
    receivers."""
    round_trip: Latency = field(default_factory=Latency)
    """From the intended send of a request to its answer."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Problems since the start, by reason."""
    busy_share: float = 0.0
    """Share of its time that the busiest agent was not waiting."""


class Live:
    """Shows a run while it is played. This one shows nothing: displays override its methods."""

    takes_keys = False
    """True if the user at the display can steer the run."""
    after_s = 0.0
    """Time that further runs of a series or a search take after the present one, in seconds."""
    exports = Exports()
    """Other programs that get the figures of the runs."""

    def begin(self, name: str, folder: Path) -> None:
        """The run `name` starts, in its folder."""

    def step(self, text: str) -> None:
        """One line about a step of a series."""

    def starting(self, text: str) -> None:
        """Progress of the start of the run, about once a second if it takes that long."""

    def show(self, summary: Summary) -> None:
        """The state of the run, about once a second."""

    def note(self, text: str) -> None:
        """One line about something that happened."""

    def warn(self, text: str) -> None:
        """One line about something that the user has to know, even of a quiet run. Default: a
        note."""
        self.note(text)

    @cached_property
    def _warned(self) -> set[str]:
        """Subjects of warnings of the runs that were shown."""
        return set()

    def warn_once(self, text: str, subject: str) -> None:
        """Warns, unless a run of the same series, search or data sheet has warned of the
        subject."""
        if subject not in self._warned:
            self._warned.add(subject)
            self.warn(text)

    def suspend(self) -> None:
        """The process stops until the user continues it."""

    def resume(self) -> None:
        """The process continues."""

    def end(self) -> None:
        """Nothing more comes; what was drawn is taken away. May be called twice."""


class QuietLive(Live):
    """Shows what the user has to know."""

    def warn(self, text: str) -> None:
        """Prints the line on stderr."""
        warn(f"! {text}")


def live_for(consoles: Sequence[Console], progress_ns: int) -> Live:
    """A display on the first of the consoles that is a terminal; without one, lines on stderr, one
    each `progress_ns`."""
    from pubstorm.play.display.summary import PlainLive
    from pubstorm.play.display.terminal import TerminalLive

    found = next((console for console in consoles if console.is_terminal), None)
    return PlainLive(progress_ns) if found is None else TerminalLive(found)
