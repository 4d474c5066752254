"""The world: tests that play every ready scenario, every fault of a cluster and every page.

A run of all of tests/world that passes writes its commit into tests/world.toml. The gate plays the
cases that concern what changed since then, as far as they fit into some minutes."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.kit import spent

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "world"
PASSED = ROOT / "tests" / "world.toml"
UNKNOWN_S = 20.0
"""Length of a case that no run has stored."""
LEFT_OUT = "left_out"

T = TypeVar("T")


class World:
    """Chooses cases of the world, and writes down a run that passes whole. With pytest-xdist, one
    is in each process: workers choose, the controller prints and writes."""

    def __init__(self, config: pytest.Config) -> None:
        minutes: float | None = config.getoption("--world-of-changes")
        self._bound_s = None if minutes is None else 60 * minutes
        self._left_out: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselects cases that concern no change, and those that do not fit."""
        if self._bound_s is None:
            return
        seconds = spent.stored_seconds()

        def length_s(item: pytest.Item) -> float:
            return seconds.get(spent.name_of(item), UNKNOWN_S)

        paths = changed()
        concerned = [item for item in items if concerns(item, paths)]
        chosen = fitting(concerned, self._bound_s, length_s)
        self._left_out = [item.nodeid for item in concerned if item not in chosen]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hands the controller what a worker left out. Writes down a whole world that passed."""
        config = session.config
        if hasattr(config, "workeroutput"):
            config.workeroutput[LEFT_OUT] = self._left_out
        elif exitstatus == 0 and is_whole(config):
            write_passed()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes over what a worker left out; all leave out the same."""
        self._left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, self._left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the cases that did not fit."""
        for test in self._left_out:
            terminalreporter.line(f"left to `make test-world`, for want of time: {test}")


def concerns(item: pytest.Item, paths: Iterable[str]) -> bool:
    """Returns True if a path that changed is among those of the case, or is its own file."""
    prefixes = [item.nodeid.split("::")[0]]
    for marker in item.iter_markers("concerns"):
        prefixes += marker.args
    return any(path.startswith(tuple(prefixes)) for path in paths)


def fitting(items: Sequence[T], bound_s: float, length_s: Callable[[T], float]) -> list[T]:
    """Returns the shortest of some cases that last at most `bound_s` together, in their order."""
    chosen, left_s = set(), bound_s
    for item in sorted(items, key=length_s):
        left_s -= length_s(item)
        if left_s < 0:
            break
        chosen.add(item)
    return [item for item in items if item in chosen]


def changed() -> list[str]:
    """Returns paths that differ from the commit at which the world passed. Without that commit,
    all files of the repository."""
    if PASSED.exists():
        commit = tomllib.loads(PASSED.read_text())["commit"]
        done = git("diff", "--name-only", commit)
        if done.returncode == 0:
            return done.stdout.splitlines()
    return git("ls-files").stdout.splitlines()


def git(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs git in the repository."""
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)


def is_whole(config: pytest.Config) -> bool:
    """Returns True if a run was asked for all of the world and nothing else."""
    asked = [Path(config.invocation_params.dir, word).resolve() for word in config.args]
    option = config.option
    narrowed = (option.keyword, option.markexpr, option.deselect, option.world_of_changes)
    return asked == [FOLDER] and not any(narrowed)


def write_passed() -> None:
    """Writes the commit and the date of this run into tests/world.toml."""
    commit = git("rev-parse", "HEAD").stdout.strip()
    PASSED.write_text(
        "# The last commit at which all of tests/world passed. `make test-world` writes it.\n"
        f'commit = "{commit}"\non = {datetime.now(UTC):%Y-%m-%d}\n'
    )
