"""Values that become many and are read rarely: rows of plain numbers, in compressed blocks."""

from __future__ import annotations

import marshal
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

BLOCK = 64
"""Rows that are compressed together: neighbours are alike."""

T = TypeVar("T")
Row = tuple[Any, ...]


class Packed(Generic[T]):
    """A sequence that only grows. Two are equal if they hold the same values in any order."""

    def __init__(self, row_of: Callable[[T], Row], value_of: Callable[[Row], T]) -> None:
        self._row_of = row_of
        self._value_of = value_of
        self._blocks: list[bytes] = []
        self._open: list[Row] = []

    def append(self, value: T) -> None:
        """Adds a value."""
        self._add(self._row_of(value))

    def extend(self, other: Packed[T]) -> None:
        """Adds all values of another sequence."""
        for row in other._rows():
            self._add(row)

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._open)

    def __iter__(self) -> Iterator[T]:
        return map(self._value_of, self._rows())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packed):
            return NotImplemented
        return Counter(self._rows()) == Counter(other._rows())

    __hash__ = None  # type: ignore[assignment]

    def _add(self, row: Row) -> None:
        self._open.append(row)
        if len(self._open) == BLOCK:
            self._blocks.append(zlib.compress(marshal.dumps(self._open), 1))
            self._open = []

    def _rows(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from marshal.loads(zlib.decompress(block))
        yield from self._open
