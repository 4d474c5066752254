"""The row of a step in the table over a series: its headings and its cells. A cell is a metric of
the step's result or something that the step knows of itself. It knows no run and draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pubstorm.quantity import count_text, duration_text, rate_text, span_text
from pubstorm.result import PopulationResult, Result, SeriesStep
from pubstorm.scenario import Scenario
from pubstorm.thresholds import METRICS

NOTHING = "–"
DEFAULT_TABLE = {
    "step": "step",
    "connected": "connected",
    "sent/s": "sent_per_s",
    "acked/s": "acked_per_s",
    "received/s": "received_per_s",
    "p99": "latency.p99",
    "ack p99": "ack_latency.p99",
    "lost": "lost",
    "verdict": "verdict",
    "limited by": "limited_by",
}
"""The table of a scenario that has none of its own."""


def with_table(scenario: Scenario) -> Scenario:
    """The scenario, with the default table where it has none."""
    return scenario if scenario.table else scenario.model_copy(update={"table": DEFAULT_TABLE})


def cells(scenario: Scenario, step: SeriesStep, result: Result | None) -> tuple[str, ...]:
    """The cells of a step under the headings of the scenario's table."""
    metrics = scenario.metric_columns
    measured = {} if result is None else metric_cells(metrics, result)
    return tuple(
        measured.get(heading, NOTHING) if heading in metrics else _own(expression, step, result)
        for heading, expression in scenario.table.items()
    )


def _own(expression: str, step: SeriesStep, result: Result | None) -> str:
    """What a step says of itself: one of its words, or a value that it changes."""
    match expression:
        case "number":
            return str(step.number)
        case "step":
            return step.name
        case "verdict":
            return step.outcome
        case "limited_by":
            return NOTHING if step.limited_by is None else str(step.limited_by)
        case "duration":
            return NOTHING if result is None else span_text(result.duration_s)
        case "note":
            return step.note
        case "command":
            return step.command
    value = step.values.get(expression, NOTHING)
    return count_text(int(value)) if value.isascii() and value.isdigit() else value


def metric_cells(table: Mapping[str, str], result: Result) -> dict[str, str]:
    """The metrics of populations, by heading: `POPULATION.METRIC`, or `METRIC` for all of them
    together, which is the sum of counts and rates and the worst of durations."""
    found = {heading: _metric(expression, result) for heading, expression in table.items()}
    return {heading: cell for heading, cell in found.items() if cell is not None}


def _metric(expression: str, result: Result) -> str | None:
    name, _, rest = expression.partition(".")
    one = result.populations.get(name)
    among = list(result.populations.values()) if one is None else [one]
    metric = expression if one is None else rest
    path = RATES.get(metric) or METRICS.get(metric)
    if path is None:
        return None
    values = [value for population in among for value in _values(population, path)]
    if not values:
        return None
    if path[0].endswith("_us"):
        return duration_text(max(values))
    write: Callable[[float], str] = rate_text if metric in RATES else count_text
    return write(sum(values))


def _values(population: PopulationResult, path: tuple[str, ...]) -> Iterator[float]:
    """The value at a path of a population's result; none for a latency that has no sample."""
    found: object = population
    for step in path:
        if getattr(found, "count", None) == 0:
            return
        found = getattr(found, step)
    if isinstance(found, int | float):
        yield found


RATES = {f"{verb}_per_s": ("rates", f"{verb}_per_s") for verb in ("sent", "acked", "received")}
