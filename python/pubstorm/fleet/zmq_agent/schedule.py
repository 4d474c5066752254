"""The schedule of an open loop, as in `crates/plan/src/schedule/pacer.rs` and `tempo.rs`: pure
functions of client, message number and changes of the rate."""

from __future__ import annotations

from dataclasses import dataclass

from pubstorm.contract.flows import OpenPace
from pubstorm.contract.random import Random

GOLDEN_RATIO = 2_654_435_769
U32_END = 1 << 32
UNIT_BITS = 53
NEVER_NS = (1 << 64) - 1
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
