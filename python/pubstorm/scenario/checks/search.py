"""What a search asks of the rest of its scenario: two values in order, something that can break, a
path that nothing else varies. It tries no value.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.at import Finding
from pubstorm.scenario.model import Scenario
from pubstorm.units import UnfitError, describe

NOT_SEARCHED = ("search", "sweep", "table", "thresholds", "name", "description")
"""Keys that no load grows with."""


def check_search(scenario: Scenario) -> Iterator[Finding]:
    """What can be said of it once every value is right by itself."""
    search = scenario.search
    if search is None:
        return
    try:
        span = search.span
    except UnfitError as unfit:
        yield ("search", "to"), str(unfit), unfit.hint
        return
    if span.low <= 0:
        yield ("search", "from"), f"found {search.from_}, allowed is more than nothing", None
    if span.high <= span.low:
        message = f"found {search.to}, allowed is more than from, which is {search.from_}"
        yield ("search", "to"), message, None
    path = ("search", "vary")
    if search.vary.partition(".")[0] in NOT_SEARCHED or "=" in search.vary:
        message = f"found {describe(search.vary)}, allowed is the path of a value of the load"
        yield path, message, "such as populations.device.clients"
    if scenario.sweep is not None:
        varied = {p for variation in scenario.sweep.variations() for p in variation.values}
        if search.vary in varied:
            yield path, f"found {search.vary}, which the sweep varies too", "vary another value"
    if not scenario.thresholds:
        message = "found a search without thresholds, needed is at least one"
        hint = "they say what it means that a value holds, such as device.lost == 0"
        yield ("search",), message, hint
