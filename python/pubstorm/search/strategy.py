"""Which value a search tries next, and when it has its answer: grow until the scenario breaks and
the figure grows no more, bisect, look anew for an interval, replay the largest figure, confirm. A
state machine that is told what came of each value, so that the same points always lead to the same
next one. It plays nothing and knows no unit."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

from pubstorm.result import PointPhase

State = Literal["held", "broken", "uncounted"]
DOWN_MAX = 1000
"""How far below the first value it looks where not even that one holds."""
WIDER = 0.1
"""How much wider a repeat begins on each side than what is known; twice that, and so on, where an
end does not behave as before."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is searched, in the unit of the values."""

    low: float
    """The first value."""
    high: float
    """Never beyond."""
    whole: bool = False
    """Whether only whole numbers can be tried."""
    grow: float = 2.0
    """Factor from one value to the next, above 1."""
    has_figure: bool = False
    """Whether growing goes on until a figure grows no more."""
    growth: float = 0.02
    """Less than that is no growth."""
    precision: float = 0.02
    """How close broken and held come, as a share of held."""
    repeat: int = 3
    """How often the answer is looked for."""
    retries: int = 2
    """How often a point is played again that is not counted."""


@dataclass(frozen=True, slots=True)
class Try:
    """A value to be played."""

    value: float
    phase: PointPhase
    repetition: int = 1
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a try."""

    state: State
    figure: float | None = None
    final: bool = False
    """Whether it would come to the same if it were played again."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Between which values the scenario breaks."""

    held: float | None
    """The largest that held below all that did not; None: none did."""
    beyond: float | None = None
    """The smallest that did not hold; None: the bound of the search held."""
    is_limit: bool = False
    """Whether what lies beyond could not be counted, rather than broke."""

    @property
    def is_exact(self) -> bool:
        """Whether it broke beyond, through what is under test."""
        return self.beyond is not None and not self.is_limit


@dataclass(slots=True)
class Facts:
    """What is known so far."""

    brackets: list[Bracket] = field(default_factory=list)
    """One for each time that the answer was looked for."""
    most: list[float] = field(default_factory=list)
    """The largest figure, as often as it was measured."""
    most_value: float | None = None
    """The value that it was measured at."""
    most_is_bound: bool = False
    """Whether growing ended before the figure stopped growing."""
    confirmations: list[tuple[float, Outcome]] = field(default_factory=list)
    """The answer and perhaps a value below it, played again."""

    @property
    def estimates(self) -> list[Bracket]:
        """The brackets that have a value that held."""
        return [bracket for bracket in self.brackets if bracket.held is not None]

    @property
    def best(self) -> float | None:
        """The answer: the mean of the largest values that held, or the smallest of them where one
        is a lower bound only."""
        held = [each.held for each in self.estimates if each.held is not None]
        if not held:
            return None
        is_exact = all(bracket.is_exact for bracket in self.estimates)
        return sum(held) / len(held) if is_exact else min(held)


Course = Generator[Try, Outcome, None]
Playing = Generator[Try, Outcome, Outcome]
Looking = Generator[Try, Outcome, Bracket]


class Strategy:
    """A search on its way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.facts = Facts()
        self._tried: list[tuple[float, Outcome]] = []
        self._course = self._search()
        self._next: Try | None = next(self._course)

    @property
    def next(self) -> Try | None:
        """What is to be played now; None: the search has come to its end."""
        return self._next

    def take(self, outcome: Outcome) -> None:
        """Goes on with what came of the try."""
        try:
            self._next = self._course.send(outcome)
        except StopIteration:
            self._next = None

    def _search(self) -> Course:
        facts, settings = self.facts, self.settings
        found = yield from self._grown()
        facts.brackets.append(found)
        facts.brackets[0] = found = yield from self._bisected(found, "bisect", 1)
        if found.held is not None and found.is_exact:
            for repetition in range(2, settings.repeat + 1):
                again = yield from self._widened(found, repetition)
                facts.brackets.append((yield from self._bisected(again, "repeat", repetition)))
        yield from self._replayed()
        yield from self._confirmed()

    def _grown(self) -> Looking:
        """Up from the first value; down where nothing held below what broke."""
        settings = self.settings
        value, most, flat = settings.low, 0.0, not settings.has_figure
        while True:
            outcome = yield from self._played(value, "grow")
            if outcome.state == "uncounted":
                break
            if settings.has_figure:
                figure = outcome.figure or 0.0
                flat = figure <= most * (1 + settings.growth)
                most = max(most, figure)
            has_broken = any(each.state == "broken" for _, each in self._tried)
            if (has_broken and flat) or value >= settings.high:
                break
            value = min(self._above(value), settings.high)
        self.facts.most_is_bound = settings.has_figure and not flat
        found = self._bracket()
        while found.held is None and found.beyond is not None:
            value = self._below(found.beyond)
            if value >= found.beyond or value < settings.low / DOWN_MAX:
                break
            yield from self._played(value, "grow")
            found = self._bracket()
        return found

    def _bisected(self, found: Bracket, phase: PointPhase, repetition: int) -> Looking:
        """Halves the span, on a scale of factors, until it is as narrow as asked."""
        while found.held is not None and found.beyond is not None:
            middle = self.rounded(math.sqrt(found.held * found.beyond))
            if found.beyond / found.held - 1 <= self.settings.precision:
                break
            if not found.held < middle < found.beyond:
                break
            outcome = yield from self._played(middle, phase, repetition)
            found = _narrowed(found, middle, outcome)
        return found

    def _widened(self, found: Bracket, repetition: int) -> Looking:
        """Ends on both sides of what is known, played anew: one that holds, one that does not."""
        assert found.held is not None and found.beyond is not None, "only a bracket is widened"
        beyond: Bracket | None = None
        wider = 1 + WIDER
        low = self.rounded(found.held / wider)
        while True:
            outcome = yield from self._played(low, "repeat", repetition)
            if outcome.state == "held":
                break
            beyond = Bracket(None, low, outcome.state == "uncounted")
            wider **= 2
            lower = self.rounded(found.held / wider)
            if lower >= low or lower < self.settings.low / DOWN_MAX:
                return beyond
            low = lower
        wider = 1 + WIDER
        held, high = low, low
        while beyond is None:
            higher = min(self.rounded(found.beyond * wider), self.settings.high)
            if higher <= high:
                return Bracket(held)
            high = higher
            outcome = yield from self._played(high, "repeat", repetition)
            if outcome.state == "held":
                held, wider = high, wider**2
            else:
                beyond = Bracket(None, high, outcome.state == "uncounted")
        return Bracket(held, beyond.beyond, beyond.is_limit)

    def _replayed(self) -> Course:
        """The point of the largest figure again, as often as the answer is looked for: the largest
        of many is larger than it would be alone, so that it does not count itself."""
        counted = [
            (each.figure, -value)
            for value, each in self._tried
            if each.state != "uncounted" and each.figure is not None
        ]
        if not counted:
            return
        figure, negated = max(counted)
        value = -negated
        facts, repeat = self.facts, self.settings.repeat
        facts.most, facts.most_value = [figure], value
        if repeat == 1:
            return
        replayed: list[float] = []
        for repetition in range(1, repeat + 1):
            outcome = yield from self._played(value, "most", repetition)
            if outcome.state != "uncounted" and outcome.figure is not None:
                replayed.append(outcome.figure)
                facts.most = list(replayed)

    def _confirmed(self) -> Course:
        """The answer again, and where it does not hold a value below it."""
        facts = self.facts
        best = facts.best
        if best is None:
            return
        value = self.floor(best)
        for repetition in (1, 2):
            outcome = yield from self._played(value, "confirm", repetition)
            facts.confirmations.append((value, outcome))
            if outcome.state != "broken":
                return
            held = min(each.held for each in facts.estimates if each.held is not None)
            lower = self.floor(min(held, value / (1 + self.settings.precision)))
            if not 0 < lower < value:
                return
            value = lower

    def _played(self, value: float, phase: PointPhase, repetition: int = 1) -> Playing:
        """A value, again as long as it is not counted and there are retries left."""
        for attempt in range(1, self.settings.retries + 2):
            outcome = yield Try(value, phase, repetition, attempt)
            if outcome.state != "uncounted" or outcome.final:
                break
        self._tried.append((value, outcome))
        return outcome

    def _bracket(self) -> Bracket:
        """The largest value that held below the smallest that did not."""
        others = [pair for pair in self._tried if pair[1].state != "held"]
        beyond, outcome = min(others, key=lambda pair: pair[0], default=(None, None))
        limit = math.inf if beyond is None else beyond
        held = [v for v, each in self._tried if each.state == "held" and v < limit]
        is_limit = outcome is not None and outcome.state == "uncounted"
        return Bracket(max(held, default=None), beyond, is_limit)

    def _above(self, value: float) -> float:
        above = self.rounded(value * self.settings.grow)
        return max(above, value + 1) if self.settings.whole else above

    def _below(self, value: float) -> float:
        below = self.rounded(value / self.settings.grow)
        return max(1.0, min(below, value - 1)) if self.settings.whole else below

    def rounded(self, value: float) -> float:
        """The nearest value that can be tried: with as many digits as the precision needs."""
        shown = float(f"{value:.{digits_for(self.settings.precision) - 1}e}")
        return max(1.0, float(round(shown))) if self.settings.whole else shown

    def floor(self, value: float) -> float:
        """The largest value that can be tried and is not above this one."""
        nearest = self.rounded(value)
        if nearest <= value:
            return nearest
        step = 10.0 ** (math.floor(math.log10(value)) + 1 - digits_for(self.settings.precision))
        return self.rounded(nearest - (max(1.0, step) if self.settings.whole else step))


def digits_for(precision: float) -> int:
    """Digits of a value that leave several values within the precision; at least three."""
    return max(3, 1 + math.ceil(-math.log10(precision)))


def _narrowed(found: Bracket, value: float, outcome: Outcome) -> Bracket:
    """A bracket with one of its ends moved to a value between them."""
    if outcome.state == "held":
        return Bracket(value, found.beyond, found.is_limit)
    return Bracket(found.held, value, outcome.state == "uncounted")
