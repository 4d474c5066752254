"""The agent of pyzmq as a real process, and plans for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import zmq

from pubstorm.contract.commands import (
    AGENT_LINE,
    AnyAgentLine,
    ApplyChange,
    Bye,
    Close,
    EnterStage,
    Hello,
    Resume,
    Stop,
)
from pubstorm.contract.plan import (
    Action,
    ConnectAction,
    Plan,
    PlannedPopulation,
    PlannedReconnect,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.protocol import (
    FixedPayload,
    OpenPace,
    PlannedPublication,
    PlannedSubscription,
    Zmtp,
)
from pubstorm.contract.snapshot import Snapshot
from pubstorm.contract.sums import RunSum
from pubstorm.contract.target import Target
from tests.kit import made
from tests.kit.ports import free_port

Context = zmq.Context[zmq.Socket[bytes]]

EXIT_TIMEOUT_S = 60
SNAPSHOTS_MAX = 300
CONNECT = ConnectAction(rate_per_s=None, parallelism=None, timeout_ns=10**9)
PUBLISH = PublishAction(duration_ns=10**8)


class Agent:
    """A process that plays one population of a plan."""

    def __init__(self, plan: Plan, population: int, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pubstorm.fleet.zmq_agent"),
                *("--agent", "1", "--agents", "2", "--population", str(population)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=dict(environment),
        )
        self.sums = RunSum()
        self.snapshots: list[Snapshot] = []
        self._write(plan.to_line())

    def read(self) -> AnyAgentLine:
        """Its next line."""
        assert self.process.stdout is not None
        said = AGENT_LINE.validate_json(self.process.stdout.readline())
        if isinstance(said, Snapshot):
            self.snapshots.append(said)
            self.sums.take(said)
        return said

    def hello(self) -> Hello:
        """Its first line."""
        said = self.read()
        assert isinstance(said, Hello), said
        return said

    def begin(self, stage: int = 0) -> None:
        """Has it enter its first stage."""
        self.hello()
        self.enter(stage)

    def send(self, command: EnterStage | Resume | ApplyChange | Close | Stop) -> None:
        """Sends a command to the agent."""
        self._write(command.model_dump_json() + "\n")

    def enter(self, stage: int) -> None:
        """Has it enter a stage now."""
        self.send(EnterStage(index=stage, at_ns=time.monotonic_ns()))

    def until(self, done: Callable[[Snapshot], bool]) -> Snapshot:
        """Reads to the first snapshot for which `done` holds."""
        for _ in range(SNAPSHOTS_MAX):
            said = self.read()
            assert isinstance(said, Snapshot), said
            if done(said):
                return said
        pytest.fail(f"that did not come within {SNAPSHOTS_MAX} snapshots")

    def settle(self, stage: int) -> Snapshot:
        """Reads until a stage is settled."""
        return self.until(lambda snapshot: snapshot.stage == stage and snapshot.settled)

    def stop(self) -> int:
        """Has it say bye; its exit code."""
        self.send(Stop())
        while not isinstance(said := self.read(), Bye):
            pass
        assert said.snapshots == len(self.snapshots)
        return self.process.wait(EXIT_TIMEOUT_S)

    def count(self, counter: str, population: int) -> int:
        """Value of a counter of a population."""
        counted: int = getattr(self.sums.population([population]).counters, counter)
        return counted

    def end(self) -> None:
        """It is gone afterwards."""
        self.process.kill()
        self.process.wait(EXIT_TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()


AgentMaker = Callable[..., Agent]


@pytest.fixture
def context() -> Iterator[Context]:
    with zmq.Context() as made:
        yield made


@pytest.fixture
def agent() -> Iterator[AgentMaker]:
    """Starts agents, which end with the test."""
    started: list[Agent] = []

    def start(plan: Plan, population: int = 0, **variables: str) -> Agent:
        started.append(Agent(plan, population, {**os.environ, **variables}))
        return started[-1]

    yield start
    for each in started:
        each.end()


def publication(**parts: Any) -> PlannedPublication:
    """32 bytes at 1000 a second."""
    pace = OpenPace(period_ns=10**6, spread=0, jitter=0, phase="aligned", late="send")
    fields = {"topic": "", "qos": 0, "retain": False, "pace": pace, "window": 1}
    return PlannedPublication(**{**fields, "payload": FixedPayload(bytes=32), **parts})


def population(name: str, **parts: Any) -> PlannedPopulation:
    """Clients of pyzmq at the only target."""
    fields: dict[str, Any] = {
        "protocol": Zmtp(player="pyzmq", high_water_mark=1000),
        "clients": 1,
        "reconnect": PlannedReconnect(min_ns=10**7, max_ns=10**7),
    }
    return made.clients(name, **{**fields, **parts})


def subscriber(**parts: Any) -> PlannedPopulation:
    """One client that subscribes to everything."""
    return population("subscriber", subscriptions=(PlannedSubscription(filter="", qos=0),), **parts)


def feed(*publications: PlannedPublication, **parts: Any) -> PlannedPopulation:
    """One publisher."""
    return population("feed", publications=publications or (publication(),), **parts)


def plan(*populations: PlannedPopulation, actions: tuple[Action, ...] = (CONNECT, PUBLISH)) -> Plan:
    """All populations in all stages, at a free port of this host."""
    everybody = tuple(range(len(populations)))
    return made.plan(
        *populations,
        run_tag=77,
        targets=(Target(host="127.0.0.1", port=free_port()),),
        snapshot_interval_ns=10**8,
        drain_ns=10**8,
        stages=tuple(
            PlannedStage(name=action.kind, action=action, populations=everybody)
            for action in actions
        ),
    )
