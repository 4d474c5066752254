"""How a judged condition is shown: with a mark, and a word for those who cannot see it."""

from __future__ import annotations

from pubstorm.result import ThresholdOutcome


def mark(outcome: ThresholdOutcome) -> str:
    """✓, ✗, or ? where nobody can say."""
    return _MARKS[word(outcome)]


def word(outcome: ThresholdOutcome) -> str:
    """passed, failed or undecided."""
    if outcome.undecided:
        return "undecided"
    return "passed" if outcome.passed else "failed"


_MARKS = {"passed": "✓", "failed": "✗", "undecided": "?"}
