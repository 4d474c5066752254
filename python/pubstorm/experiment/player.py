"""Plays the runs of an experiment one after the other, in a folder of its own. A series, a search
and a comparison choose their runs. They share this player, its display of the time to come, and the
journal with folder, brokers, interruption and record."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pubstorm.errors import OtherFormatError, PubstormError, StoredRunError
from pubstorm.experiment.invocation import Invocation, again
from pubstorm.fleet.choice import hosts_of
from pubstorm.host.binaries import engine_path
from pubstorm.host.preflight import MEMORY, HostLimits, agents_here, needs
from pubstorm.host.signals import INTERRUPTED
from pubstorm.plan import provisional_plan
from pubstorm.plan.stages import faulty_bridges
from pubstorm.play.clean_start.remove import remove_bridges
from pubstorm.play.directory import RunDirectory, set_aside
from pubstorm.play.display import Live
from pubstorm.play.display.summary import planned_s
from pubstorm.play.one_run import RunOptions, caught_signals, play_scenario
from pubstorm.quantities import bytes_text, write_duration
from pubstorm.report import (
    SCENARIO_FILE,
    SEARCH_FILE,
    SERIES_FILE,
    holds,
    load_result,
    load_search,
    load_series,
    write_reports,
)
from pubstorm.result import Experiment, RunResult, SearchResult, Series
from pubstorm.result.limits import Probed
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import smallest
from pubstorm.topology import Topology, TopologyContext
from pubstorm.topology.adapters import broker_kinds


class Outlook:
    """The time of runs to come: their plans, and what runs so far took beyond theirs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beyond_s: list[float] = []
        self._began_s = 0.0
        self._planned_s = 0.0

    def begin(self, planned_s: float) -> None:
        """A run begins."""
        self._began_s, self._planned_s = self._clock(), planned_s

    def end(self) -> None:
        """The run has ended."""
        self._beyond_s.append(max(self._clock() - self._began_s - self._planned_s, 0.0))

    def of(self, planned_s: float, runs: float) -> float:
        """Returns the seconds of runs that take some seconds together by their plans."""
        mean_s = sum(self._beyond_s) / len(self._beyond_s) if self._beyond_s else 0.0
        return planned_s + runs * mean_s


def run_s(scenario: Scenario) -> float:
    """Returns the seconds of a run by its plan, with the pause of its experiment."""
    plan = provisional_plan(smallest(scenario))
    experiment = scenario.search or scenario.sweep
    pause_ns = 0 if experiment is None else experiment.pause
    return planned_s(plan, plan.stages) + pause_ns / 1e9


def warm_up_of(scenario: Scenario, warm_up_ns: int) -> tuple[Turn | None, int]:
    """Returns the run that warms the brokers of an experiment up, and how often it takes a time."""
    if not warm_up_ns:
        return None, 0
    first = smallest(scenario)
    once_s = max(run_s(first), 1.0)
    turn = Turn(0, "warm-up", first, "warm-up", "", once_s, reports=False)
    return turn, math.ceil(warm_up_ns / 1e9 / once_s)


E = TypeVar("E")
Played = RunResult | SearchResult | Series | Probed
Playing = Callable[[Path, Live, Topology | None], Awaitable[Played]]
"""Plays an experiment in a folder, or continues it, with brokers that outlive the experiment."""


@dataclass(slots=True, eq=False)
class Turn:
    """One run of an experiment, or one experiment in it, with its outcome."""

    number: int
    """Number from 1, in the order of playing."""
    title: str
    """Line at its start."""
    scenario: Scenario
    folder: str
    """Its folder, in that of the experiment."""
    command: str
    """Command line that plays it alone."""
    planned_s: float
    """Seconds that it takes by its plan, with the pause before it."""
    reports: bool = True
    """True if reports are made of its result."""
    experiment: Playing | None = None
    """Plays the experiment; None: the turn is a run."""
    result: Played | None = None
    """The result; None: no measurement, or not played."""
    unfit: str | None = None
    """Resources that this host lacks, if the turn was not played for that reason."""
    problem: PubstormError | None = None
    """Reason why there is no measurement."""

    @property
    def is_over(self) -> bool:
        """True once there is an outcome."""
        return self.result is not None or self.unfit is not None or self.problem is not None

    @property
    def words(self) -> str:
        """The outcome in a few words; empty for an experiment, which ends with its own."""
        if self.unfit is not None:
            return f"not run: {self.unfit}"
        if self.problem is not None:
            return f"no measurement: {self.problem.message}"
        if isinstance(self.result, RunResult):
            return f"{self.result.verdict.status}, limited by {self.result.verdict.limited_by}"
        return ""


class Runs(ABC, Generic[E]):
    """The runs of an experiment: chooses the next one, and takes the outcome of each."""

    shared: Sequence[Scenario] = ()
    """Scenarios whose brokers all runs use in turn; empty: each run has its own brokers."""

    warm_up: Turn | None = None
    """Run that comes first on shared brokers, and does not count; None: none."""
    warm_up_runs: int = 0
    """Times that it is played."""

    @property
    def pause_ns(self) -> int:
        """Time to wait before the next run, in nanoseconds."""
        return 0

    @abstractmethod
    def turns(self) -> Iterator[Turn]:
        """Yields each turn after the outcome of the turn before. A turn that was played before has
        its result."""

    @abstractmethod
    def take(self, turn: Turn) -> str:
        """Takes the outcome of a turn, and returns the outcome in words; empty: in none."""

    @abstractmethod
    def later_s(self, turn: Turn) -> Sequence[float]:
        """Returns the seconds of each later turn, by its plan."""

    def store(self) -> None:
        """Stores the experiment before the first turn and after each. Default: only its end is
        stored."""

    @abstractmethod
    def finish(self) -> E:
        """Stores the experiment with its reports, however it ended."""


def now() -> str:
    """Returns the wall-clock time, ISO 8601 with offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(slots=True)
class Journal:
    """One experiment that is being played."""

    directory: RunDirectory
    live: Live
    started: str = field(default_factory=now)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the user has ended the experiment."""

    @classmethod
    def create(cls, path: Path, runs: str, files: Mapping[str, str], live: Live) -> Journal:
        """Starts the journal of a new experiment with its first files. `path` must be new or empty;
        `runs` is the folder of its runs."""
        engine_path()
        directory = RunDirectory.create(path, runs)
        for file, text in files.items():
            directory.write(file, text)
        return cls(directory, live)

    @classmethod
    def open(cls, path: Path, started: str, live: Live) -> Journal:
        """Continues the journal of a stored experiment."""
        engine_path()
        return cls(RunDirectory(path), live, started)

    def record(self, asked: Invocation) -> dict[str, Any]:
        """Returns the fields that every stored experiment of a command line has, except its
        name."""
        return {
            "scenario": asked.scenario,
            "target": asked.target,
            "overrides": asked.stored_overrides,
            "run_directory": str(self.directory.path),
            "started": self.started,
            "ended": now(),
            "interrupted": self.interrupted.is_set(),
        }

    def check(self, own: Sequence[object], stored: Sequence[object]) -> None:
        """Raises StoredRunError unless the scenario gives the runs that are stored."""
        if list(own) != list(stored):
            raise StoredRunError(
                f"the runs of {self.directory.path} are not those of its {SCENARIO_FILE}",
                "put the file back as it was, or start anew",
            )

    def write_reports(self) -> None:
        """Writes the report files."""
        for problem in write_reports(self.directory.path, self.directory.write):
            self.live.warn(problem)

    async def pause(self, pause_ns: int) -> None:
        """Waits between two runs, or until the user ends the experiment."""
        if pause_ns:
            self.live.step(f"pause of {write_duration(pause_ns)}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ns / 1e9):
                await self.interrupted.wait()

    @asynccontextmanager
    async def shared_brokers(self, scenarios: Sequence[Scenario]) -> AsyncIterator[Topology]:
        """Brokers that all runs use in turn: the first run starts them, the end stops them. A
        signal while they stop ends nothing."""
        topology = Topology(
            scenarios[0].topology,
            self.directory.topology,
            lambda _: None,
            TopologyContext(
                targets=scenarios[0].target,
                cut=faulty_bridges(*scenarios),
                hosts=hosts_of(scenarios[0], self.directory.logs),
                directory=scenarios[0].directory,
            ),
        )
        plans = [provisional_plan(scenario) for scenario in scenarios]
        topology.keys.make(*plans)
        topology.services.prepare(*plans)
        try:
            yield topology
        finally:
            with caught_signals(lambda _: None):
                await topology.stop()
            for stale_state in await remove_bridges(topology.bridges.outside()):
                self.live.note(f"{stale_state.target}: {stale_state.text}")


class Player(Generic[E]):
    """Plays the runs of an experiment one after the other."""

    def __init__(self, runs: Runs[E], journal: Journal, topology: Topology | None = None) -> None:
        """`topology` has brokers that outlive the experiment."""
        self._runs = runs
        self._journal = journal
        self._live = journal.live
        self._interrupted = journal.interrupted
        self._topology = topology
        self._outlook = Outlook()
        self._after_s = journal.live.after_s
        """Time of runs after this experiment, in seconds."""

    async def play(self) -> E:
        """Plays every turn that has no result yet, and stores the experiment however it ends.
        Raises StoredRunError if another player is in its folder, or if the folder is moved away."""
        directory = self._journal.directory
        # Signals stay caught until the experiment is stored.
        with directory, caught_signals(lambda _: self._interrupted.set()):
            await self._play()
            directory.release()
            if directory.failure is not None:
                self._live.warn(f"{directory.failure}: what is stored is not complete")
            return self._runs.finish()

    async def _play(self) -> None:
        runs = self._runs
        turns = runs.turns()
        turn = next(turns, None)
        runs.store()
        async with contextlib.AsyncExitStack() as stack:
            topology = self._topology
            if topology is None and runs.shared:
                brokers = self._journal.shared_brokers(runs.shared)
                topology = await stack.enter_async_context(brokers)
            if turn is not None and topology is not None:
                await self._warm_up(topology)
            while turn is not None and not self._interrupted.is_set():
                await self._turn(turn, topology)
                if self._interrupted.is_set():
                    break
                turn = next(turns, None)
                runs.store()

    async def _warm_up(self, topology: Topology) -> None:
        """Plays the runs that come first: as many as fill the time by their plan, or fewer where
        they take longer. A fresh folder replaces that of an earlier player."""
        turn, runs = self._runs.warm_up, self._runs.warm_up_runs
        if turn is None:
            return
        until_s = time.monotonic() + runs * turn.planned_s
        for number in range(1, runs + 1):
            if self._interrupted.is_set() or time.monotonic() > until_s:
                return
            self._live.step(f"warm-up {number} of {runs}, which does not count")
            folder = self._journal.directory.path / f"{turn.folder}-{number}"
            if folder.exists():
                set_aside(folder)
            await self._played(turn, folder, topology)

    async def _turn(self, turn: Turn, topology: Topology | None) -> None:
        """Plays a turn after the pause, unless it was played before."""
        if turn.result is None:
            await self._journal.pause(self._runs.pause_ns)
        if self._interrupted.is_set():
            return
        self._live.step(turn.title)
        # In place of a folder that was moved away, another one would be made.
        self._journal.directory.check()
        folder = self._journal.directory.path / turn.folder
        turn.result = kept = turn.result or kept_result(folder)
        if kept is None:
            await self._played(turn, folder, topology)
        if not turn.is_over:
            return
        words = self._runs.take(turn)
        if kept is not None:
            words = f"{_status(kept)}, played before".removeprefix(", ")
        if words:
            self._live.step(f"  {words}")

    async def _played(self, turn: Turn, folder: Path, topology: Topology | None) -> None:
        """Plays a turn. Without an outcome the user has ended it."""
        if turn.experiment is None and (unfit := unfit_here(turn.scenario)) is not None:
            turn.unfit = unfit
            return
        later_s = self._runs.later_s(turn)
        self._outlook.begin(turn.planned_s)
        self._live.after_s = self._after_s + self._outlook.of(sum(later_s), len(later_s))
        try:
            if turn.experiment is not None:
                turn.result = await turn.experiment(folder, self._live, topology)
            else:
                options = RunOptions(folder, turn.command, topology, turn.reports)
                turn.result = await play_scenario(turn.scenario, options, self._live)
        except OtherFormatError:
            raise
        except PubstormError as error:
            if error.exit_code == INTERRUPTED:
                self._interrupted.set()
            else:
                turn.problem = error
            return
        self._outlook.end()
        if turn.result.interrupted:
            self._interrupted.set()


def _status(played: Played) -> str:
    """Returns the verdict in a word; empty for what has none of its own."""
    if isinstance(played, Series | Probed):
        return ""
    return str(played.verdict.status if isinstance(played, RunResult) else played.status)


def kept_result(folder: Path) -> Played | None:
    """Returns the result of a run or an experiment that was played to its end before; None if the
    experiment continues. What is left of another run is set aside. Raises OtherFormatError if
    another version has played the run, which is not played again then."""
    for file, load in ((SEARCH_FILE, load_search), (SERIES_FILE, load_series)):
        if holds(folder, file):
            stored: SearchResult | Series = load(folder)
            return stored if stored.complete else None
    if not folder.exists():
        return None
    try:
        result: RunResult | None = load_result(folder)
    except OtherFormatError:
        raise
    except StoredRunError:
        result = None
    if result is None or result.interrupted:
        set_aside(folder)
        return None
    return result


def unfit_here(scenario: Scenario, host: HostLimits | None = None) -> str | None:
    """Returns the memory that a host lacks for a scenario, in words. A turn that needs more is not
    played, so that the results before it are not lost. None if it suffices, or if the scenario runs
    on a cluster. Default host: this one."""
    if scenario.fleet.on != "local":
        return None
    plan, host = provisional_plan(scenario), host or HostLimits.here()
    agents = agents_here(plan, scenario.fleet, host)
    needed = needs(plan, host, agents=agents, brokers=broker_kinds(scenario.topology))
    memory = next(need for need in needed if need.what == MEMORY)
    if memory.is_met:
        return None
    return (
        f"it needs about {bytes_text(memory.needed)} of memory, "
        f"{bytes_text(memory.available or 0)} are available"
    )


def asked_again(path: Path, stored: Experiment) -> tuple[Scenario, Invocation]:
    """Returns the scenario of a stored experiment, and the command line it came from."""
    asked = Invocation(stored.scenario, stored.overrides, stored.target)
    return again(asked, path / SCENARIO_FILE), asked
