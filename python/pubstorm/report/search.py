"""A search on the terminal and as Markdown: every point that was played, what is worth nothing and
why, and the answer with its interval."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from pubstorm.quantity import NOTHING, counted, share_text, span_text, value_text
from pubstorm.report.markdown import escaped, table_lines
from pubstorm.report.outcomes import mark
from pubstorm.report.series import parts_of
from pubstorm.report.table import Column, Table
from pubstorm.report.text import STYLES, drawn_table, wide_enough
from pubstorm.result import Cell, Estimate, SearchPoint, SearchResult, ThresholdOutcome, are_figures

FACTS_MAX = 3
"""Facts of a point that are shown with it."""


def render_search(search: SearchResult, console: Console) -> None:
    """Prints everything."""
    console = wide_enough(console)
    for table in search_tables(search):
        for part in parts_of(table, console.width):
            console.print()
            console.print(drawn_table(part))
    console.print()
    for point, facts in notable(search):
        console.print(_point_line(search, point), soft_wrap=True)
        for fact in facts:
            console.print(Text(f"  {fact}"), soft_wrap=True)
    console.print()
    render_answer(search, console)


def render_answer(search: SearchResult, console: Console) -> None:
    """Prints what the search found, and where it is kept."""
    console = wide_enough(console)
    status = str(search.status).upper()
    console.print(
        Text.assemble((f"{status}  ", STYLES[search.status]), search.answer.text), soft_wrap=True
    )
    facts = answer_facts(search)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(Text.assemble((f"  {name:<{width}}  ", "dim"), value), soft_wrap=True)
    if not search.complete:
        resume = f"pubstorm run --resume {search.run_directory}"
        console.print(Text.assemble(("continue with  ", "dim"), resume), soft_wrap=True)
    console.print(Text.assemble(("run directory  ", "dim"), search.run_directory), soft_wrap=True)


def search_markdown(search: SearchResult) -> str:
    """The text of a search's `report.md`."""
    lines = [f"# {escaped(search.name)}", ""]
    lines += [f"**{str(search.status).upper()}** {escaped(search.answer.text)}", ""]
    lines += [f"- **{escaped(name)}**: {escaped(value)}" for name, value in answer_facts(search)]
    for table in search_tables(search):
        lines += ["", f"## {table.title}", "", *table_lines(table)]
    for point, facts in notable(search):
        lines += ["", f"## {escaped(point_name(search, point))}: {outcome_text(point)}", ""]
        lines += [f"- {escaped(fact)}" for fact in facts]
    return "\n".join(lines) + "\n"


def answer_facts(search: SearchResult) -> list[tuple[str, str]]:
    """Name and value of what the search says, and of what it was asked."""
    answer, facts = search.answer, [("varied", search.vary)]
    defaults = tuple(f"{each} (default)" for each in search.defaults)
    if search.thresholds or defaults:
        facts.append(("holds while", "; ".join((*search.thresholds, *defaults))))
    if answer.best is not None:
        facts.append(("largest that holds", estimate_text(search, answer.best)))
    if answer.most is not None and search.figure is not None:
        facts.append((f"most {search.figure}", estimate_text(search, answer.most)))
    if answer.limited_by is not None:
        facts.append(("limited by", str(answer.limited_by)))
    if answer.confirmed is not None:
        facts.append(("confirmed", "it held again" if answer.confirmed else "it did not hold"))
    took_s = sum(point.duration_s for point in search.points)
    uncounted = sum(not point.counted for point in search.points)
    points = f"{counted(len(search.points), 'point')} in {span_text(took_s)}"
    facts.append(("played", points + (f", {uncounted} of them not counted" if uncounted else "")))
    return facts


def estimate_text(search: SearchResult, estimate: Estimate) -> str:
    """An estimate with its interval, and where that comes from."""
    if estimate.bound == "at_least":
        return f"{estimate.text}: beyond it nothing could be counted, or nothing was to be tried"
    if estimate.bound == "none" and estimate.repeats > 1:
        return f"{estimate.text} (the lower value held again, a larger one did not)"
    if estimate.repeats < 2:
        return f"{estimate.text} (looked for once)"
    confidence = share_text(search.confidence)
    return f"{estimate.text} (mean of {estimate.repeats} repeats, {confidence} confidence)"


def search_tables(search: SearchResult) -> list[Table]:
    """The points, and the scenario's own table of them, where there are any."""
    tables = [points_table(search)] if search.points else []
    played = [point for point in search.points if point.cells]
    if played and search.columns:
        columns = (
            Column("value"),
            *(
                Column(name, right=are_figures([point.cells[place] for point in played]))
                for place, name in enumerate(search.columns)
            ),
        )
        own = [(value_of(search, p), *(cell.text for cell in p.cells)) for p in played]
        tables.append(Table("The scenario's own table", columns, tuple(own)))
    return tables


def points_table(search: SearchResult) -> Table:
    """One row for each point, in the order of playing."""
    figure = search.figure or "figure"
    names = ("point", "for", "value", figure, *search.thresholds, "verdict", "limited by")
    left = {"for", "verdict", "limited by", "counted"}
    columns = (*(Column(name, right=name not in left) for name in names),)
    columns = (*columns, Column("counted", right=False), Column("took"))
    rows = tuple(_row(search, point) for point in search.points)
    return Table("Points", columns, rows).without_empty_columns()


def notable(search: SearchResult) -> Iterator[tuple[SearchPoint, tuple[str, ...]]]:
    """The points that were not counted, with why, and of those that broke the one with the smallest
    value, with its facts."""
    broken = [point for point in search.points if point.broken]
    first = min(broken, key=lambda point: point.value, default=None)
    for point in search.points:
        if point.why is not None:
            yield point, (f"not counted: {point.why}",)
        elif point is first or point.status is None:
            yield point, facts_of(point)


def facts_of(point: SearchPoint) -> tuple[str, ...]:
    """Why a point is not counted, and the first facts behind its verdict."""
    why = () if point.why is None else (f"not counted: {point.why}",)
    return (*why, *point.evidence[:FACTS_MAX])


def point_name(search: SearchResult, point: SearchPoint) -> str:
    """A point by its number and value."""
    return f"{point.number}: {value_of(search, point)}"


def value_of(search: SearchResult, point: SearchPoint) -> str:
    """The value of a point, with its unit."""
    return value_text(point.value, search.unit)


def outcome_text(point: SearchPoint) -> str:
    """The verdict of a point in a word, or why it has none."""
    return "no measurement" if point.status is None else str(point.status)


def _row(search: SearchResult, point: SearchPoint) -> tuple[str, ...]:
    figure = NOTHING if point.figure is None else value_text(point.figure, search.figure_unit)
    judged = {outcome.expression: outcome for outcome in point.thresholds}
    return (
        str(point.number),
        _purpose(point),
        value_of(search, point),
        figure,
        *(_condition(judged.get(expression)) for expression in search.thresholds),
        outcome_text(point),
        NOTHING if point.limited_by is None else str(point.limited_by),
        "yes" if point.counted else "no",
        span_text(point.duration_s),
    )


def _purpose(point: SearchPoint) -> str:
    several = f" {point.repetition}" if point.phase in {"repeat", "most"} else ""
    again = "" if point.attempt == 1 else f", attempt {point.attempt}"
    return point.phase + several + again


def _condition(outcome: ThresholdOutcome | None) -> str:
    if outcome is None:
        return NOTHING
    found = outcome.text
    if outcome.found is not None:
        found = Cell(value=outcome.found, unit=outcome.unit, bound=outcome.bound).text
    return f"{found} {mark(outcome)}"


def _point_line(search: SearchResult, point: SearchPoint) -> Text:
    style = STYLES[point.status] if point.status is not None else "bold yellow"
    limit = "" if point.limited_by is None else f"  limited by {point.limited_by}"
    name = f"{outcome_text(point).upper():<6}  "
    return Text.assemble((name, style), point_name(search, point), (limit, "dim"))
