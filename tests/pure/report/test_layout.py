"""Tables as data: columns of metrics, fields and monitors, and those that a table leaves out."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from pubstorm.report.layout import Cells, Layout, Written, fields, listed, names, words
from pubstorm.result import RunResult


class Row(NamedTuple):
    """A row with fields in several units."""

    name: str
    lost_total: int
    at_s: float
    busy_share: float = 0.5
    inner: Row | None = None
    answers_total: int = 0


def shown(*columns: Cells[Row], rows: tuple[Row, ...]) -> tuple[tuple[str, ...], ...]:
    """Returns heads and cells of a table."""
    made = Layout[tuple[Row, ...], Row]("Rows", "load", lambda rows: rows).of(columns).table(rows)
    return (tuple(column.name for column in made.columns), *made.texts)


@pytest.mark.parametrize(
    ("text", "head", "unit"),
    [
        ("at_s", "at", "s"),
        ("lost_total", "lost", "count"),
        ("busy_share", "busy", "share"),
        ("inner.at_s as inside", "inside", "s"),
    ],
)
def test_the_name_of_a_field_has_head_and_unit(text: str, head: str, unit: Written) -> None:
    (column,) = fields(text)
    assert (column.head, column.unit) == (head, unit)


def column(table: str, head: str) -> Cells[Any]:
    """Returns a column of the registry."""
    return next(each for each in listed(table) if each.head == head)


def test_a_metric_has_head_and_unit_of_the_registry() -> None:
    assert [(each.head, each.unit) for each in listed("flapping")] == [
        ("unsubscribed", "count"),
        ("refused", "count"),
        *((f"UNSUBACK {each}", "us") for each in ("p50", "p99", "max")),
        *((f"SUBACK {each}", "us") for each in ("p50", "p99", "max")),
    ]
    with pytest.raises(AttributeError):
        listed("flapping")[0].read(Row("a", 3, 1))


def test_a_row_of_a_list_shows_the_sum() -> None:
    assert column("ledger", "lost").read([Row("a", 3, 1), Row("b", 4, 1)]) == 7


def test_a_column_can_need_a_cell() -> None:
    rows = (Row("a", 0, 1.0), Row("", 0, 2.0))
    every = (
        *words("name", without_empty=True),
        *fields("inner.at_s as inside", when="known"),
        *fields("lost_total", when="known"),
        *fields("lost_total as some", when="any"),
        next(each for each in listed("ledger", given=lambda row: row.name) if each.head == "lost"),
        column("round trips", "answers"),
    )
    assert shown(*every, rows=rows) == (
        ("name", "lost", "lost"),
        ("a", "0", "0"),
        ("–", "0", "–"),
    )
    assert len(shown(*every, rows=())[0]) == len(every)


def test_rows_can_have_names_and_columns_can_come_from_the_source(plain_run: RunResult) -> None:
    made = Layout[RunResult, object](
        lambda result: result.name, "load", lambda result: result.populations.items()
    ).of(names("population"), lambda result: listed("wills" if result.flows else "order"))
    table = made.table(plain_run)
    assert table.title == plain_run.name
    assert [column.name for column in table.columns] == [
        "population",
        "expected",
        "received",
        "lost",
    ]
    assert [row[0] for row in table.rows] == [*plain_run.populations]
