"""What the points of a search say: the largest value that holds and the largest figure, each with
its interval, who set the limit, and all that in a sentence. A pure function of points and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pubstorm.quantity import counted, share_text, value_text
from pubstorm.result import Bound, Estimate, LimitedBy, SearchAnswer, SearchPoint
from pubstorm.samples import Unit
from pubstorm.search.point import in_words
from pubstorm.search.strategy import Bracket, Facts
from pubstorm.search.student import interval


@dataclass(frozen=True, slots=True)
class Terms:
    """In which terms a search is answered."""

    unit: Unit
    """Unit of the points' values."""
    per_unit: float
    """How much of the strategy's values that is."""
    figure: str | None
    """What the figure is called."""
    figure_unit: Unit
    confidence: float


def answer_of(points: Sequence[SearchPoint], facts: Facts, terms: Terms) -> SearchAnswer:
    """The answer so far."""
    best, most = _best(facts, terms), _most(facts, terms)
    beyond = _beyond(points, best)
    states = [outcome.state for _, outcome in facts.confirmations]
    again = [value for value, outcome in facts.confirmations if outcome.state == "held"]
    confirmed_at = again[0] / terms.per_unit if again else None
    if best is not None and confirmed_at is not None and states[0] == "broken":
        best = _lowered(best, confirmed_at)
    shown = confirmed_at if confirmed_at is not None or best is None else best.value
    most_value = None if facts.most_value is None else facts.most_value / terms.per_unit
    answer = SearchAnswer(
        best=best,
        most=most,
        limited_by=_limit(best, beyond),
        confirmed=bool(again) if {"held", "broken"} & {*states} else None,
        confirmed_at=confirmed_at,
        best_point=_held(points, shown),
        most_point=_largest_figure(points, most_value),
        points=len(points),
    )
    return answer.model_copy(update={"text": _text(answer, points, facts, terms)})


def _limit(best: Estimate | None, beyond: SearchPoint | None) -> LimitedBy | None:
    """Who set the limit: whoever did where it broke; nobody where nothing did."""
    if beyond is not None:
        return beyond.limited_by
    return None if best is None else LimitedBy.NONE


def _best(facts: Facts, terms: Terms) -> Estimate | None:
    found = facts.estimates
    held = [bracket.held / terms.per_unit for bracket in found if bracket.held is not None]
    if not held:
        return None
    if not all(bracket.is_exact for bracket in found):
        low = min(held)
        high = max(_end(bracket, terms) for bracket in found)
        return _estimate((low, low, high), len(held), "at_least", terms.unit)
    if len(held) == 1:
        ends = (held[0], held[0], _end(found[0], terms))
        return _estimate(ends, 1, "none", terms.unit)
    return _estimate(interval(held, terms.confidence), len(held), "exact", terms.unit)


def _lowered(best: Estimate, confirmed: float) -> Estimate:
    """Returns the value that held again as the answer, up to what was found before."""
    bound: Bound = "at_least" if best.bound == "at_least" else "none"
    high = max(best.high, confirmed)
    return best.model_copy(
        update={"value": confirmed, "low": confirmed, "high": high, "bound": bound}
    )


def _end(bracket: Bracket, terms: Terms) -> float:
    beyond = bracket.held if bracket.beyond is None else bracket.beyond
    assert beyond is not None, "an estimate has a value that held"
    return beyond / terms.per_unit


def _most(facts: Facts, terms: Terms) -> Estimate | None:
    if not facts.most:
        return None
    ends = interval(facts.most, terms.confidence)
    bound: Bound = "none" if len(facts.most) == 1 else "exact"
    if facts.most_is_bound:
        bound = "at_least"
    return _estimate(ends, len(facts.most), bound, terms.figure_unit)


def _estimate(ends: tuple[float, float, float], repeats: int, bound: Bound, unit: Unit) -> Estimate:
    value, low, high = ends
    low = max(0.0, low)
    return Estimate(value=value, low=low, high=high, repeats=repeats, bound=bound, unit=unit)


def _beyond(points: Sequence[SearchPoint], best: Estimate | None) -> SearchPoint | None:
    """The smallest value above the answer that did not hold, as it came out the last time."""
    floor = 0.0 if best is None else best.value
    others = [point for point in points if not point.held and point.value > floor]
    return min(reversed(others), key=lambda point: point.value, default=None)


def _held(points: Sequence[SearchPoint], value: float | None) -> int | None:
    """The last point that held with the largest value not above one."""
    if value is None:
        return None
    held = [point for point in reversed(points) if point.held and point.value <= value]
    found = max(held, key=lambda point: point.value, default=None)
    return None if found is None else found.number


def _largest_figure(points: Sequence[SearchPoint], value: float | None) -> int | None:
    """The last point that was counted at the value of the largest figure."""
    found = (point for point in reversed(points) if point.counted and point.value == value)
    return next((point.number for point in found), None)


def _text(answer: SearchAnswer, points: Sequence[SearchPoint], facts: Facts, terms: Terms) -> str:
    beyond = _beyond(points, answer.best)
    parts = [_holds(answer, terms)]
    if beyond is not None:
        parts.append(f"{value_text(beyond.value, terms.unit)} {in_words(beyond)}")
    elif answer.best is not None:
        parts.append("the search goes no further")
    parts.append(_confirmed(facts, terms))
    if answer.most is not None and facts.most_value is not None:
        at = value_text(facts.most_value / terms.per_unit, terms.unit)
        parts.append(f"the largest {terms.figure} is {answer.most.text}, at {at}")
    return "; ".join(part for part in parts if part)


def _holds(answer: SearchAnswer, terms: Terms) -> str:
    best = answer.best
    if best is None:
        return "no value was found that holds"
    if best.bound != "exact":
        return f"{best.text} holds" if best.bound == "at_least" else f"the limit is {best.text}"
    confidence = share_text(terms.confidence)
    return f"{best.text} holds ({counted(best.repeats, 'repeat')}, {confidence} confidence)"


def _confirmed(facts: Facts, terms: Terms) -> str:
    """What came of playing the answer again."""
    played = [
        (value_text(value / terms.per_unit, terms.unit), outcome.state)
        for value, outcome in facts.confirmations
    ]
    words = {"held": "held", "broken": "did not hold", "uncounted": "told nothing"}
    told = " and ".join(f"{value} {words[state]}" for value, state in played)
    return f"played again, {told}" if told else ""
