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


def cells(table: Mapping[str, str], step: SeriesStep, result: Result | None) -> tuple[str, ...]:
    """The cells of a step under the headings of a table."""
    measured = {} if result is None else measured_cells(table, result)
    own = (_own(column, step) for column in table.values())
    return tuple(
        measured.get(heading, NOTHING) if cell is None else cell
        for heading, cell in zip(table, own, strict=True)
    )


def _own(column: str, step: SeriesStep) -> str | None:
    """What a step says of itself, with or without a result: one of its words, or a value that it
    changes. None: the column is not its to fill."""
    if column in step.values:
        value = step.values[column]
        return count_text(int(value)) if value.isascii() and value.isdigit() else value
    words = {
        "number": str(step.number),
        "step": step.name,
        "note": step.note,
        "command": step.command,
        "verdict": step.outcome,
        "limited_by": None if step.limited_by is None else str(step.limited_by),
    }
    return words.get(column)


def measured_cells(table: Mapping[str, str], result: Result) -> dict[str, str]:
    """The duration of a run and the metrics of populations, by heading: `POPULATION.METRIC`, or
    `METRIC` for all of them together, which is the sum of counts and rates and the worst of
    durations."""
    found = {heading: _metric(expression, result) for heading, expression in table.items()}
    return {heading: cell for heading, cell in found.items() if cell is not None}


def _metric(expression: str, result: Result) -> str | None:
    if expression == "duration":
        return span_text(result.duration_s)
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
