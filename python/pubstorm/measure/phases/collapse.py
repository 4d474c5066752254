"""Decides whether the load of a phase was carried: when it collapsed, and when it was carried
again. The constants below are the criteria."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import ceil, sqrt

from pubstorm.measure.phases.load_due import LoadDue, Tick
from pubstorm.quantities import (
    SECOND_NS,
    count_text,
    duration_text,
    rate_text,
    share_text,
    span_text,
)

CARRIED_SHARE = 0.95
"""Share of the messages due that must be sent, acknowledged and received."""
CONSECUTIVE_TICKS = 5
"""Fewest intervals in a row in which the load must not be carried to have collapsed, and must be
carried to have recovered. Together they last as long as the shortest outage."""
QUEUE_GROWTH_SHARE = 0.02
"""Share of the messages due by which the queue may grow in the second half of a phase."""
LATENCY_GROWTH = 1.2
"""Times by which the mean latency may grow in that half, from its first half to its second."""
DROPPED_SHARE = 0.001
"""Share of the deliveries due that the broker may report as dropped."""
ALIGNED_TURNS = 10
"""Messages of each client that a window must hold where they all send at once."""
QUEUE_GONE_S = 1.0
"""Seconds' worth of messages due that may still wait, and the mean latency, when a queue counts as
gone. The latency shows queues inside the broker, too."""

OUTAGE_DUE = 30
"""Messages due in a span in which none came, from which the span is an outage."""
OUTAGE_S = 1.0
"""Shortest outage: a pause of the broker is shorter."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A span in which nothing came though much was due, however long the period of the clients."""

    from_ns: int
    to_ns: int
    due: float
    what: str
    """Word for messages that came."""
    least: float
    """Messages due that make an outage."""
    starved_s: float
    """Time in which agents had no processor."""

    @property
    def is_sure(self) -> bool:
        """True if agents had processors for enough of it."""
        return self.is_more_than(self.starved_s)

    def is_more_than(self, starved_s: float) -> bool:
        """Returns True if it is still long and large enough without a time in which a program had
        no processor."""
        lasted_s = (self.to_ns - self.from_ns) / SECOND_NS
        rest_s = lasted_s - starved_s
        return self.due * rest_s >= self.least * lasted_s and rest_s >= OUTAGE_S / 2

    def __str__(self) -> str:
        lasted = span_text((self.to_ns - self.from_ns) / SECOND_NS)
        return f"nothing was {self.what} for {lasted}, in which {count_text(self.due)} were due"


def outages(ticks: Sequence[Tick], due: LoadDue) -> Iterator[Outage]:
    """Yields the outages of a load: of deliveries, or of acknowledgements where there is no
    receiver."""
    name = "received" if due.received_per_s else "acked"
    per_s, what = getattr(due, f"{name}_per_s"), _CARRIED[name]
    least = OUTAGE_DUE + (due.burst + due.lump) * (per_s / due.sent_per_s if per_s else 1.0)
    for is_silent, group in groupby(ticks, key=lambda tick: not getattr(tick, name)):
        span = list(group)
        seconds = (span[-1].to_ns - span[0].from_ns) / SECOND_NS
        if is_silent and per_s * seconds >= least and seconds >= OUTAGE_S:
            starved_s = sum(tick.starved_ns for tick in span) / SECOND_NS
            ends_ns = span[0].from_ns, span[-1].to_ns
            yield Outage(*ends_ns, per_s * seconds, what, least, starved_s)


@dataclass(frozen=True, slots=True)
class Before:
    """State that the phase before leaves behind."""

    collapsed: bool = False
    """True if the load was not carried at its end."""
    queue: int = 0
    """The longest queue with which a phase has held so far."""
    latency_ns: float = 0.0
    """The largest mean latency with which one has."""


@dataclass(frozen=True, slots=True)
class Drops:
    """Messages that the broker reports as dropped in a phase."""

    total: int
    """Their number. Growth between two reports on both sides of a cut is shared out by time."""
    certain: int
    """Those of them between reports that both lie in the phase."""
    first_at_ns: int
    """The first of these reports with growth."""
    steps: tuple[tuple[int, float], ...] = ()
    """The certain ones: the earlier of two reports, and the messages dropped until the later."""

    def after(self, at_ns: int) -> int:
        """Messages that were certainly dropped after an instant."""
        return round(sum(count for from_ns, count in self.steps if from_ns >= at_ns))


@dataclass(frozen=True, slots=True)
class PhaseOutcome:
    """Outcome of a phase."""

    collapsed_at_ns: int | None = None
    """Instant at which it collapsed by itself; None if it did not, or had before it began."""
    recovered_at_ns: int | None = None
    """Instant at which the load was carried again."""
    ended_collapsed: bool = False
    """True if the load was not carried at its end."""
    evidence: tuple[str, ...] = ()
    """The facts, each with its numerators."""
    starved: bool = False
    """True if the load was not carried, and the time in which agents had no processor explains all
    that was missing."""


def ticks_needed(due: LoadDue, width_ns: int) -> int:
    """Returns the number of ticks that a phase must have to be evaluated."""
    return _window(due, width_ns) + _in_a_row(width_ns) - 1


def follow(
    ticks: Sequence[Tick],
    due: LoadDue,
    before: Before,
    drops: Drops | None,
    silent: Sequence[Outage] = (),
) -> PhaseOutcome:
    """Follows the load tick by tick; `ticks` are at least as many as needed, and `silent` are the
    outages in them."""
    history = _LoadHistory(ticks, due, before)
    history.walk()
    if not before.collapsed:
        if silent and history.collapsed_at_ns is None:
            history.take_outages(silent)
        held = history.collapsed_at_ns is None
        if held:
            history.check_queue()
        if drops is not None:
            history.check_drops(drops, may_collapse=held)
    if history.recovered_at_ns is not None:
        history.check_recovery(history.recovered_at_ns, drops)
    return PhaseOutcome(
        collapsed_at_ns=history.collapsed_at_ns,
        recovered_at_ns=history.recovered_at_ns,
        ended_collapsed=history.collapsed,
        evidence=tuple(history.evidence),
        starved=(history.collapsed or history.collapsed_at_ns is not None) and not history.is_sure,
    )


def queue_growth_per_s(ticks: Sequence[Tick]) -> float:
    """Returns the growth of the clients' queue."""
    return _slope_per_s(ticks, [tick.queue for tick in ticks])


def second_half(ticks: Sequence[Tick]) -> Sequence[Tick]:
    """The later half of the ticks."""
    return ticks[len(ticks) // 2 :]


def mean_latency_ns(ticks: Sequence[Tick]) -> float:
    """Returns the mean latency of deliveries and acknowledgements; 0 without any."""
    count = sum(tick.latency_count for tick in ticks)
    return sum(tick.latency_sum_ns for tick in ticks) / count if count else 0.0


@dataclass(frozen=True, slots=True)
class _Shortfall:
    """Messages that were due in a window and did not come."""

    what: str
    found: float
    due: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"{rate_text(self.found / self.window_s)}/s of {rate_text(self.due / self.window_s)}/s "
            f"due were {self.what} ({share_text(round(self.found / self.due, 3))})"
        )


class _LoadHistory:
    """One phase, from its first settled tick to its last."""

    def __init__(self, ticks: Sequence[Tick], due: LoadDue, before: Before) -> None:
        self.ticks = ticks
        self.due = due
        self.collapsed = before.collapsed
        self.collapsed_at_ns: int | None = None
        self.recovered_at_ns: int | None = None
        self.evidence: list[str] = []
        self.is_sure = False
        """True if more was missing than agents without a processor explain."""
        self._origin_ns = ticks[0].from_ns
        self._queue_gone = max(before.queue, round(due.sent_per_s * QUEUE_GONE_S))
        self._latency_gone_ns = max(before.latency_ns, QUEUE_GONE_S * SECOND_NS)
        width_ns = ticks[0].to_ns - ticks[0].from_ns
        self._window, self._in_a_row = _window(due, width_ns), _in_a_row(width_ns)
        self._window_s = self._window * width_ns / SECOND_NS
        self._sums = {
            name: [0.0, *accumulate(getattr(tick, name) for tick in ticks)]
            for name in (*_CARRIED, "starved_ns")
        }
        self._was_collapsed = before.collapsed

    def walk(self) -> None:
        """Moves from collapse to recovery and back after enough ticks in a row."""
        streak, sure, last_short = 0, 0, None
        for end in range(self._window, len(self.ticks) + 1):
            shortfall = self._shortfall(end)
            last_short = shortfall or last_short
            carried = shortfall is None
            turns = carried and self._is_queue_gone(end) if self.collapsed else not carried
            streak = streak + 1 if turns else 0
            sure = sure + 1 if self._is_surely_short(end) else 0
            self.is_sure = self.is_sure or sure == self._in_a_row
            if streak == self._in_a_row:
                if not self.collapsed:
                    self._weigh_window(end - streak - self._window + 1, end)
                self._turn(self.ticks[end - streak], last_short)
                streak = 0
        if self.collapsed:
            self._report_end(last_short)

    def take_outages(self, silent: Sequence[Outage]) -> None:
        """Collapse by outages in windows that carried the load. It lasts until an interval in which
        the rate is that of the load again, and the queue is gone."""
        self.collapsed_at_ns = silent[0].from_ns
        self.is_sure = self.is_sure or any(outage.is_sure for outage in silent)
        later = [tick for tick in self.ticks if tick.from_ns >= silent[-1].to_ns]
        again = (tick.to_ns for tick in later if self._is_usual(tick))
        self.recovered_at_ns = next(again, later[-1].to_ns if later else None)
        self.collapsed = self.recovered_at_ns is None

    def _is_usual(self, tick: Tick) -> bool:
        seconds = (tick.to_ns - tick.from_ns) / SECOND_NS
        due = self._deliveries_per_s * seconds
        came = tick.received if self.due.received_per_s else tick.acked
        short = tick.queue <= self._queue_gone
        soon = mean_latency_ns([tick]) <= self._latency_gone_ns
        return short and soon and came >= CARRIED_SHARE * due - _noise(self.due, due)

    def _is_queue_gone(self, end: int) -> bool:
        latency_ns = mean_latency_ns(self.ticks[end - self._window : end])
        short = self.ticks[end - 1].queue <= self._queue_gone
        return short and latency_ns <= self._latency_gone_ns

    def _is_surely_short(self, end: int) -> bool:
        """Returns whether the load was not carried in the time in which agents had processors."""
        waits = self._was_collapsed and self.collapsed and not self._is_queue_gone(end)
        return waits or self._shortfall(end, self._starved_s(end - self._window, end)) is not None

    def _starved_s(self, first: int, end: int) -> float:
        """Time in some ticks in which an agent had no processor."""
        sums: list[float] = self._sums["starved_ns"]
        return (sums[end] - sums[first]) / SECOND_NS

    def check_queue(self) -> None:
        """Collapse by a queue that grows while the load seems to be carried: with the clients, or
        inside the broker."""
        half = second_half(self.ticks)
        middle = len(half) // 2
        early, late = mean_latency_ns(half[:middle]), mean_latency_ns(half[middle:])
        if not early or late < LATENCY_GROWTH * early:
            return
        each = self.due.received_per_s / self.due.sent_per_s if self.due.sent_per_s else 0.0
        unreceived = [*accumulate(tick.sent * each - tick.received for tick in half)]
        with_clients, inside = queue_growth_per_s(half), _slope_per_s(half, unreceived)
        seconds = len(half) * (half[0].to_ns - half[0].from_ns) / SECOND_NS
        for growth_per_s, due_per_s, what in (
            (with_clients, self.due.sent_per_s, "messages waiting with the clients"),
            (inside, self.due.received_per_s, "messages sent and not received"),
        ):
            due = due_per_s * seconds
            allowed = QUEUE_GROWTH_SHARE * due + _noise(self.due, due)
            if growth_per_s * seconds > allowed > 0:
                self._collapse(half[0])
                self._weigh(growth_per_s * seconds - allowed, due_per_s, len(half))
                self.evidence.append(
                    f"{what} grew by {rate_text(growth_per_s)}/s, "
                    f"{share_text(round(growth_per_s / due_per_s, 3))} of those due, and the mean "
                    f"latency from {duration_text(early / 1000)} to {duration_text(late / 1000)}"
                )

    def _weigh_window(self, first: int, end: int) -> None:
        """Notes whether some ticks lack more than was due while agents had no processor."""
        seconds = (self.ticks[end - 1].to_ns - self.ticks[first].from_ns) / SECOND_NS
        starved_s = self._starved_s(first, end)
        for name in _CARRIED:
            per_s = getattr(self.due, f"{name}_per_s")
            due = per_s * seconds
            allowed = (1.0 - CARRIED_SHARE) * due + _noise(self.due, due)
            lack = due - (self._sums[name][end] - self._sums[name][first]) - allowed
            self.is_sure = self.is_sure or lack > starved_s * per_s

    def _weigh(self, excess: float, due_per_s: float, ticks: int) -> None:
        """Notes whether the last ticks lack more than was due while agents had no processor."""
        starved_s = self._starved_s(len(self.ticks) - ticks, len(self.ticks))
        self.is_sure = self.is_sure or excess > starved_s * due_per_s

    def check_drops(self, drops: Drops, *, may_collapse: bool) -> None:
        """Finds a collapse by the broker's reports of dropped messages, unless the rates have shown
        more."""
        seconds = (self.ticks[-1].to_ns - self.ticks[0].from_ns) / SECOND_NS
        expected = self._deliveries_per_s * seconds
        excess = drops.certain - DROPPED_SHARE * expected
        if excess <= 0:
            return
        self._weigh(excess, self._deliveries_per_s, len(self.ticks))
        if may_collapse:
            self.collapsed = True
            self.collapsed_at_ns = self.collapsed_at_ns or drops.first_at_ns
        self.evidence.append(
            f"the broker says it dropped {count_text(drops.certain)} messages, of about "
            f"{count_text(expected)} that it had to deliver"
        )

    def check_recovery(self, recovered_at_ns: int, drops: Drops | None) -> None:
        """Takes a recovery back if deliveries were still lost in the second half of what followed.
        Receivers notice a loss with the next message, which can be one window later."""
        end_ns, width_ns = self.ticks[-1].to_ns, self.ticks[0].to_ns - self.ticks[0].from_ns
        from_ns = (recovered_at_ns + self._window * width_ns + end_ns) // 2
        late = [tick for tick in self.ticks if tick.from_ns >= from_ns]
        if not late:
            return
        seconds = (end_ns - late[0].from_ns) / SECOND_NS
        expected = self._deliveries_per_s * seconds
        missing = round(sum(tick.missing for tick in late))
        dropped = 0 if drops is None else drops.after(late[0].from_ns)
        excess = max(missing, dropped) - DROPPED_SHARE * expected
        if excess <= 0:
            return
        self._weigh(excess, self._deliveries_per_s, len(late))
        self.collapsed, self.recovered_at_ns = True, None
        of = f"of about {count_text(expected)} due in the last {span_text(seconds)}"
        if dropped >= missing:
            self.evidence.append(f"the broker still dropped {count_text(dropped)} messages {of}")
        else:
            self.evidence.append(
                f"{count_text(missing)} messages {of} were still lost on their way"
            )

    @property
    def _deliveries_per_s(self) -> float:
        """Deliveries due a second; messages due if no population receives any."""
        return self.due.received_per_s or self.due.sent_per_s

    def _turn(self, tick: Tick, shortfall: _Shortfall | None) -> None:
        """The first tick of a streak begins the other state."""
        if not self.collapsed:
            self._collapse(tick)
            self.evidence.append(str(shortfall))
            return
        self.collapsed, self.recovered_at_ns = False, tick.to_ns
        self.evidence.append(
            "the load was carried again, with "
            f"{count_text(tick.queue)} messages waiting, {self._after(tick.to_ns)}"
        )

    def _collapse(self, tick: Tick) -> None:
        self.collapsed, self.recovered_at_ns = True, None
        self.collapsed_at_ns = tick.from_ns

    def _report_end(self, shortfall: _Shortfall | None) -> None:
        if self.collapsed_at_ns is None and shortfall is not None:
            self.evidence.append(str(shortfall))
        queue, latency_ns = self.ticks[-1].queue, mean_latency_ns(self.ticks[-self._window :])
        if queue > self._queue_gone:
            self.evidence.append(f"{count_text(queue)} messages were waiting at its end")
        if latency_ns > self._latency_gone_ns:
            mean = duration_text(latency_ns / 1000)
            self.evidence.append(f"the mean latency was {mean} at its end")

    def _shortfall(self, end: int, starved_s: float = 0.0) -> _Shortfall | None:
        """Returns the largest shortfall of the load in the window before `end`, or None if the
        load was carried. Nothing is due in `starved_s`."""
        found = []
        for name, what in _CARRIED.items():
            came = self._sums[name][end] - self._sums[name][end - self._window]
            due = getattr(self.due, f"{name}_per_s") * max(self._window_s - starved_s, 0.0)
            if due and came < CARRIED_SHARE * due - _noise(self.due, due):
                found.append(_Shortfall(what, came, due, self._window_s))
        return min(found, key=lambda shortfall: shortfall.found / shortfall.due, default=None)

    def _after(self, at_ns: int) -> str:
        return f"{span_text((at_ns - self._origin_ns) / SECOND_NS)} after it had settled"


def _slope_per_s(ticks: Sequence[Tick], values: Sequence[float]) -> float:
    """The slope of a line through the values at the ends of ticks, by least squares."""
    if len(ticks) < 2:
        return 0.0
    times_s = [(tick.to_ns - ticks[0].to_ns) / SECOND_NS for tick in ticks]
    mean_s, mean = sum(times_s) / len(ticks), sum(values) / len(values)
    spread = sum((time_s - mean_s) ** 2 for time_s in times_s)
    pairs = zip(times_s, values, strict=True)
    return sum((time_s - mean_s) * (value - mean) for time_s, value in pairs) / spread


def _window(due: LoadDue, width_ns: int) -> int:
    """Ticks in which every client has had its turn; where they are aligned so many turns that a
    burst more or less does not count."""
    turns = ALIGNED_TURNS if due.burst else 1
    return max(ceil(turns * due.period_ns / width_ns), 1)


def _in_a_row(width_ns: int) -> int:
    """Ticks in a row that make a collapse or a recovery."""
    return max(CONSECUTIVE_TICKS, ceil(OUTAGE_S * SECOND_NS / width_ns))


def _noise(due: LoadDue, count: float) -> float:
    """Messages by which a window may miss what is due on average: chance, and where clients are
    aligned those that fall just outside."""
    return due.scatter * sqrt(count) + due.burst


_CARRIED = {"sent": "sent", "acked": "acknowledged", "received": "received"}
"""Counts of ticks that are compared with the load due, each with its participle."""
