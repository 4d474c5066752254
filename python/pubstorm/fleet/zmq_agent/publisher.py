"""A publisher under test: one PUB socket, written to as a Python program would, on an absolute
schedule or as fast as it can. It never blocks, and libzmq never reports dropped messages. Content
and schedule of its messages are those of the engine (`crates/plan/src/schedule/pacer.rs`,
`tempo.rs`)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from pubstorm.contract.commands import ApplyChange, Resume
from pubstorm.contract.offered_load import holds_stamp, template_of
from pubstorm.contract.plan import (
    ChangeRate,
    ConnectAction,
    DisconnectAction,
    PlannedStage,
    PublishAction,
)
from pubstorm.contract.protocol import (
    FixedPayload,
    GaussianPayload,
    HistogramPayload,
    OpenPace,
    TextPayload,
)
from pubstorm.contract.template import STAMP_BYTES, MessageFacts, Random, Template
from pubstorm.fleet.agents.frame import NEVER_NS, STAMP, AgentShard, AgentTally, Pipes
from pubstorm.fleet.zmq_agent.sockets import LIBRARY, Gate, options_of, publisher_socket

SEQUENCE_MASK = 0xFFFF_FFFF
FILLER = b"."
ORDER_PURPOSE = 2 << 40
EXCHANGES = 16
VARIANTS_MAX = 1 << 16


class Messages:
    """The messages of one client, by their numbers from 0 over the whole run."""

    def __init__(self, part: AgentShard, client: int) -> None:
        population = part.population
        publication = population.publications[0]
        seed = part.plan.seed
        index = part.first_publication(part.place.population)
        topic = template_of(population, publication.topic)
        self._client = client
        self._n = population.first + client
        self._run_tag = part.plan.run_tag
        self._key = index << 48 | client
        self._payload = publication.payload
        self._stamped = holds_stamp(publication)
        self._topics = [
            topic.text(self._n, variant).encode()
            for variant in range(min(topic.variants, VARIANTS_MAX))
        ]
        shuffled = publication.order == "shuffled" and len(self._topics) > 1
        self._order = Random.new(seed, ORDER_PURPOSE + index) if shuffled else None
        self._sizes = Random.new(seed, 2 * index + 1).of(client)
        self._chance = MessageFacts.stream(seed, index).of(client)
        self._since_1970_ns = time.time_ns() - time.monotonic_ns()
        self._text: Template | None = None
        if isinstance(publication.payload, TextPayload):
            self._text = template_of(population, publication.payload.template)

    @property
    def plain(self) -> tuple[int, int, int] | None:
        """Run tag, key and size, where every message is one frame of one size with a stamp: those
        can be made without asking for each."""
        payload = self._payload
        if not isinstance(payload, FixedPayload) or payload.bytes < STAMP_BYTES:
            return None
        return (self._run_tag, self._key, payload.bytes) if self._topics == [b""] else None

    def frames(self, number: int, intended_ns: int, actual_ns: int) -> Sequence[bytes]:
        """The frames of a message: the payload, after the topic unless that is empty."""
        count = len(self._topics)
        variant = self._variant(number)
        stamp = STAMP.pack(
            self._run_tag,
            number // count & SEQUENCE_MASK,
            self._key | variant << 32,
            intended_ns,
            actual_ns,
        )
        payload = self._body(number, variant, stamp, actual_ns)
        topic = self._topics[variant]
        return (topic, payload) if topic else (payload,)

    def _body(self, number: int, variant: int, stamp: bytes, actual_ns: int) -> bytes:
        payload = self._payload
        if self._text is not None:
            time_ms = (actual_ns + self._since_1970_ns) // 1_000_000
            chance = self._chance.of(number)
            facts = MessageFacts(number, len(self._topics), chance, time_ms, stamp)
            return self._text.message_text(self._n, variant, facts).encode()
        if isinstance(payload, GaussianPayload):
            deviation = normal(self._sizes.of(number)) * payload.sd_bytes
            size = max(math.floor(payload.mean_bytes + deviation + 0.5), 0)
        elif isinstance(payload, HistogramPayload):
            drawn = self._sizes.of(number).below(payload.bins[-1].end)
            size = next(each.bytes for each in payload.bins if drawn < each.end)
        else:
            assert isinstance(payload, FixedPayload), "ZeroMQ has texts and sizes"
            size = payload.bytes
        return (stamp if self._stamped else b"").ljust(size, FILLER)

    def _variant(self, number: int) -> int:
        count = len(self._topics)
        place = number % count
        if self._order is None:
            return place
        drawn = self._order.of(self._client << 32 | number // count)
        for step in range(EXCHANGES):
            place = _exchanged(drawn.of(step), count, place)
        return place


def normal(drawn: Random) -> float:
    """A value of the normal distribution, cut at four standard deviations (Box and Muller)."""
    u = ((drawn.bits >> 32) + 1) / 2**32
    v = (drawn.bits & 0xFFFF_FFFF) / 2**32
    value = math.sqrt(-2.0 * math.log(u)) * math.cos(math.tau * v)
    return min(max(value, -4.0), 4.0)


def _exchanged(step: Random, count: int, at: int) -> int:
    """A step of the shuffle of `crates/plan/src/schedule/order.rs`."""
    partner = (step.below(count) - at) % count
    return partner if step.of(max(at, partner)).bits & 1 else at


GOLDEN_RATIO = 2_654_435_769
U32_END = 1 << 32
UNIT_BITS = 53
FACTOR_BITS = 32
FACTOR_MAX = 1e6


@dataclass(frozen=True)
class Pacer:
    """The schedule of one client."""

    period_ns: float
    burst: int
    phase: float
    """Start within its period, 0 to below 1."""

    @classmethod
    def of(cls, pace: OpenPace, seed: int, publication: int, client: int) -> Pacer:
        """That of a client (its index over all agents) of a publication, by its index over all
        populations. Neither spread nor jitter is known here."""
        match pace.phase:
            case "aligned":
                phase = 0.0
            case "spread":
                phase = client * GOLDEN_RATIO % U32_END / U32_END
            case _:
                drawn = Random.new(seed, 2 * publication).of(client).of(0).bits
                phase = (drawn >> 64 - UNIT_BITS) / (1 << UNIT_BITS)
        return cls(float(pace.period_ns), pace.burst, phase)

    def dues(self, first: int, count: int) -> list[int]:
        """Instants of `count` messages from number `first` on, in nanoseconds after publishing
        began. All messages of a burst have the instant of its first message."""
        phase, period_ns, burst = self.phase, self.period_ns, self.burst
        return [int((phase + (k - k % burst)) * period_ns) for k in range(first, first + count)]

    def due_before(self, elapsed_ns: int) -> int:
        """Number of messages scheduled before an instant."""
        periods = elapsed_ns / self.period_ns - self.phase
        k = int(max(periods - 1.0, 0.0))
        k -= k % self.burst
        while int((self.phase + k) * self.period_ns) < elapsed_ns:
            k += self.burst
        return k


@dataclass(frozen=True, slots=True)
class _Piece:
    """From `real_ns` on the schedule runs at `factor`, in units of 2^-32."""

    real_ns: int
    schedule_ns: int
    factor: int


class Tempo:
    """The map between real time and schedule time, both in nanoseconds after publishing began."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    @property
    def is_changed(self) -> bool:
        """True if the two differ."""
        return bool(self._pieces)

    @property
    def factor(self) -> float:
        """Speed of the schedule since the last change; 1 is the planned speed."""
        return self._pieces[-1].factor / (1 << FACTOR_BITS) if self._pieces else 1.0

    def change(self, at_ns: int, factor: float) -> None:
        """From `at_ns` on, not before the last change, the schedule runs at `factor`."""
        if self._pieces:
            at_ns = max(at_ns, self._pieces[-1].real_ns)
        schedule_ns = self.schedule_ns(at_ns)
        if not self._pieces:
            self._pieces.append(_Piece(0, 0, 1 << FACTOR_BITS))
        kept = round(min(max(factor, 0.0), FACTOR_MAX) * (1 << FACTOR_BITS))
        self._pieces.append(_Piece(at_ns, schedule_ns, kept))

    def schedule_ns(self, real_ns: int) -> int:
        """Schedule time at an instant."""
        piece = next((p for p in reversed(self._pieces) if p.real_ns <= real_ns), None)
        if piece is None:
            return real_ns
        return piece.schedule_ns + ((real_ns - piece.real_ns) * piece.factor >> FACTOR_BITS)

    def real_ns(self, schedule_ns: int) -> int:
        """Real time at which the schedule reaches a schedule time; NEVER_NS if the changes so far
        prevent it."""
        if not self._pieces:
            return schedule_ns
        piece = next((p for p in reversed(self._pieces) if p.schedule_ns < schedule_ns), None)
        if piece is None:
            return 0
        if piece.factor == 0:
            return NEVER_NS
        ahead = (schedule_ns - piece.schedule_ns) << FACTOR_BITS
        return piece.real_ns - (-ahead // piece.factor)

    def schedule_before(self, real_ns: int) -> int:
        """The schedule's instants before this one are reached before `real_ns`, and no others."""
        return self.schedule_ns(real_ns - 1) + 1 if real_ns else 0


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
        self.resume_ns: int | None = None
        """Instant until which nothing is sent, since the former process has ended; None
        afterwards."""
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

    library = LIBRARY

    def __init__(self, part: AgentShard, tally: AgentTally) -> None:
        self._part, self._tally = part, tally
        self._client = part.clients[0]
        self._context = zmq.Context(options_of(part).io_threads)
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

    def resume(self, resume: Resume) -> None:
        """Continues the streams of the former process, and its stage from an instant on."""
        self._number = resume.sent
        if self._load is not None:
            self._load.scheduled, self._load.resume_ns = resume.scheduled, resume.from_ns

    def change(self, change: ApplyChange) -> None:
        """Its rate changes."""
        is_own = change.population == self._part.place.population
        if is_own and self._load is not None and isinstance(change.action, ChangeRate):
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
        if load.resume_ns is not None:
            if now_ns < min(load.resume_ns, load.end_ns):
                return min(load.resume_ns, load.end_ns, self._idle(now_ns))
            self._skip_until(load, load.resume_ns)
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
            last_ns = now_ns + LAST_NS if load.resume_ns is None else now_ns
            while now_ns < last_ns and self._send_some(load, now_ns):
                now_ns = time.monotonic_ns()
            self._skip_until(load, load.end_ns)
        self._load = None

    def _skip_until(self, load: PublisherStage, until_ns: int) -> None:
        """Skips what was scheduled before an instant and is not sent."""
        load.resume_ns = None
        if self._pacer is None:
            return
        load.apply_changes(until_ns)
        until_ns = min(until_ns, load.end_ns)
        elapsed_ns = load.tempo.schedule_before(max(until_ns - load.start_ns, 0))
        skipped = max(self._pacer.due_before(elapsed_ns) - load.scheduled, 0)
        self._tally.now.counters["skipped_total"] += skipped
        load.scheduled += skipped

    def _set_gauges(self, there: int) -> None:
        self._tally.gauges["connected"] = self._tally.gauges["ready"] = there
