"""The report of a data sheet: a table for each section, the identity of the broker, and the figures
that the sheet could not find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from pubstorm.quantities import NOTHING, bytes_text, counted, share_text, span_text
from pubstorm.report.document import (
    KEY_FIGURES_MAX,
    Case,
    Document,
    Fact,
    Item,
    KeyFigure,
    sentence,
)
from pubstorm.report.layout import Column, Shown, Table, Value, columns
from pubstorm.report.sheet_plots import sheet_plots
from pubstorm.report.stored import holds
from pubstorm.result import LimitedBy, SeriesCell
from pubstorm.result.datasheet import (
    SECTIONS,
    Datasheet,
    Identity,
    Section,
    SheetCell,
    SheetFigure,
)

FIGURES_WIDE_MAX = 4
"""Figures that a table shows beside each other; a table of more has a row for each."""
FULL_MIN = 0.75
"""Share of the places of such a table that have a figure."""
MOMENTS = ("begin", "middle", "end")
"""Instants of the anchor."""
BOUND_NOTE = "≥ and ≤: the broker may be better, since more was not asked or could not be."


def datasheet_document(sheet: Datasheet, folder: Path | None = None) -> Document:
    """Builds the report of a data sheet. `folder` is its folder; without one no cell has a page,
    and there are no plots."""
    headline, statements = _headline(sheet), tuple(_statements(sheet))
    return Document(
        kind="data sheet",
        title=sheet.name_of_broker,
        started=sheet.started,
        run_directory=sheet.run_directory,
        status=None,
        headline=headline,
        key_figures=tuple(_key_figures(sheet))[:KEY_FIGURES_MAX],
        statements=statements,
        facts=tuple(identity_facts(sheet)),
        settings=tuple(_settings(sheet)),
        tables=(*_section_tables(sheet), *_honesty(sheet)),
        items=tuple(_items(sheet, folder)),
        plots=() if folder is None else tuple(sheet_plots(sheet)),
        cases=tuple(map(_case, sheet.cells)),
        output=(headline, *statements),
        is_complete=sheet.complete,
    )


def _headline(sheet: Datasheet) -> str:
    """Returns what the cells say in one sentence; else the anchor figure, or the number of cells
    that have figures."""
    said = [words for cell in sheet.cells if (words := _said(cell))]
    if said:
        return f"{sheet.name_of_broker} {'; '.join(said)}."
    cell = anchor(sheet)
    if cell is not None:
        figure = cell.figures[0]
        return f"{sheet.name_of_broker}, {cell.title}: {figure.name} {figure.text}."
    measured = sum(cell.state == "measured" for cell in sheet.cells)
    return f"{sheet.name_of_broker}: {measured} of {counted(len(sheet.cells), 'cell')} measured."


def _said(cell: SheetCell) -> str:
    """Returns the words of a cell for its first figure, with what set the limit; empty if it has
    none."""
    figure = cell.figures[0] if cell.figures else None
    if figure is None or figure.estimate is None or not cell.says:
        return ""
    limit = figure.limited_by
    is_limited = limit is not None and limit is not LimitedBy.NONE
    return cell.says.replace("{}", figure.text) + (f", limited by {limit}" if is_limited else "")


def anchor(sheet: Datasheet) -> SheetCell | None:
    """Returns the cell of the anchor figure; None if it has no figure."""
    title = None if sheet.drift is None else sheet.drift.figure
    cells = (cell for cell in sheet.cells if cell.title == title and cell.figures)
    return next((cell for cell in cells if cell.figures[0].estimate is not None), None)


def _statements(sheet: Datasheet) -> Iterator[str]:
    """Yields the size of the sheet and its doubts, a sentence each."""
    measured = [cell for cell in sheet.cells if cell.state == "measured"]
    spent, given = span_text(sheet.spent_s), span_text(sheet.for_s)
    total = counted(len(sheet.cells), "cell")
    yield f"{len(measured)} of {total} measured, in {spent} of {given} minutes given."
    ours = [figure for _, figure in sheet.figures if figure.is_ours]
    if ours:
        limits = " or ".join(dict.fromkeys(f"the {each.limited_by}" for each in ours))
        are_bounds = "is a bound" if len(ours) == 1 else "are bounds"
        yield f"{counted(len(ours), 'figure')} {are_bounds}: {limits} set the limit."
    if sheet.drift is not None:
        spread, times = share_text(sheet.drift.spread), counted(len(sheet.drift.values), "time")
        yield f"The anchor figure was measured {times}; its values spread by {spread}."
    if sheet.identity.garbage:
        yield "Memory of this broker contains garbage that its runtime has not collected."
    yield from map(sentence, sheet.remarks)


def _key_figures(sheet: Datasheet) -> Iterator[KeyFigure]:
    """Yields the first figure of each section, of throughput the anchor."""
    first = anchor(sheet)
    for section in SECTIONS:
        cells = [cell for cell in sheet.cells if cell.section == section]
        if first in cells:
            cells.remove(first)
            cells.insert(0, first)
        found = next(
            ((cell, each) for cell in cells for each in cell.figures if each.estimate is not None),
            None,
        )
        if found is not None:
            cell, figure = found
            value, _, half = figure.text.partition(" ± ")
            yield KeyFigure(figure.name, value, f"± {half}, {cell.title}" if half else cell.title)


def identity_facts(sheet: Datasheet) -> Iterator[Fact]:
    """Yields the broker, its terms and the machine."""
    who, machine = sheet.identity, sheet.identity.environment
    yield Fact("broker", sheet.name_of_broker)
    if who.source:
        yield Fact("source", who.source)
    yield Fact("protocol", who.protocol)
    yield from (Fact(f"in {who.protocol}", each) for each in who.words)
    yield from (Fact("changed setting", each) for each in who.changed)
    yield Fact("processors", processors(who))
    yield Fact("memory", memory(who))
    if machine is not None:
        yield Fact("host", f"{machine.host}, {machine.cores} × {machine.cpu_model}")
        yield Fact("memory of the host", bytes_text(machine.memory_bytes))
        yield Fact("kernel", f"{machine.kernel}, {machine.machine}")
        yield Fact("Pubstorm", machine.pubstorm)
    if sheet.target:
        yield Fact("target", sheet.target)
    yield Fact("started", sheet.started)
    yield Fact("plan", f"{sheet.plan}, {span_text(sheet.for_s)} given")
    yield from (Fact("known limit", each) for each in who.known)


def processors(who: Identity) -> str:
    """Returns the processors that a broker may use, in words."""
    if not who.cpus:
        return "all of the host"
    return f"{counted(len(who.cpus), 'processor')} ({', '.join(map(str, who.cpus))})"


def memory(who: Identity) -> str:
    """Returns the memory that a broker may use, in words."""
    limit = "all of the host" if who.memory_bytes is None else bytes_text(who.memory_bytes)
    return f"{limit}, figures with garbage" if who.garbage else limit


def _settings(sheet: Datasheet) -> Iterator[Fact]:
    yield Fact("started", sheet.started)
    yield Fact("ended", sheet.ended)
    if sheet.identity.recipe is not None:
        yield Fact("recipe", sheet.identity.recipe)
    if sheet.identity.settings:
        yield Fact("settings", sheet.identity.settings.rstrip(), is_code=True)
    yield from (Fact("changed by", override) for override in sheet.overrides)
    yield Fact("folder", sheet.run_directory)


def _section_tables(sheet: Datasheet) -> Iterator[Table]:
    played = [(n, cell.name) for n, cell in enumerate(sheet.cells, 1) if cell.folder]
    numbers = {name: f"#part-{number}" for number, name in played}
    for section, title in SECTIONS.items():
        cells = [c for c in sheet.cells if c.section == section and (c.figures or c.folder)]
        if cells:
            yield _section_table(title, cells, numbers)


def _section_table(title: str, cells: Sequence[SheetCell], numbers: dict[str, str]) -> Table:
    names = [*dict.fromkeys(figure.name for cell in cells for figure in cell.figures)]
    places = len(names) * sum(bool(cell.figures) for cell in cells)
    is_full = sum(len(cell.figures) for cell in cells) >= FULL_MIN * places
    is_wide = 0 < len(names) <= FIGURES_WIDE_MAX and is_full
    heads, rows, notes = _beside(cells, names) if is_wide else _below(cells)
    links = {cell.title: numbers.get(cell.name, "") for cell in cells}
    if any(figure.is_bound for cell in cells for figure in cell.figures):
        notes = (*notes, BOUND_NOTE)
    of_rows = tuple(links.get(str(row[0]), "") for row in rows)
    return Table(title, heads, rows, " ".join(notes), of_rows).without_empty()


Rows = tuple[tuple[Column, ...], list[tuple[Value, ...]], tuple[str, ...]]
"""Columns, rows and notes of a table."""


def _beside(cells: Sequence[SheetCell], names: Sequence[str]) -> Rows:
    """Returns a row for each cell. A mark has the limits that differ from the usual one."""
    limits = Counter(figure.limited_by for cell in cells for figure in cell.figures)
    del limits[None]
    usual = next((limit for limit, _ in limits.most_common(1)), None)
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        found = {figure.name: shown(figure, usual) for figure in cell.figures}
        if not found and cell.why:
            found[names[0]] = shown(SheetFigure(name="", remarks=(cell.why,)))
        r_squared = [_r_squared(figure) for figure in cell.figures if figure.r_squared is not None]
        known = (*map(found.get, names), next(iter(r_squared), None), cell.load or None)
        rows.append((cell.title, *known))
    heads = (
        *columns("word", "cell"),
        *(column_of(name, n, rows) for n, name in enumerate(names, 1)),
    )
    note = () if usual is None else (f"Limit without a mark: {usual}.",)
    return (*heads, *columns("count", "R²"), *columns("word", "at")), rows, note


def _below(cells: Sequence[SheetCell]) -> Rows:
    """Returns a row for each figure."""
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        nothing = SheetFigure(name=NOTHING, remarks=(cell.why,) if cell.why else ())
        title, load = cell.title, cell.load or None
        for each in cell.figures or (nothing,):
            limit = None if each.limited_by is None else str(each.limited_by)
            rows.append((title, each.name, shown(each), _r_squared(each), limit, load))
            title, load = "", None
    heads = (*columns("word", "cell", "figure"), column_of("value", 2, rows))
    return (*heads, *columns("count", "R²"), *columns("word", "limited by", "at")), rows, ()


def _r_squared(figure: SheetFigure) -> Shown | None:
    return None if figure.r_squared is None else Shown(f"{figure.r_squared:.4f}")


def column_of(name: str, place: int, rows: Sequence[tuple[Value, ...]]) -> Column:
    """Returns a column, set flush right if none of its cells is a word."""
    cells = [cell for row in rows if isinstance(cell := row[place], SeriesCell)]
    return Column(name, "word" if any(cell.word for cell in cells) else "count")


def shown(figure: SheetFigure, usual: LimitedBy | None = None) -> SeriesCell:
    """Returns the cell of a figure, with its remarks. One of them is its limit, if `usual` is
    another."""
    limit = figure.limited_by
    remarks = (f"limit: {limit}",) if limit is not None and usual not in (None, limit) else ()
    return SheetText(
        word=figure.word, shown=figure.text, remarks=tuple(dict.fromkeys(remarks + figure.remarks))
    )


class SheetText(SeriesCell):
    """A figure as its sheet shows it."""

    shown: str

    @property
    def text(self) -> str:
        """The figure as it is shown."""
        return self.shown


def _honesty(sheet: Datasheet) -> Iterator[Table]:
    """Yields the figures that a limit of ours cut off, the cells without figures, and the
    anchor."""
    ours = [(cell, figure) for cell, figure in sheet.figures if figure.is_ours]
    if ours:
        heads = (*columns("word", "cell", "figure"), Column("value"), Column("limited by", "word"))
        rows = [(cell.title, fig.name, shown(fig), str(fig.limited_by)) for cell, fig in ours]
        yield Table("Limited by this host or the load generator", heads, rows)
    if sheet.left_out:
        heads = columns("word", "section", "state", "cells", "reason")
        yield Table("Not measured", heads, list(_left_out(sheet)))
    if sheet.drift is not None:
        heads = (*columns("word", "anchor"), Column("value"))
        values = [Shown(each.text) for each in sheet.drift.values]
        moments = _moments(len(values))
        note = f"{sheet.drift.figure}. The values spread by {share_text(sheet.drift.spread)}."
        yield Table("The machine over the sheet", heads, [*zip(moments, values, strict=True)], note)


def _left_out(sheet: Datasheet) -> Iterator[tuple[Value, ...]]:
    """Yields a row for each section, state and reason."""
    order = [*SECTIONS]

    def alike(cell: SheetCell) -> tuple[int, str, str]:
        return order.index(cell.section), cell.state, cell.why

    for (place, state, why), cells in groupby(sorted(sheet.left_out, key=alike), key=alike):
        section: Section = order[place]
        yield SECTIONS[section], state, "; ".join(cell.title for cell in cells), why or NOTHING


def _moments(count: int) -> Sequence[str]:
    """Returns the instants of that many values of the anchor."""
    return MOMENTS if count == len(MOMENTS) else [str(n + 1) for n in range(count)]


def _items(sheet: Datasheet, folder: Path | None) -> Iterator[Item]:
    for number, cell in enumerate(sheet.cells, 1):
        if not cell.folder:
            continue
        page = f"{cell.folder}/report.html"
        limits = (figure.limited_by for figure in cell.figures)
        yield Item(
            number=number,
            name=cell.title,
            outcome=cell.state,
            status=None,
            limited_by=next(filter(None, limits), None),
            facts=tuple(filter(None, (cell.why, *cell.evidence))),
            folder=cell.folder,
            is_notable=cell.state == "without figures",
            command=cell.command,
            page=page if folder is not None and holds(folder, page) else None,
        )


def _case(cell: SheetCell) -> Case:
    name = f"{SECTIONS[cell.section]}: {cell.title}"
    if cell.state == "measured":
        return Case(name, took_s=cell.took_s)
    reason = cell.why or cell.state
    if cell.state == "without figures":
        return Case(name, failure=reason, took_s=cell.took_s)
    return Case(name, skipped=reason)
