"""The order of trials in a search: grow until the scenario fails and the figure stops growing,
bisect, repeat for an interval, replay the largest figure, confirm, test the recovery. A pure state
machine: the same outcomes always lead to the same next trial."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from pubstorm.result import TrialPhase
from pubstorm.result.interval import CONFIDENCE, interval

State = Literal["passed", "failed", "uncounted"]
DOWN_MAX = 1000
"""Factor below the first value down to which the search looks if the first value fails."""
CLOSED_MAX = 3
"""Values one after the other at which the target let no client in, until the search ends: it is
gone, or still busy with an earlier load."""
LIMIT_PRECISION = 0.1
"""Precision near values that are not counted. The limit of generator or host says nothing about
what is under test, and each such trial is repeated."""
TRIALS_MAX = 1000
"""Trials after which an estimate of those that are left ends."""
WIDER = 0.1
"""Share by which a repeat begins wider than the bracket on each side. The share grows if an end
behaves otherwise than before."""
LOWER_MIN = 0.5
"""Share of an answer that failed again down to which a smaller value is tried."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a search, in the unit of the values."""

    low: float
    """The first value."""
    high: float
    """Never beyond."""
    whole: bool = False
    """True if values are whole numbers."""
    grow: float = 2.0
    """Factor from one value to the next, above 1."""
    has_figure: bool = False
    """True if the value grows until a figure stops growing."""
    growth: float = 0.02
    """Less than that is no growth."""
    precision: float = 0.02
    """Largest distance of the failed from the passed value, as a share of the passed value."""
    repeat: int = 3
    """Number of searches for the answer."""
    retries: int = 2
    """Repetitions of a trial that is not counted."""
    recovery: bool = False
    """True if the recovery of the answer's load is tested."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value to be played."""

    value: float
    phase: TrialPhase
    repetition: int = 1
    attempt: int = 1
    beyond: float | None = None
    """The value that the load rises to in a recovery test."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Outcome of a trial."""

    state: State
    figure: float | None = None
    final: bool = False
    """True if a repetition would have the same outcome."""
    closed: bool = False
    """True if the target let no client in."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """The values between which the scenario begins to fail."""

    passed: float | None
    """The largest that passed below all that did not; None: none did."""
    beyond: float | None = None
    """The smallest that failed; None: the bound of the search passed."""
    is_limit: bool = False
    """True if the value beyond was not counted; False if it failed."""

    @property
    def is_exact(self) -> bool:
        """True if the value beyond failed through what is under test."""
        return self.beyond is not None and not self.is_limit

    def limit(self, *, whole: bool) -> tuple[float, float]:
        """Returns the logarithm of the limit, in the middle between both values, and the variance
        of a limit that lies anywhere between them. A whole number beside one that failed is the
        limit itself."""
        assert self.passed is not None and self.beyond is not None, "only a bracket has a limit"
        if whole and self.beyond - self.passed <= 1:
            return math.log(self.passed), 0.0
        width = math.log(self.beyond / self.passed)
        return math.log(self.passed) + width / 2, width**2 / 12


@dataclass(slots=True)
class Facts:
    """Facts of a search so far."""

    brackets: list[Bracket] = field(default_factory=list)
    """One for each time that the answer was looked for; the first is that of the trials so far."""
    is_growing: bool = True
    """True until the value stops growing."""
    most: list[float] = field(default_factory=list)
    """The largest figure, as often as it was measured."""
    most_value: float | None = None
    """The value that it was measured at."""
    most_is_bound: bool = False
    """True if the value stopped growing before the figure did."""
    confirmations: list[tuple[float, TrialOutcome]] = field(default_factory=list)
    """The answer and perhaps a value below it, played again."""
    whole: bool = False
    """True if values are whole numbers."""

    @property
    def estimates(self) -> list[Bracket]:
        """The brackets that have a value that passed."""
        return [bracket for bracket in self.brackets if bracket.passed is not None]

    @property
    def best(self) -> float | None:
        """The answer: the mean of the largest values that passed, or the smallest of them where one
        is a lower bound only."""
        passed = [each.passed for each in self.estimates if each.passed is not None]
        if not passed:
            return None
        is_exact = all(bracket.is_exact for bracket in self.estimates)
        return sum(passed) / len(passed) if is_exact else min(passed)

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Returns the confidence interval of the limit, from the limits that the repeats found and
        the precision of each; None if there are no two, or one is a lower bound only."""
        found = self.estimates
        if len(found) < 2 or not all(bracket.is_exact for bracket in found):
            return None
        limits, hidden = zip(*(each.limit(whole=self.whole) for each in found), strict=True)
        _, low, high = interval(limits, confidence, fmean(hidden))
        return math.exp(low), math.exp(high)


Trials = Generator[Candidate, TrialOutcome, None]
Playing = Generator[Candidate, TrialOutcome, TrialOutcome]
Looking = Generator[Candidate, TrialOutcome, Bracket]


class Strategy:
    """A search on its way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.facts = Facts(whole=settings.whole, most_is_bound=settings.has_figure)
        self._tried: list[tuple[float, TrialOutcome]] = []
        self._run_log = self._search()
        self._next: Candidate | None = next(self._run_log)

    @property
    def next(self) -> Candidate | None:
        """The next trial; None at the end of the search."""
        return self._next

    def take(self, outcome: TrialOutcome) -> None:
        """Continues with the outcome of the trial."""
        try:
            self._next = self._run_log.send(outcome)
        except StopIteration:
            self._next = None

    def _search(self) -> Trials:
        facts, settings = self.facts, self.settings
        found = yield from self._grown()
        facts.is_growing = False
        found = yield from self._bisected(found, "bisect", 1)
        if found.passed is not None and found.is_exact:
            for repetition in range(2, settings.repeat + 1):
                again = yield from self._widened(found, repetition)
                facts.brackets.append((yield from self._bisected(again, "repeat", repetition)))
        yield from self._replayed()
        yield from self._confirmed()
        yield from self._recovered()

    def _grown(self) -> Looking:
        """Grows from the first value; goes down if no value passed below the failing one."""
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
            has_failed = any(each.state == "failed" for _, each in self._tried)
            if (has_failed and flat) or value >= settings.high:
                break
            value = min(self._above(value), settings.high)
        self.facts.most_is_bound = settings.has_figure and not flat
        found = self._bracket()
        while found.passed is None and found.beyond is not None:
            value = self._below(found.beyond)
            if value >= found.beyond or value < settings.low / DOWN_MAX:
                break
            yield from self._played(value, "grow")
            found = self._bracket()
            last = [outcome.closed for _, outcome in self._tried[-CLOSED_MAX:]]
            if len(last) == CLOSED_MAX and all(last):
                break
        return found

    def _bisected(self, found: Bracket, phase: TrialPhase, repetition: int) -> Looking:
        """Halves the span, on a logarithmic scale, down to the precision."""
        while found.passed is not None and found.beyond is not None:
            middle = self.rounded(math.sqrt(found.passed * found.beyond))
            precision = self.settings.precision
            if found.is_limit:
                precision = max(precision, LIMIT_PRECISION)
            if found.beyond / found.passed - 1 <= precision:
                break
            if not found.passed < middle < found.beyond:
                break
            outcome = yield from self._played(middle, phase, repetition)
            found = _narrowed(found, middle, outcome)
        return found

    def _widened(self, found: Bracket, repetition: int) -> Looking:
        """Ends on both sides of what is known, played anew: one that passes, one that does not."""
        assert found.passed is not None and found.beyond is not None, "only a bracket is widened"
        beyond: Bracket | None = None
        wider = 1 + WIDER
        low = self.rounded(found.passed / wider)
        while True:
            outcome = yield from self._played(low, "repeat", repetition)
            if outcome.state == "passed":
                break
            beyond = Bracket(None, low, outcome.state == "uncounted")
            wider **= 2
            lower = self.rounded(found.passed / wider)
            if lower >= low or lower < self.settings.low / DOWN_MAX:
                return beyond
            low = lower
        wider = 1 + WIDER
        passed, high = low, low
        while beyond is None:
            higher = min(self.rounded(found.beyond * wider), self.settings.high)
            if higher <= high:
                return Bracket(passed)
            high = higher
            outcome = yield from self._played(high, "repeat", repetition)
            if outcome.state == "passed":
                passed, wider = high, wider**2
            else:
                beyond = Bracket(None, high, outcome.state == "uncounted")
        return Bracket(passed, beyond.beyond, beyond.is_limit)

    def _replayed(self) -> Trials:
        """The trial of the largest figure again, as often as the answer is looked for: the largest
        of many is larger than it would be alone, so that it does not count itself."""
        value, repeat = self.facts.most_value, self.settings.repeat
        if value is None or repeat == 1:
            return
        replayed: list[float] = []
        for repetition in range(1, repeat + 1):
            outcome = yield from self._played(value, "most", repetition)
            if outcome.state != "uncounted" and outcome.figure is not None:
                replayed.append(outcome.figure)
                self.facts.most = list(replayed)

    def _confirmed(self) -> Trials:
        """The answer again, and where it does not hold smaller values: a value at the limit fails
        in every second trial."""
        facts = self.facts
        best = facts.best
        if best is None:
            return
        value = self.floor(best)
        for repetition, lower in enumerate((*self._lower(value), 0.0), 1):
            outcome = yield from self._played(value, "confirm", repetition)
            facts.confirmations.append((value, outcome))
            if outcome.state != "failed" or not 0 < lower < value:
                return
            value = lower

    def _recovered(self) -> Trials:
        """The recovery test of the answer that passed again, beyond it the smallest value that
        failed."""
        confirmed = [value for value, each in self.facts.confirmations if each.state == "passed"]
        if not self.settings.recovery or not confirmed:
            return
        failed = [v for v, each in self._tried if each.state == "failed" and v > confirmed[0]]
        if failed:
            yield from self._played(confirmed[0], "recover", beyond=min(failed))

    def _lower(self, value: float) -> tuple[float, float]:
        """Returns two values below an answer: the lower end of its interval, and the value above
        which the limit of a single trial lies, both with the confidence of intervals."""
        facts, least = self.facts, LOWER_MIN * value
        passed = min(each.passed for each in facts.estimates if each.passed is not None)
        below = min(passed, value / (1 + self.settings.precision))
        ends = facts.interval(CONFIDENCE)
        if ends is None:
            return self.floor(below), 0.0
        middle = math.sqrt(ends[0] * ends[1])
        single = middle * (ends[0] / middle) ** math.sqrt(1 + len(facts.estimates))
        return self.floor(max(min(below, ends[0]), least)), self.floor(max(single, least))

    def _played(
        self, value: float, phase: TrialPhase, repetition: int = 1, beyond: float | None = None
    ) -> Playing:
        """Plays a value, and repeats it while it is not counted and retries are left."""
        for attempt in range(1, self.settings.retries + 2):
            outcome = yield Candidate(value, phase, repetition, attempt, beyond)
            if outcome.state != "uncounted" or outcome.final:
                break
        self._tried.append((value, outcome))
        if phase in {"grow", "bisect"}:
            self.facts.brackets[:] = [self._bracket()]
        if phase in {"grow", "bisect", "repeat"}:
            self._note_largest()
        return outcome

    def _note_largest(self) -> None:
        """Keeps the largest figure so far, and the smallest value that it was measured at."""
        counted = [
            (each.figure, -value)
            for value, each in self._tried
            if each.state != "uncounted" and each.figure is not None
        ]
        if counted:
            figure, negated = max(counted)
            self.facts.most, self.facts.most_value = [figure], -negated

    def _bracket(self) -> Bracket:
        """The largest value that passed below the smallest that did not."""
        others = [pair for pair in self._tried if pair[1].state != "passed"]
        beyond, outcome = min(others, key=lambda pair: pair[0], default=(None, None))
        limit = math.inf if beyond is None else beyond
        passed = [v for v, each in self._tried if each.state == "passed" and v < limit]
        is_limit = outcome is not None and outcome.state == "uncounted"
        return Bracket(max(passed, default=None), beyond, is_limit)

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


def trials_left(settings: Settings, outcomes: Sequence[tuple[float, TrialOutcome]]) -> int:
    """Returns the trials that a search still plays if its limit is between the values so far, or a
    third of the way to its bound if none failed."""
    passed = [value for value, outcome in outcomes if outcome.state == "passed"]
    others = [value for value, outcome in outcomes if outcome.state != "passed"]
    low = max(passed, default=settings.low)
    third = low * (settings.high / low) ** (1 / 3) if low < settings.high else low
    limit = (low * max(min(others), low)) ** 0.5 if others else third
    strategy, trials = Strategy(settings), 0
    for _, outcome in outcomes:
        if strategy.next is None:
            return 0
        strategy.take(outcome)
    while (following := strategy.next) is not None and trials < TRIALS_MAX:
        state: State = "passed" if following.value <= limit else "failed"
        strategy.take(TrialOutcome(state, min(following.value, limit)))
        trials += 1
    return trials


def digits_for(precision: float) -> int:
    """Digits of a value that leave several values within the precision; at least three."""
    return max(3, 1 + math.ceil(-math.log10(precision)))


def _narrowed(found: Bracket, value: float, outcome: TrialOutcome) -> Bracket:
    """A bracket with one of its ends moved to a value between them."""
    if outcome.state == "passed":
        return Bracket(value, found.beyond, found.is_limit)
    return Bracket(found.passed, value, outcome.state == "uncounted")
