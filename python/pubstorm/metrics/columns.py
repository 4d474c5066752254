"""What a column of the scenario's own table may show besides a metric. It knows no table."""

from __future__ import annotations

RESULT_WORDS = ("verdict", "limited_by", "evidence", "duration", "command")
"""Parts of a result."""
STEP_WORDS = ("step", "number", "note")
"""What only a series knows of its steps."""
SEARCH_WORDS = ("search.best", "search.most", "search.limited_by", "search.points")
"""What a search found: the largest value that holds and the largest figure, with their intervals;
who set the limit; how many points were played."""
POINT_WORDS = ("search.best", "search.most")
"""Points of a search that a figure can be asked of: `search.most:feed.cpu`."""
SCENARIO_PATHS = ("target", "seed", "populations.", "stages.", "topology.")
"""What a column begins with that shows a value of the scenario."""


def shows_scenario(column: str) -> bool:
    """Whether a column shows a value of the scenario, or the place of a step in its series."""
    return column in STEP_WORDS or column.startswith(SCENARIO_PATHS)


def shows_search(column: str) -> bool:
    """Whether a column shows what a search found, or a figure at one of its points."""
    return column in SEARCH_WORDS or asked_point(column)[0] is not None


def asked_point(column: str) -> tuple[str | None, str]:
    """The point of a search that a column asks, and what it asks there: of
    `search.most:feed.cpu` the point with the largest figure, and `feed.cpu`. None: no point."""
    point, colon, asked = column.partition(":")
    return (point, asked) if colon and point in POINT_WORDS else (None, column)


def is_metric(column: str) -> bool:
    """Whether a column is a metric expression."""
    return column not in RESULT_WORDS and not shows_search(column) and not shows_scenario(column)
