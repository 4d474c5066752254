"""Journal of an experiment: its folder, its brokers, its interruption, and its record after each
run. Series and searches share it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pubstorm.errors import OtherFormatError, StoredRunError
from pubstorm.experiment.invocation import Invocation, again
from pubstorm.fleet.choice import hosts_of
from pubstorm.host.binaries import engine_path
from pubstorm.plan import provisional_plan
from pubstorm.plan.faults import faulty_bridges
from pubstorm.play.clean_start.bridges import remove_bridges
from pubstorm.play.directory import RunDirectory, set_aside
from pubstorm.play.display import Live
from pubstorm.play.interruption import caught_signals
from pubstorm.quantities import write_duration
from pubstorm.report import SCENARIO_FILE, load_result, write_reports
from pubstorm.result import Experiment, Result
from pubstorm.scenario import Scenario
from pubstorm.topology import Around, Topology

E = TypeVar("E", bound=Experiment)


def now() -> str:
    """Returns the wall-clock time, ISO 8601 with offset."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(slots=True)
class Journal:
    """One experiment that is being played."""

    directory: RunDirectory
    asked: Invocation
    """Command line of the experiment; in a series, of this step alone."""
    live: Live
    started: str = field(default_factory=now)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the user has ended the experiment."""

    @classmethod
    def create(
        cls, path: Path, runs: str, scenario: Scenario, asked: Invocation, live: Live
    ) -> Journal:
        """Starts the journal of a new experiment. `path` must be new or empty; `runs` is the folder
        of its runs."""
        engine_path()
        directory = RunDirectory.create(path, runs)
        directory.write(SCENARIO_FILE, scenario.source_text)
        return cls(directory, asked, live)

    @classmethod
    def open(cls, path: Path, stored: Experiment, asked: Invocation, live: Live) -> Journal:
        """Continues the journal of a stored experiment."""
        engine_path()
        return cls(RunDirectory(path), asked, live, stored.started)

    @property
    def record(self) -> dict[str, Any]:
        """Fields that every stored experiment has, except its name."""
        return {
            "scenario": self.asked.scenario,
            "target": self.asked.target,
            "overrides": self.asked.stored_overrides,
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

    async def keep(
        self, play: Callable[[], Coroutine[Any, Any, None]], store: Callable[[], E]
    ) -> E:
        """Plays an experiment, and stores it however it ends. Raises StoredRunError if another
        player is in its folder, or if the folder is moved away."""
        # Signals stay caught until the experiment is stored.
        with self.directory, caught_signals(lambda _: self.interrupted.set()):
            await play()
            self.directory.release()
            if self.directory.failure is not None:
                self.live.warn(f"{self.directory.failure}: what is stored is not complete")
            return store()

    def folder(self, name: str) -> Path:
        """Returns the folder of the run that is played next. Raises StoredRunError if the folder of
        the experiment is not in its place any more: it would be made anew."""
        self.directory.check()
        return self.directory.path / name

    def write_reports(self) -> None:
        """Writes the report files, unless the user wants none."""
        if self.asked.reports:
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
            Around(
                targets=scenarios[0].target,
                cut=faulty_bridges(*scenarios),
                hosts=hosts_of(scenarios[0], self.directory.logs),
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


def kept_result(folder: Path) -> Result | None:
    """Returns the result of a run that was played to its end before. What is left of another run is
    set aside. Raises OtherFormatError if another version has played the run, which is not played
    again then."""
    if not folder.exists():
        return None
    try:
        result: Result | None = load_result(folder)
    except OtherFormatError:
        raise
    except StoredRunError:
        result = None
    if result is None or result.interrupted:
        set_aside(folder)
        return None
    return result


def asked_again(path: Path, stored: Experiment) -> tuple[Scenario, Invocation]:
    """Returns the scenario of a stored experiment, and the command line it came from."""
    asked = Invocation(stored.scenario, stored.overrides, stored.target)
    return again(asked, path / SCENARIO_FILE), asked
