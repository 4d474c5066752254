"""What a search will do, in words, before it is played: how many points it will come to, and how
long that takes. It gives lines of text and prints none."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.plan import ConnectAction, HoldAction, Plan, PublishAction, provisional_plan
from pubstorm.preview import brokers_in_words
from pubstorm.quantity import span_text
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import smallest
from pubstorm.search import settings_of
from pubstorm.search.strategy import Outcome, Settings, State, Strategy
from pubstorm.units import write_share


def search_in_words(scenario: Scenario, steps: int = 1) -> Iterator[str]:
    """The search of a scenario, if it has one, which is played for so many steps of a series."""
    search = scenario.search
    if search is None:
        return
    settings, written = settings_of(search), search.span.measure.written
    few, many = points_expected(settings)
    seconds = least_seconds(provisional_plan(smallest(scenario)))
    seconds += search.pause / 1e9
    brokers = brokers_in_words(scenario, search.broker)
    yield ""
    yield f"search, the plan above is its first point; each point with {brokers}"
    yield f"  the largest {search.vary} at which all thresholds hold,"
    low, high = written(settings.low), written(settings.high)
    yield f"  from {low} to {high}, times {settings.grow:g} from one to the next"
    if search.figure is not None:
        yield f"  and on until {search.figure} grows by less than {write_share(search.growth)}"
    times = "once" if search.repeat == 1 else f"{search.repeat} times"
    yield f"  looked for {times}, to within {write_share(search.precision)}"
    yield (
        f"  about {few} to {many} points of {span_text(seconds)} or more: "
        f"{span_text(few * seconds)} to {span_text(many * seconds)} or more"
    )
    if steps > 1:
        shortest, longest = (span_text(steps * n * seconds) for n in (few, many))
        yield f"  if all {steps} steps are like the first: {shortest} to {longest} or more"


def points_expected(settings: Settings) -> tuple[int, int]:
    """How many points it takes where the limit lies low, and where it lies near the bound; none is
    played again."""
    third = (settings.high / settings.low) ** (1 / 3)
    near = settings.high / (1 + settings.precision)
    counts = [_points_to(limit, settings) for limit in (settings.low * third, near)]
    return min(counts), max(counts)


def _points_to(limit: float, settings: Settings) -> int:
    """How many points it takes to find a limit that is always the same."""
    strategy, points = Strategy(settings), 0
    while (following := strategy.next) is not None:
        state: State = "held" if following.value <= limit else "broken"
        strategy.take(Outcome(state, min(following.value, limit)))
        points += 1
    return points


def least_seconds(plan: Plan) -> float:
    """How long its stages take at least, without the start of brokers and the drains."""
    return sum(_least_ns(plan, n) for n in range(len(plan.stages))) / 1e9


def _least_ns(plan: Plan, number: int) -> float:
    stage = plan.stages[number]
    match stage.action:
        case PublishAction(duration_ns=duration_ns) | HoldAction(duration_ns=duration_ns):
            return duration_ns
        case ConnectAction(rate_per_s=rate_per_s) if rate_per_s is not None:
            clients = sum(plan.populations[index].clients for index in stage.populations)
            return clients / rate_per_s * 1e9
        case _:
            return 0.0
