"""The report of data sheets side by side: a table for each figure that several cells have, with a
column for each broker and the outcome of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pubstorm.quantities import NOTHING, counted
from pubstorm.report.document import KEY_FIGURES_MAX, Case, Document, Fact, KeyFigure, sentence
from pubstorm.report.layout import Table, Value, columns
from pubstorm.report.of_datasheet import BOUND_NOTE, column_of, shown
from pubstorm.report.sheet_plots import compared_plots
from pubstorm.result.datasheet import SECTIONS
from pubstorm.result.datasheet_comparison import (
    SheetColumn,
    SheetComparison,
    SheetRow,
    agreement_text,
    drift_text,
    outcome_text,
    terms,
)

NOTES = (
    "All pairs of a row are compared with each other, and their number is taken into account.",
    "A difference no larger than the drift of the anchor figure is none.",
)


def datasheets_document(found: SheetComparison, *, has_plots: bool = False) -> Document:
    """Builds the report of data sheets side by side, with plots for the page."""
    names = [column.name for column in found.columns]
    headline = _headline(found)
    statements = tuple(sentence(f"not equal are the {each}") for each in found.unequal)
    sheets = [folder for column in found.columns for folder in column.sheets]
    return Document(
        kind="data sheets",
        title=_listed(names),
        started=found.started,
        run_directory=found.run_directory,
        status=None,
        headline=headline,
        key_figures=tuple(_key_figures(found.rows, names))[:KEY_FIGURES_MAX],
        statements=(*(statements or ("All terms are equal.",)), *NOTES),
        settings=(
            Fact("started", found.started),
            *(Fact("sheet", folder) for folder in sheets),
            Fact("folder", found.run_directory),
        ),
        tables=(*_tables(found.rows, names), _brokers(found)),
        plots=tuple(compared_plots(found)) if has_plots else (),
        cases=(Case("compared", skipped=headline),),
        output=(headline, *statements),
    )


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _headline(found: SheetComparison) -> str:
    differing = sum(row.differs for row in found.rows)
    columns, figures = len(found.columns), counted(len(found.rows), "figure")
    brokers, they = len({column.identity.broker for column in found.columns}), "brokers"
    compared = counted(brokers, "broker")
    if brokers < columns:
        compared, they = f"{compared} in {columns} columns", "columns"
    return f"{compared}, {figures}: {they} differ in {differing} of them."


def _key_figures(rows: Sequence[SheetRow], names: Sequence[str]) -> Iterator[KeyFigure]:
    """Yields the best figure of the first row of each section that has one. Several brokers may be
    no different from the one that has it."""
    for section in SECTIONS:
        row = next((each for each in rows if each.section == section and each.best), None)
        if row is None or section in {"features", "limits"}:
            continue
        sign = -1 if row.better == "less" else 1
        figures = {n: each.estimate.value for n in row.best if (each := row.figures[n]).estimate}
        first = max(figures, key=lambda n: sign * figures[n])
        value = row.figures[first].text.partition(" ± ")[0]
        others = len(row.best) - 1
        equal = f"; no difference from {counted(others, 'other')}" if others else ""
        yield KeyFigure(f"best {row.figure}", value, f"{names[first]}{equal}: {row.title}")


def _tables(rows: Sequence[SheetRow], names: Sequence[str]) -> Iterator[Table]:
    """Yields a table for each figure that several cells of a section have, and one of the others
    of the section."""
    for section, title in SECTIONS.items():
        own = [row for row in rows if row.section == section]
        counts = Counter(row.figure for row in own)
        shared = [figure for figure, count in counts.items() if count > 1]
        for figure in shared:
            of_figure = [row for row in own if row.figure == figure]
            yield _table(f"{title}: {figure}", of_figure, names, lambda row: row.title)
        others = [row for row in own if row.figure not in shared]
        loads = {row.title for row in others}
        if len(loads) == 1:
            (load,) = loads
            heading = title if load.lower() == title.lower() else f"{title}: {load}"
            yield _table(heading, others, names, lambda row: row.figure)
        elif others:
            yield _table(title, others, names, lambda row: f"{row.title}: {row.figure}")


def _table(
    title: str, rows: Sequence[SheetRow], names: Sequence[str], label: Callable[[SheetRow], str]
) -> Table:
    cells: list[tuple[Value, ...]] = [
        (label(row), outcome_text(row, names), *(shown(each) for each in row.figures))
        for row in rows
    ]
    brokers = (column_of(name, n, cells) for n, name in enumerate(names, 2))
    heads = (*columns("word", "cell", "outcome"), *brokers)
    has_bounds = any(each.is_bound and each.better for row in rows for each in row.figures)
    return Table(title, heads, cells, BOUND_NOTE if has_bounds else "")


def _brokers(found: SheetComparison) -> Table:
    """Returns the terms of all brokers, those first that are not equal."""
    by_name = {column.name: _terms(column, n, found) for n, column in enumerate(found.columns)}
    lines = [*next(iter(by_name.values()))]
    rows = [(line, *(each[line] or NOTHING for each in by_name.values())) for line in lines]
    rows.sort(key=lambda row: len({*row[1:]}) == 1)
    return Table("Brokers", columns("word", "term", *by_name), rows)


def _have_words(found: SheetComparison) -> bool:
    """Returns True if a sheet is of another protocol than MQTT."""
    return any(each.identity.words for each in found.columns)


def _terms(column: SheetColumn, place: int, found: SheetComparison) -> dict[str, str]:
    who = column.identity
    figures = [row.figures[place] for row in found.rows]
    limits = Counter(str(each.limited_by) for each in figures if each.limited_by is not None)
    return {
        "version": f"{who.broker} {who.version}".strip(),
        "source": who.source,
        **({"words of MQTT": "; ".join(who.words)} if _have_words(found) else {}),
        "changed settings": "; ".join(who.changed),
        "known limits": "; ".join(who.known),
        **terms(column),
        "drift of the anchor": drift_text(column),
        "passes that agree": agreement_text(column),
        "figures": str(sum(bool(each.estimate or each.word) for each in figures)),
        "limited by": ", ".join(f"{limit} ×{count}" for limit, count in limits.most_common()),
    }
