"""A table of texts, which every format can show. It knows no result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    right: bool = True
    """Whether its cells are numbers, set flush right."""


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """What is to be said below it."""
