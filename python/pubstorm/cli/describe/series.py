"""Sweeps and searches in words, before they are played: their steps, and the trials to expect."""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.cli.describe.needs import many
from pubstorm.experiment.search import settings_of
from pubstorm.experiment.search.strategy import Settings, State, Strategy, TrialOutcome
from pubstorm.host.duration import least_seconds
from pubstorm.plan import provisional_plan
from pubstorm.quantities import span_text, write_share
from pubstorm.scenario import Scenario
from pubstorm.scenario.load import smallest
from pubstorm.scenario.sweep import written


def sweep_in_words(scenario: Scenario) -> Iterator[str]:
    """The steps of its sweep, and how they are played."""
    sweep = scenario.sweep
    if sweep is None:
        return
    brokers = _brokers(scenario, sweep.broker)
    times = f", {many(sweep.repeat, 'time')} each" if sweep.repeat > 1 else ""
    yield ""
    yield f"sweep, the plan above is its first step; each step with {brokers}{times}"
    bases = dict.fromkeys(step.variation.base for step in scenario.steps)
    for number, base in enumerate(bases, 1):
        yield f"  {number}. {base}"
    for name in sweep.played:
        changed = ", ".join(f"{path}={written(v)}" for path, v in sweep.variants[name].items())
        yield f"  each as {name}: {changed or 'as written'}"
    left_out = [each for step in scenario.steps for each in step.scenario.source.left_out]
    for text in dict.fromkeys(left_out):
        yield f"  left out of {many(left_out.count(text), 'step')}: {text}"
    for line in sweep.stop_when:
        yield f"  ends early when {line if isinstance(line, str) else line.source}"


def search_in_words(scenario: Scenario, steps: int = 1) -> Iterator[str]:
    """The search of a scenario, if it has one, which is played for so many steps of a series."""
    search = scenario.search
    if search is None:
        return
    settings, write = settings_of(search), search.span.measure.written
    few, most = trials_expected(settings)
    seconds = least_seconds(provisional_plan(smallest(scenario)))
    seconds += search.pause / 1e9
    brokers = _brokers(scenario, search.broker)
    yield ""
    yield f"search, the plan above is its first trial; each trial with {brokers}"
    yield f"  the largest {search.vary} at which all thresholds pass,"
    low, high = write(settings.low), write(settings.high)
    yield f"  from {low} to {high}, times {settings.grow:g} from one to the next"
    if search.figure is not None:
        yield f"  and on until {search.figure} grows by less than {write_share(search.growth)}"
    times = "once" if search.repeat == 1 else f"{search.repeat} times"
    yield f"  looked for {times}, to within {write_share(search.precision)}"
    yield (
        f"  about {few} to {most} trials of {span_text(seconds)} or more: "
        f"{span_text(few * seconds)} to {span_text(most * seconds)} or more"
    )
    if steps > 1:
        shortest, longest = (span_text(steps * n * seconds) for n in (few, most))
        yield f"  if all {steps} steps are like the first: {shortest} to {longest} or more"


def trials_of(scenario: Scenario) -> int:
    """Returns the fewest trials of a scenario's search; one without a search."""
    search = scenario.search
    return 1 if search is None else trials_expected(settings_of(search))[0]


def trials_expected(settings: Settings) -> tuple[int, int]:
    """Returns the trials for a low limit and for one near the bound; no trial is repeated."""
    third = (settings.high / settings.low) ** (1 / 3)
    near = settings.high / (1 + settings.precision)
    counts = [_trials_to(limit, settings) for limit in (settings.low * third, near)]
    return min(counts), max(counts)


def _trials_to(limit: float, settings: Settings) -> int:
    """Returns the number of trials that find a constant limit."""
    strategy, trials = Strategy(settings), 0
    while (following := strategy.next) is not None:
        state: State = "passed" if following.value <= limit else "failed"
        strategy.take(TrialOutcome(state, min(following.value, limit)))
        trials += 1
    return trials


def _brokers(scenario: Scenario, kind: str) -> str:
    """The brokers of each step or trial: `kind` is fresh or same."""
    if not scenario.topology.brokers:
        return "the same target" if len(scenario.target) == 1 else "the same targets"
    if scenario.target:
        return "the same target" + (", and small brokers of its own" if kind == "fresh" else "")
    return "brokers of its own" if kind == "fresh" else "the same brokers"
