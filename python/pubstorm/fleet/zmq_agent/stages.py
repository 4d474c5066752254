"""The stages of an agent and its manners: hello, a snapshot each interval and whenever a stage has
settled, bye. `Play` is what differs between publishers and subscribers."""

from __future__ import annotations

import os
import resource
import time
from typing import Protocol

import zmq

from pubstorm import __version__
from pubstorm.contract.commands import (
    ApplyChange,
    Beat,
    BeatAnswer,
    Bye,
    Close,
    EnterStage,
    Hello,
    Stop,
)
from pubstorm.contract.plan import PlannedStage
from pubstorm.fleet.zmq_agent.part import AgentShard
from pubstorm.fleet.zmq_agent.pipes import Pipes
from pubstorm.fleet.zmq_agent.tally import AgentTally
from pubstorm.quantities import SECOND_NS


class Play(Protocol):
    """The actions of an agent in its stages."""

    def enter(self, stage: PlannedStage, at_ns: int) -> None:
        """Begins a stage at an instant; its population may have no part in the stage."""

    def change(self, change: ApplyChange) -> None:
        """Its population changes."""

    def close(self) -> None:
        """A publish stage ends now."""

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Until a command has come or there is something to do, or for so many seconds."""

    def turn(self, now_ns: int) -> int:
        """Does what there is to do, for about a millisecond at most; when there is more, in
        nanoseconds on the monotonic clock."""

    def settled(self) -> bool:
        """True if this agent has done all of its part in the stage."""

    def end(self) -> None:
        """The run is over."""


class Agent:
    """One agent, from hello to bye."""

    def __init__(self, part: AgentShard, pipes: Pipes, tally: AgentTally) -> None:
        self._part = part
        self._pipes = pipes
        self._tally = tally
        self._stage: int | None = None
        self._coming: EnterStage | None = None
        self._was_settled = False

    def run(self, play: Play) -> None:
        """Plays until the controller stops it or closes stdin."""
        self._greet()
        interval_ns = self._part.plan.snapshot_interval_ns
        next_ns = time.monotonic_ns() + interval_ns
        wake_ns, stopped = 0, False
        while not stopped and not self._pipes.closed:
            coming_ns = wake_ns if self._coming is None else min(wake_ns, self._coming.at_ns)
            stopped = self._take_commands(play, min(coming_ns, next_ns))
            began_ns = time.monotonic_ns()
            if self._coming is not None and began_ns >= self._coming.at_ns:
                self._enter(play, self._coming)
            wake_ns = play.turn(began_ns)
            now_ns = time.monotonic_ns()
            self._tally.now.busy_ns += now_ns - began_ns
            settled = play.settled()
            if now_ns >= next_ns or (settled and not self._was_settled):
                self._snapshot(settled=settled)
            if now_ns >= next_ns:
                next_ns += ((now_ns - next_ns) // interval_ns + 1) * interval_ns
            self._was_settled = settled
        play.end()
        self._snapshot(settled=self._was_settled)
        self._pipes.say(Bye(snapshots=self._tally.snapshots))

    def _greet(self) -> None:
        place, populations = self._part.place, self._part.plan.populations
        own = {place.population: len(self._part.clients)}
        hello = Hello(
            agent=place.agent,
            agents=place.agents,
            version=__version__,
            pid=os.getpid(),
            descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            clients=tuple(own.get(index, 0) for index in range(len(populations))),
            clock_ns=time.monotonic_ns(),
            library=f"pyzmq {zmq.__version__} (libzmq {zmq.zmq_version()})",
        )
        self._pipes.say(hello)

    def _take_commands(self, play: Play, until_ns: int) -> bool:
        """Waits for commands, and takes them; whether it is to stop."""
        wait_ns = until_ns - time.monotonic_ns()
        if wait_ns > 0:
            play.wait(self._pipes, wait_ns / SECOND_NS)
        for command in self._pipes.commands():
            match command:
                case EnterStage():
                    self._coming = command
                case ApplyChange() if command.population == self._part.place.population:
                    play.change(command)
                case Close():
                    play.close()
                case Beat():
                    self._pipes.say(BeatAnswer())
                case Stop():
                    return True
        return False

    def _enter(self, play: Play, coming: EnterStage) -> None:
        """Enters a stage after a last snapshot of the stage before: each covers one stage only."""
        play.close()
        self._snapshot(settled=play.settled())
        stage = self._part.plan.stages[coming.index]
        self._stage, self._coming, self._was_settled = coming.index, None, False
        play.enter(stage, coming.at_ns)

    def _snapshot(self, *, settled: bool) -> None:
        self._pipes.say(self._tally.snapshot(self._stage, settled=settled))
