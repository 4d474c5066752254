"""Many runs: series, searches, comparisons and calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pubstorm.experiment.invocation import Invocation
    from pubstorm.play.context import Check
    from pubstorm.play.display import Live
    from pubstorm.result import RunResult, SearchResult, Series
    from pubstorm.scenario import Scenario


def play(
    scenario: Scenario, asked: Invocation, out: Path | None, live: Live, check: Check | None = None
) -> RunResult | Series | SearchResult:
    """Plays a scenario as a series, a search or a run, in a new folder or in `out`. `check` is a
    check of the user after each stage of a run."""
    # Each needs only its own modules.
    if scenario.steps:
        from pubstorm.experiment.series import run_series

        return run_series(scenario, asked, out, live)
    if scenario.search is not None:
        from pubstorm.experiment.search import run_search

        return run_search(scenario, asked, out, live)
    from pubstorm.play.one_run import RunOptions, run_scenario

    options = RunOptions(out, asked.command(), reports=asked.reports, check=check)
    return run_scenario(scenario, options, live)
