"""Settings of all tests: their ports, skips that CI does not allow, and slow cases. A slow machine
is no failure, and tests see no calibration of the user."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.kit import ports, spent, world

pytest_plugins = ["tests.kit.agents", "tests.kit.measured", "tests.kit.runs", "tests.kit.stored"]

settings.register_profile(
    "pubstorm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("pubstorm")
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir(), "pubstorm-tests-have-none"))
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir(), f"pubstorm-tests-{os.getuid()}"))
# The gate builds the programs for its tests; without them, tests take those of `make build`.
if (GATE := Path(__file__).parents[1] / "target" / "ci").is_dir():
    os.environ.setdefault("PUBSTORM_PROGRAMS", str(GATE))
# Without stored bytecode, each of some hundred processes compiles all modules for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# On a terminal called dumb, nothing is drawn.
os.environ.pop("TERM", None)
# Under nohup or behind a `&`, programs of the tests would ignore what they are to handle.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
ports.claim()

SLOW_S = 10.0
"""A case that takes longer needs `@pytest.mark.slow("reason")`."""
MISSING = re.compile("install-test-tools|not installed|not built|is missing")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spent", type=Path, help="store what each test spends in this file")
    parser.addoption(
        "--world-of-changes",
        type=float,
        metavar="MINUTES",
        help="of tests/world, play what concerns the changes since it passed whole, up to a length",
    )


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--spent"):
        recorder = spent.Recorder(path)
        config.pluginmanager.register(recorder)
        if not hasattr(config, "workerinput"):
            recorder.begin()
    config.pluginmanager.register(world.World(config))
    config.addinivalue_line("markers", "slow(reason): takes more than 10 s, for this reason")
    config.addinivalue_line("markers", "concerns(path, ...): paths whose change asks for it")
    if config.pluginmanager.get_plugin("xdist") is None:
        config.addinivalue_line("markers", "xdist_group(name): runs one at a time with its group")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes begin with the longest chains, so none of them ends alone."""
    if hasattr(config, "workerinput"):
        spent.longest_first(items)
    for item in items:
        for marker in item.iter_markers("slow"):
            if not (len(marker.args) == 1 and isinstance(marker.args[0], str) and marker.args[0]):
                raise pytest.UsageError(f"{item.nodeid}: the slow marker needs a reason")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Holds that groups have an effect: pytest-xdist appends them to the names of tests."""
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError("this pytest-xdist makes no groups with this pytest")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_if_missing((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_if_missing((yield))


def fail_if_missing(report: Report) -> Report:
    """Makes a skip for want of a program a failure in CI."""
    if report.skipped and os.environ.get("CI") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if MISSING.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}; CI must have all programs (scripts/install-test-tools)"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the cases that took long and have no marker that says why."""
    unmarked = [
        report
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and report.duration > SLOW_S and "slow" not in report.keywords
    ]
    if unmarked:
        terminalreporter.section(f"over {SLOW_S:.0f} s without a slow marker")
        for report in sorted(unmarked, key=lambda each: -each.duration):
            terminalreporter.line(f"{report.duration:.1f}s {report.nodeid}")
