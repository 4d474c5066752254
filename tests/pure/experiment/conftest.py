"""Series, searches and comparisons whose runs take no time: each run is measured without a program,
as one in which all clients connect and each device sends ten messages."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pubstorm import cli
from pubstorm.errors import TopologyError
from pubstorm.experiment import player as experiment_player
from pubstorm.play import one_run
from pubstorm.play.directory import RunDirectory
from pubstorm.play.display import Live
from pubstorm.play.one_run import RunOptions
from pubstorm.report import RESULT_FILE, SCENARIO_FILE
from pubstorm.result import Measured, Phase, RunResult
from pubstorm.result.figures.table import cells
from pubstorm.result.verdict import evaluate_run
from pubstorm.scenario import Scenario
from pubstorm.scenario.defaults import conditions_of
from tests.kit.measured import measured_run

LOAD = """\
topology: {brokers: {broker: {kind: embedded}}}
populations:
  device:
    clients: 4
    publications: [{topic: "a/{n}", rate: 10/s, qos: 1}]
  backend: {clients: 1, subscriptions: ["a/#"]}
stages: [connect, {publish: 1s}]
"""
CLIENTS = "populations.device.clients"


class Killed(BaseException):
    """The end of the process in the midst of a run."""


@dataclass
class Player:
    """Plays experiments by the command line, in a folder."""

    folder: Path
    runs: list[Scenario] = field(default_factory=list)
    """Every run so far."""
    meanwhile: Callable[[int, Scenario], bool] = lambda _number, _scenario: False
    """Happens in each run, with its number from 1 on. True: a signal ends the run."""
    phases: Callable[[Scenario], tuple[Phase, ...]] = lambda _scenario: ()
    """Returns the phases that each run has."""
    spread: int = 0
    """Messages by which every second run has more."""

    def command(self, *words: str | Path) -> int:
        """Calls `pubstorm`; the exit code."""
        return cli.main([*map(str, words)])

    def run(self, text: str, *, report: bool = False) -> int:
        """Plays a scenario in the folder `out`."""
        file = self.folder / "s.yaml"
        file.write_text(text)
        return self.command("run", file, "--out", self.out, *(() if report else ("--no-report",)))

    def run_to_its_end(self, text: str, how: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Plays a scenario that ends in its midst: `killed` or `interrupted`."""
        if how == "killed":
            with pytest.raises(Killed):
                self.run(text)
        else:
            assert self.run(text) == 130
            assert f"pubstorm run --resume {self.out}" in capsys.readouterr().out

    def resume(self) -> int:
        return self.command("run", "--quiet", "--resume", self.out)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def stored(self, file: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / file).read_text())
        return found

    async def play(self, scenario: Scenario, options: RunOptions, _live: Live) -> RunResult:
        """Stands for the function that plays a run."""
        assert options.out is not None
        self.runs.append(scenario)
        with contextlib.closing(RunDirectory.create(options.out)) as directory:
            directory.write(SCENARIO_FILE, scenario.source_text)
            is_interrupted = self.meanwhile(len(self.runs), scenario)
            found = self._measured(scenario, options, interrupted=is_interrupted)
            result = RunResult.of(found, evaluate_run(found, conditions_of(scenario)))
            result = result.model_copy(update={"table": cells(scenario.table, result)})
            directory.write(RESULT_FILE, result.to_json())
        return result

    def _measured(self, scenario: Scenario, options: RunOptions, **more: Any) -> Measured:
        clients = scenario.populations["device"].clients
        sent = 10 * clients + self.spread * (len(self.runs) % 2)
        there = {"connected_max": clients, "ready_max": clients, "connected_total": clients}
        sums = {"expected_total": sent, "received_total": sent}
        return measured_run(
            name=scenario.name,
            run_directory=str(options.out),
            targets=tuple(map(str, scenario.target)) or ("127.0.0.1:1883",),
            device={"clients": clients, "sent_total": sent, "acked_total": sent, **there},
            backend=sums,
            flow=sums,
            command=options.command,
            phases=self.phases(scenario),
            **more,
        )


@contextlib.contextmanager
def playing(folder: Path) -> Iterator[Player]:
    """Replaces the function that plays a run."""
    player = Player(folder)
    with pytest.MonkeyPatch.context() as patch:
        for module in (experiment_player, one_run):
            patch.setattr(module, "play_scenario", player.play)
        yield player


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    """Plays the experiments of a test."""
    with playing(tmp_path) as made:
        yield made


def refuse(at: int) -> Callable[[int, Scenario], bool]:
    """A broker that does not start in one run."""

    def meanwhile(number: int, _scenario: Scenario) -> bool:
        if number == at:
            raise TopologyError("broker broker-0 exited")
        return False

    return meanwhile


def end(at: int, how: str) -> Callable[[int, Scenario], bool]:
    """The end of the experiment in one run: `killed` or `interrupted`."""

    def meanwhile(number: int, _scenario: Scenario) -> bool:
        if number == at and how == "killed":
            raise Killed
        return number == at

    return meanwhile


def resume_beside(player: Player, codes: list[int]) -> Callable[[int, Scenario], bool]:
    """A second player of the folder in each run, which leaves its exit code."""

    def meanwhile(_number: int, _scenario: Scenario) -> bool:
        # A loop of its own needs a thread.
        second = threading.Thread(target=lambda: codes.append(player.resume()))
        second.start()
        second.join()
        return False

    return meanwhile
