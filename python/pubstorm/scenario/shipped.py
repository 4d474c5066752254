"""The ready scenarios that come with Pubstorm: in the wheel, or in the checkout's `scenarios/`."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from pubstorm.errors import UsageError
from pubstorm.scenario import Scenario, load_scenario


def scenario_files() -> list[Path]:
    """The ready scenarios, by name."""
    return sorted(_folder().glob("*.yaml"))


def shipped_scenarios() -> list[Scenario]:
    """The ready scenarios, read."""
    return [load_scenario(path) for path in scenario_files()]


def find_scenario(name: str) -> Path:
    """The file that a user means by a path or by the name of a ready scenario."""
    path = Path(name)
    if path.exists() or path.suffix in {".yaml", ".yml"} or "/" in name:
        return path
    known = {file.stem: file for file in scenario_files()}
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "pubstorm scenarios lists the ready ones"
    raise UsageError(f"found no file and no ready scenario {name!r}", hint)


def _folder() -> Path:
    return PACKAGED if PACKAGED.is_dir() else CHECKOUT


PACKAGED = Path(__file__).parents[1] / "scenarios"
CHECKOUT = Path(__file__).parents[3] / "scenarios"
