"""Hands the figures of a run to other programs while it is played. Each export has a thread and a
bounded queue, so that the run waits for none of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pubstorm.contract import Sample
from pubstorm.contract.plan import Plan
from pubstorm.contract.snapshot import Snapshot
from pubstorm.quantities import counted
from pubstorm.result import Event

__all__ = ["Event", "Exports", "FaultState", "Item", "Run", "Samples", "Sink", "Worker"]

QUEUE_MAX = 1000
"""Items that wait for an export; beyond them the oldest is dropped."""
END_S = 3.0
"""Longest time in which the exports finish a run, in seconds, after its load."""


@dataclass(frozen=True, eq=False)
class Run:
    """The run whose figures are exported."""

    name: str
    """Name of its run directory."""
    scenario: str
    plan: Plan
    started_ns: int
    """Start of the first stage on the clock of snapshots, in nanoseconds."""
    started_unix_ns: int
    """The same instant on the wall clock."""

    def unix_ns(self, at_s: float) -> int:
        """Returns an instant after the start on the wall clock, in nanoseconds."""
        return self.started_unix_ns + round(at_s * 1e9)


@dataclass(frozen=True)
class Samples:
    """Samples of load and monitors."""

    samples: Sequence[Sample]


@dataclass(frozen=True)
class FaultState:
    """A fault that begins or ends."""

    name: str
    is_active: bool


Item = Snapshot | Samples | Event | FaultState


class Sink(Protocol):
    """One export. Only its own thread calls its methods."""

    name: str
    """The export in messages."""
    unit: tuple[str, str]
    """Noun for what the sink hands over, in singular and plural."""
    dropped: int
    """Number of units that the sink could not hand over."""
    problem: str
    """The first reason why something was not handed over; empty if there is none."""

    def take(self, run: Run, item: Item) -> None:
        """Takes an item of a run."""

    def rest(self) -> None:
        """Does what is due, about once a second."""

    def end(self) -> None:
        """The run has ended: hands over what waits, as far as that takes no time."""

    def close(self) -> None:
        """Frees what the export holds."""


class Worker:
    """The thread of one export, and its queue."""

    def __init__(self, sink: Sink, queue_max: int) -> None:
        self.sink = sink
        self._queue: deque[tuple[Run, Item] | threading.Event] = deque()
        self._queue_max = queue_max
        self._dropped = 0
        self._reported = 0
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=sink.name, daemon=True)
        self._thread.start()

    def put(self, run: Run, item: Item) -> None:
        """Adds an item. Never waits."""
        while len(self._queue) >= self._queue_max:
            self._queue.popleft()
            self._dropped += 1
        self._queue.append((run, item))
        self._wake.set()

    def asked_to_end(self) -> threading.Event:
        """Lets the export finish a run. Returns what is set once it has."""
        done = threading.Event()
        self._queue.append(done)
        self._wake.set()
        return done

    def new_problem(self) -> str | None:
        """Returns what was lost since the last call, in words; None if nothing was."""
        lost = self._dropped + self.sink.dropped
        if lost == self._reported:
            return None
        count, self._reported = lost - self._reported, lost
        reason = self.sink.problem or "it took them more slowly than they came"
        return f"{self.sink.name}: {counted(count, *self.sink.unit)} did not arrive: {reason}"

    def close(self) -> None:
        """Ends the thread, if that takes no time."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(END_S)

    def _work(self) -> None:
        while not self._is_closed:
            self._wake.wait(1.0)
            self._wake.clear()
            while self._queue:
                self._do(self._queue.popleft())
            self.sink.rest()
        self.sink.close()

    def _do(self, task: tuple[Run, Item] | threading.Event) -> None:
        try:
            if isinstance(task, threading.Event):
                self.sink.end()
            else:
                self.sink.take(*task)
        except Exception as error:  # an export must cost neither the run nor its own thread
            self._dropped += 1
            self.sink.problem = self.sink.problem or f"{type(error).__name__}: {error}"
        finally:
            if isinstance(task, threading.Event):
                task.set()


class Exports:
    """All exports of a command. Without any it does nothing."""

    def __init__(self, sinks: Iterable[Sink] = (), queue_max: int = QUEUE_MAX) -> None:
        self._workers = [Worker(sink, queue_max) for sink in sinks]
        self._run: Run | None = None
        self._faults: dict[str, bool] = {}
        self._events = 0

    @property
    def are_asked_for(self) -> bool:
        """True if there is an export."""
        return bool(self._workers)

    def begin(self, run: Run) -> None:
        """A run begins."""
        self._run, self._events = run, 0
        self._faults = {}

    def take(self, item: Item) -> None:
        """Hands an item to every export. Never waits."""
        if self._run is not None:
            for worker in self._workers:
                worker.put(self._run, item)

    def follow(self, events: Sequence[Event], faults: Iterable[tuple[str, bool]]) -> None:
        """Hands over events that were not there before, and faults that begin or end. Each fault is
        a name, and True if the fault is active."""
        if self._workers:
            for event in events[self._events :]:
                self.take(event)
            self._events = len(events)
            for name, is_active in faults:
                if self._faults.get(name, False) != is_active:
                    self._faults[name] = is_active
                    self.take(FaultState(name, is_active))

    def end(self) -> list[str]:
        """The run has ended. Waits END_S at most. Returns what was not handed over, in words."""
        ended = [worker.asked_to_end() for worker in self._workers]
        deadline = time.monotonic() + END_S
        for each in ended:
            each.wait(max(deadline - time.monotonic(), 0))
        self._run = None
        return [text for worker in self._workers if (text := worker.new_problem())]

    def close(self) -> None:
        """Ends all exports."""
        for worker in self._workers:
            worker.close()
