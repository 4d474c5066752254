"""For which numbers a topic filter with variables matches a topic, counted without walking them. It
knows neither clients nor brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from pubstorm.rows import Table
from pubstorm.template import Kind, Part, Template, Variable


class Matching:
    """The numbers for which `levels` match `topic`; `rows` are theirs."""

    def __init__(
        self,
        levels: Sequence[tuple[Part, ...]],
        topic: str,
        numbers: range,
        rows: Table | None = None,
    ) -> None:
        self._low = numbers.start
        self._high = numbers.stop - 1
        self._rows = rows
        self._remainders: list[tuple[int, int]] = []
        self._listed: list[tuple[str, str]] = []
        """Columns with the value that the rows of the numbers have."""
        if not self._matches(levels, topic.split("/")):
            self._high = self._low - 1

    def keep_remainder(self, k: int, r: int) -> None:
        """Keeps those with `n % k == r`."""
        self._remainders.append((k, r))

    def numbers(self) -> Sequence[int]:
        """All of them."""
        numbers: Sequence[int] = range(self._low, self._high + 1)
        if self._listed and self._rows is not None:
            numbers = self._rows.numbers(*self._listed[0], self._low, self._high)
        if not self._remainders and not self._listed[1:]:
            return numbers
        return [n for n in numbers if self._fits(n)]

    def count(self) -> float:
        """How many they are; estimated where they are many."""
        span = self._high - self._low + 1
        if span > ENUMERATED_MAX and not self._listed:
            return span / prod(k for k, _ in self._remainders)
        return len(self.numbers())

    def _fits(self, n: int) -> bool:
        rows = self._rows
        return all(n % k == r for k, r in self._remainders) and all(
            rows is not None and rows.value(column, n) == value for column, value in self._listed
        )

    def _matches(self, levels: Sequence[tuple[Part, ...]], texts: Sequence[str]) -> bool:
        if texts[0].startswith("$") and levels[0] in {("+",), ("#",)}:
            return False
        for place, level in enumerate(levels):
            if level == ("#",):
                return True
            if place >= len(texts) or not self._narrow(level, texts[place]):
                return False
        return len(texts) == len(levels)

    def _narrow(self, level: tuple[Part, ...], text: str) -> bool:
        """Keeps the numbers for which `level` reads `text`; whether that can be at all."""
        variable = next((part for part in level if isinstance(part, Variable)), None)
        before, after = _around(level)
        if variable is None:
            return before in {"+", text}
        middle = text.removeprefix(before).removesuffix(after)
        if not text.startswith(before) or f"{before}{middle}{after}" != text:
            return False
        if variable.kind is Kind.CHOICE:
            return middle in variable.words
        if variable.kind is Kind.ROW:
            self._listed.append((variable.words[0], middle))
            return self._rows is not None
        if not (middle.isascii() and middle.isdigit() and str(int(middle)) == middle):
            return False
        return self._require(variable, int(middle))

    def _require(self, variable: Variable, value: int) -> bool:
        match variable.kind:
            case Kind.NUMBER:
                self._low, self._high = max(self._low, value), min(self._high, value)
            case Kind.QUOTIENT:
                self._low = max(self._low, value * variable.a)
                self._high = min(self._high, value * variable.a + variable.a - 1)
            case Kind.REMAINDER:
                self.keep_remainder(variable.a, value)
                return value < variable.a
            case Kind.RANGE:
                return variable.a <= value <= variable.b
        return self._low <= self._high


@lru_cache(maxsize=1024)
def filter_levels(source: str) -> tuple[tuple[Part, ...], ...]:
    """The levels of a filter."""
    return Template.parse(source).levels()


def _around(level: tuple[Part, ...]) -> tuple[str, str]:
    """The text before and after the level's variable; all of it before where there is none."""
    before, after = "", ""
    passed = False
    for part in level:
        if isinstance(part, Variable):
            passed = True
        elif passed:
            after += part
        else:
            before += part
    return before, after


ENUMERATED_MAX = 4096
