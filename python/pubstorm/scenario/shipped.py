"""The ready scenarios that come with Pubstorm: in the wheel, or in the checkout's `scenarios/`."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path as FilePath

from pubstorm.errors import UsageError
from pubstorm.scenario.load import load_scenario
from pubstorm.scenario.model import Scenario


def scenario_files() -> list[FilePath]:
    """The ready scenarios, by name."""
    return sorted((PACKAGED if PACKAGED.is_dir() else CHECKOUT).glob("*.yaml"))


def shipped_scenarios() -> list[Scenario]:
    """The ready scenarios, read."""
    return [load_scenario(path) for path in scenario_files()]


def find_scenario(name: str) -> FilePath:
    """The file that a user means by a path or by the name of a ready scenario."""
    path = FilePath(name)
    if path.exists() or path.suffix in {".yaml", ".yml"} or "/" in name:
        return path
    known = {file.stem: file for file in scenario_files()}
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "pubstorm scenarios lists the ready ones"
    raise UsageError(f"found no file and no ready scenario {name!r}", hint)


PACKAGED = FilePath(__file__).parents[1] / "scenarios"
CHECKOUT = FilePath(__file__).parents[3] / "scenarios"
