"""What the tables over a series ask of its sweep: steps to make rows of, variants that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pubstorm.scenario.at import Finding
from pubstorm.scenario.expressions import unknown
from pubstorm.scenario.sweep import Sweep
from pubstorm.scenario.tables import TableColumn
from pubstorm.units import describe


def check_tables(
    tables: Mapping[str, Mapping[str, TableColumn]], sweep: Sweep
) -> Iterator[Finding]:
    """That each column asks a variant for its figure where there are variants, and no other."""
    for title, columns in tables.items():
        if not columns:
            yield ("tables", title), "found a table without columns, needed is one", None
        for heading, column in columns.items():
            yield from _check_variant(("tables", title, heading), column, sweep)


def _check_variant(place: tuple[str, ...], column: TableColumn, sweep: Sweep) -> Iterator[Finding]:
    is_of_step = column.shows_step(sweep.names)
    if column.variant is None:
        if sweep.variants and not is_of_step:
            message = f"found {describe(column.metric)} of no variant, needed is one of"
            hint = f"write {{variant: {next(iter(sweep.variants))}, metric: {column.metric}}}"
            yield place, f"{message} {', '.join(sweep.variants)}", hint
    elif is_of_step:
        message = f"found a variant for {describe(column.metric)}, allowed is none"
        yield place, message, "all variants of a step have the same"
    elif column.variant not in sweep.variants:
        yield (*place, "variant"), *unknown("variant", column.variant, tuple(sweep.variants))
