"""Texts of a broker beside its reason codes: a few examples of each outcome, with their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pubstorm.contract.reasons import Reason
from pubstorm.contract.snapshot import Answer, Explanation, TextProperty

EXAMPLES_MAX = 5
"""Different texts of an outcome and a property that are kept."""


class ExplanationSum:
    """A growing sum of explanations. The sum keeps the texts that come first in order, so that
    explanations add up in any order."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Reason | Answer, TextProperty], Counter[str | None]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExplanationSum) and self.value() == other.value()

    __hash__ = None  # type: ignore[assignment]

    def add(self, explanations: Iterable[Explanation]) -> None:
        """Adds the explanations of another interval or agent."""
        for each in explanations:
            counts = self._counts.setdefault((each.outcome, each.property), Counter())
            counts[each.text] += each.count
            texts = [text for text in counts if text is not None]
            if len(texts) > EXAMPLES_MAX:
                counts[None] += counts.pop(max(texts))

    def merge(self, other: ExplanationSum) -> None:
        """Adds another sum."""
        self.add(other.value())

    def value(self) -> tuple[Explanation, ...]:
        """Returns the sum so far, in order, with the other texts last."""
        return tuple(
            Explanation(outcome=outcome, property=name, text=text, count=counts[text])
            for (outcome, name), counts in sorted(self._counts.items())
            for text in sorted(counts, key=lambda text: (text is None, text or ""))
        )
