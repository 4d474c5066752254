"""A publisher under test: one PUB socket, written to as a Python program would, on an absolute
schedule or as fast as it can. It never blocks, and libzmq never reports dropped messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import zmq

from pubstorm.contract.commands import ApplyChange
from pubstorm.contract.flows import OpenPace
from pubstorm.contract.plan import (
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    PlannedStage,
    PublishAction,
)
from pubstorm.fleet.zmq_agent.messages import SEQUENCE_MASK, STAMP, Messages
from pubstorm.fleet.zmq_agent.part import AgentShard
from pubstorm.fleet.zmq_agent.pipes import Pipes
from pubstorm.fleet.zmq_agent.schedule import NEVER_NS, Pacer, Tempo
from pubstorm.fleet.zmq_agent.sockets import Gate, publisher_socket
from pubstorm.fleet.zmq_agent.tally import AgentTally

BATCH = 16
"""Messages that share one reading of the clock at most, where it is behind its schedule."""
SOME_MAX = 16 * BATCH
"""Messages that are due by one look at the schedule at most."""
TURN_NS = 10**6
"""Longest time of sending between two checks for commands."""
LAST_NS = 10**7
"""Longest time in which it sends what was scheduled before the end of its stage. The last message
is scheduled just before the end, and the process may have no processor then."""
LOOK_NS = 10**7
"""Interval at which libzmq checks for new subscriptions while the publisher sends nothing."""


class PublisherStage:
    """A publish stage of this publisher."""

    def __init__(self, action: PublishAction, start_ns: int, population: int) -> None:
        self.start_ns = start_ns
        self.end_ns = start_ns + action.duration_ns
        self.tempo = Tempo()
        self.scheduled = 0
        """Messages of the schedule that are sent or skipped."""
        self._changes = deque(
            (start_ns + change.after_ns, change.action.factor)
            for change in action.changes
            if change.population == population and isinstance(change.action, ChangeRate)
        )

    @property
    def change_ns(self) -> int:
        """The instant of its next change of rate."""
        return self._changes[0][0] if self._changes else NEVER_NS

    def add(self, at_ns: int, factor: float) -> None:
        """Its rate will change, other than planned."""
        self._changes = deque(sorted([*self._changes, (at_ns, factor)]))

    def apply_changes(self, now_ns: int) -> None:
        """Changes its rate where that is due."""
        while self._changes and self._changes[0][0] <= now_ns:
            at_ns, factor = self._changes.popleft()
            self.tempo.change(max(at_ns - self.start_ns, 0), factor)


class PublisherClient:
    """The one client of a publisher's agent."""

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        self._part, self._tally = part, tally
        self._client = part.clients[0]
        self._context = zmq.Context(part.options.io_threads)
        self._gate = Gate(self._context, part)
        self._socket = publisher_socket(self._context, part, self._client)
        self._messages = Messages(part, self._client)
        publication = part.population.publications[0]
        self._skips_late, self._pacer = False, None
        if isinstance(pace := publication.pace, OpenPace):
            index = part.first_publication(part.place.population)
            self._pacer = Pacer.of(pace, part.plan.seed, index, self._client)
            self._skips_late = pace.late == "skip"
        self._number = 0
        """The next message's, over the whole run."""
        self._buffer = bytearray(b"." * (plain[2] if (plain := self._messages.plain) else 0))
        self._plain = plain
        self._load: PublisherStage | None = None
        self._set_gauges(1)

    def enter(self, stage: PlannedStage, at_ns: int) -> None:
        """Begins to publish where the stage says so; all other stages are settled at once."""
        if self._part.place.population not in stage.populations:
            return
        action = stage.action
        if isinstance(action, PublishAction):
            self._load = PublisherStage(action, at_ns, self._part.place.population)
            self._look()
        elif isinstance(action, ConnectAction | DisconnectAction):
            self._set_gauges(int(isinstance(action, ConnectAction)))

    def change(self, change: ApplyChange) -> None:
        """Its rate changes."""
        if self._load is not None and isinstance(change.action, ChangeRate):
            self._load.add(change.at_ns, change.action.factor)

    def close(self) -> None:
        """Sends what is due, and nothing more in this stage."""
        if self._load is not None:
            self._load.end_ns = min(self._load.end_ns, time.monotonic_ns())
            self._finish(self._load)

    def wait(self, pipes: Pipes, wait_s: float) -> None:
        """Nothing but commands comes in."""
        pipes.wait(wait_s)

    def turn(self, now_ns: int) -> int:
        """Sends what is due."""
        load = self._load
        if load is None:
            return self._idle(now_ns)
        if now_ns < load.start_ns:
            return min(load.start_ns, self._idle(now_ns))
        turn_ends_ns = now_ns + TURN_NS
        while now_ns < turn_ends_ns:
            load.apply_changes(now_ns)
            if now_ns >= load.end_ns:
                self._finish(load)
                return now_ns
            if not self._send_some(load, now_ns):
                return min(self._next_ns(load), self._idle(now_ns))
            now_ns = time.monotonic_ns()
        return now_ns

    def settled(self) -> bool:
        """True if it has no more to send in this stage."""
        return self._load is None

    def end(self) -> None:
        """Closes the socket; what is queued is thrown away."""
        self.close()
        self._gate.close()
        self._socket.close()
        self._context.term()

    def _send_some(self, load: PublisherStage, now_ns: int) -> bool:
        """Sends some of the messages that are due; whether there were any."""
        pacer = self._pacer
        if pacer is None:
            if load.tempo.factor == 0.0:
                return False
            self._send(None, SOME_MAX)
            return True
        until_ns = min(now_ns + 1, load.end_ns, load.change_ns) - load.start_ns
        count = pacer.due_before(load.tempo.schedule_before(until_ns)) - load.scheduled
        if count <= 0:
            return False
        dues = self._dues(load, pacer, min(count, SOME_MAX))
        load.scheduled += len(dues)
        if self._skips_late:
            behind_ns = pacer.period_ns / max(load.tempo.factor, 1e-9)
            in_time = [due_ns for due_ns in dues if now_ns - due_ns <= behind_ns]
            self._tally.now.counters["skipped_total"] += len(dues) - len(in_time)
            dues = in_time
        if dues:
            self._send(dues, len(dues))
        return True

    def _dues(self, load: PublisherStage, pacer: Pacer, count: int) -> list[int]:
        """The instant at which the next messages are scheduled."""
        start_ns, dues = load.start_ns, pacer.dues(load.scheduled, count)
        if load.tempo.is_changed:
            return [start_ns + load.tempo.real_ns(due_ns) for due_ns in dues]
        return [start_ns + due_ns for due_ns in dues]

    def _send(self, dues: Sequence[int] | None, count: int) -> None:
        """Gives so many messages to libzmq; without instants they are due as they are sent."""
        give = self._give_frames if self._plain is None else self._give_alike
        late_ns: list[int] = []
        sent_bytes = 0
        for first in range(0, count, BATCH):
            now_ns = time.monotonic_ns()
            if dues is None:
                sent_bytes += give([now_ns] * BATCH, now_ns)
            else:
                few = dues[first : first + BATCH]
                sent_bytes += give(few, now_ns)
                late_ns += [now_ns - due_ns for due_ns in few]
        if late_ns:
            self._tally.now.lateness.record_all(late_ns)
        counters = self._tally.now.counters
        counters["sent_total"] += count
        counters["packets_sent_total"] += count
        counters["bytes_sent_total"] += sent_bytes

    def _give_alike(self, dues: Sequence[int], now_ns: int) -> int:
        """Sends messages that only differ in their stamps; their bytes."""
        assert self._plain is not None, "they are alike"
        run_tag, key, size = self._plain
        send, buffer, pack_into = self._socket.send, self._buffer, STAMP.pack_into
        number = self._number
        for due_ns in dues:
            pack_into(buffer, 0, run_tag, number & SEQUENCE_MASK, key, due_ns, now_ns)
            send(buffer)
            number += 1
        self._number = number
        return size * len(dues)

    def _give_frames(self, dues: Sequence[int], now_ns: int) -> int:
        """Sends messages of any kind; their bytes."""
        send, sent_bytes = self._socket.send, 0
        for due_ns in dues:
            *topic, payload = self._messages.frames(self._number, due_ns, now_ns)
            for frame in topic:
                send(frame, zmq.SNDMORE)
                sent_bytes += len(frame)
            send(payload)
            sent_bytes += len(payload)
            self._number += 1
        return sent_bytes

    def _next_ns(self, load: PublisherStage) -> int:
        """The instant of the next work in this stage."""
        next_ns = min(load.end_ns, load.change_ns)
        if self._pacer is None:
            return next_ns
        return min(next_ns, self._dues(load, self._pacer, 1)[0])

    def _idle(self, now_ns: int) -> int:
        self._look()
        return now_ns + LOOK_NS

    def _look(self) -> None:
        """A PUB socket takes subscriptions in when its own thread calls it."""
        self._socket.getsockopt(zmq.EVENTS)

    def _finish(self, load: PublisherStage) -> None:
        """Sends what is due, for a while; skips the rest."""
        if self._pacer is not None:
            load.apply_changes(load.end_ns)
            now_ns = time.monotonic_ns()
            last_ns = now_ns + LAST_NS
            while now_ns < last_ns and self._send_some(load, now_ns):
                now_ns = time.monotonic_ns()
            elapsed_ns = load.tempo.schedule_before(max(load.end_ns - load.start_ns, 0))
            skipped = self._pacer.due_before(elapsed_ns) - load.scheduled
            self._tally.now.counters["skipped_total"] += max(skipped, 0)
            load.scheduled += max(skipped, 0)
        self._load = None

    def _set_gauges(self, there: int) -> None:
        self._tally.gauges["connected"] = self._tally.gauges["ready"] = there
