"""What a column of the scenario's own table may show besides a metric. It knows no table."""

from __future__ import annotations

RESULT_WORDS = ("verdict", "limited_by", "evidence", "duration", "command")
"""Parts of a result."""
STEP_WORDS = ("step", "number", "note")
"""What only a series knows of its steps."""
SCENARIO_PATHS = ("target", "seed", "populations.", "stages.", "topology.")
"""What a column begins with that shows a value of the scenario."""


def shows_scenario(column: str) -> bool:
    """Whether a column shows a value of the scenario, or the place of a step in its series."""
    return column in STEP_WORDS or column.startswith(SCENARIO_PATHS)


def is_metric(column: str) -> bool:
    """Whether a column is a metric expression."""
    return column not in RESULT_WORDS and not shows_scenario(column)
