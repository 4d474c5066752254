"""Costs of tests: a pytest plugin stores them, and `python -m tests.kit.spent` reads them.

    show FILE...    the longest chain, the dearest tests and files, and each folder
    check FILE...   fails if a folder spent more than tests/budget.toml allows
    store FILE...   writes the lengths of the long tests into tests/durations.toml

FILE is what `pytest --spent FILE` stored: one JSON object a test. CPU-seconds are those of the test
process and of its children; the zygote and its runs count what they start. A slow machine spends
more of them for the same work, and so does a processor while another one of its core is busy: twice
as many, for some minutes of a run. So a fixed piece of work is measured beside the tests, and
`check` compares the CPU-seconds of each folder at the pace at which the budget was measured.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.kit.zygote_server import note_start, started_program

TESTS = Path(__file__).parents[1]
BUDGET = TESTS / "budget.toml"
DURATIONS = TESTS / "durations.toml"
STARTS_VARIABLE = "PUBSTORM_TESTS_SPENT"
"""Names the file to which the zygote and its runs append what they start."""
PROGRAM = "pubstorm"
BROKERS = frozenset(
    ("mosquitto", "pubstorm-broker", "rabbitmq-server", "nats-server", "ejabberdctl", "artemis")
)
DEAREST = 40
LONG_S = 3.0
"""Shortest test in tests/durations.toml. Only long ones matter for the order."""
CPU, WORKER, GROUP, PACE = "cpu_s", "worker", "group", "pace_s"
WORK = 20_000
"""Numbers that the fixed piece of work squares."""
PACES_APART_S = 0.3
"""Shortest time between two measurements of the pace in one process."""
PACES = 20
"""Fewest measurements that give the pace of a folder. With fewer, that of all tests counts."""
MACHINE = "machine"
"""Entry of tests/budget.toml with the pace at which its CPU-seconds were measured."""


@dataclass(frozen=True, slots=True)
class Spent:
    """One test: its seconds, its CPU-seconds, its process, its group, and what it started."""

    test: str
    outcome: str
    seconds: float
    cpu_s: float
    worker: str
    group: str | None
    started: dict[str, int] = field(default_factory=dict)
    pace_s: float | None = None
    """CPU-seconds of the fixed piece of work, if they were measured behind this test."""

    @property
    def file(self) -> str:
        """Path of the test's file."""
        return self.test.split("::")[0]

    @property
    def folder(self) -> str:
        """First three parts of the path: `tests/system/runs`."""
        return "/".join(self.file.split("/")[:3])

    @property
    def unit(self) -> str:
        """The tests that one process plays one after the other: the group, or the test itself."""
        return self.group or self.test

    @property
    def brokers(self) -> int:
        """Starts of brokers, by this test and by the runs that it started."""
        return sum(count for program, count in self.started.items() if program in BROKERS)


class Recorder:
    """Stores what each test spent. With pytest-xdist, one is in each process: workers measure,
    the controller writes."""

    def __init__(self, path: Path) -> None:
        # Tests change the working directory.
        self._path = path.absolute()
        self._starts = self._path.with_suffix(".starts")
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)

    def begin(self) -> None:
        """Empties the files of the run, and names one of them to the zygotes of all workers."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for path in (self._path, self._starts):
            path.unlink(missing_ok=True)
        os.environ[STARTS_VARIABLE] = str(self._starts)

    def pytest_sessionstart(self) -> None:
        """Notes the programs that the process starts by itself. Runs note what they start."""
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and (test := os.environ.get("PYTEST_CURRENT_TEST")):
            note_start(str(self._starts), test, started_program(arguments[1]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds to a report the CPU-seconds since the report before."""
        report = yield
        report.user_properties.append((CPU, self._lap()))
        report.user_properties.append((WORKER, os.environ.get("PYTEST_XDIST_WORKER", "main")))
        marker = item.get_closest_marker("xdist_group")
        report.user_properties.append((GROUP, marker and marker.args[0]))
        if time.monotonic() - self._paced_s >= PACES_APART_S:
            report.user_properties.append((PACE, measured_pace_s()))
            self._paced_s = time.monotonic()
        return report

    _last_cpu_s = 0.0
    _paced_s = -PACES_APART_S

    def _lap(self) -> float:
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        now = sum(each.ru_utime + each.ru_stime for each in used)
        lap, self._last_cpu_s = now - self._last_cpu_s, now
        return lap

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the reports of a test: set-up, call and teardown."""
        self._reports[report.nodeid].append(report)

    def pytest_sessionfinish(self) -> None:
        """Writes one line a test."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        started = starts_in(self._starts)
        with self._path.open("w", encoding="utf-8") as file:
            for test, reports in self._reports.items():
                spent = of_reports(test, reports, started.get(test, {}))
                file.write(json.dumps(asdict(spent)) + "\n")


def measured_pace_s() -> float:
    """Measures the CPU-seconds of a fixed piece of work."""
    began_s = time.thread_time()
    sum(number * number for number in range(WORK))
    return time.thread_time() - began_s


def of_reports(test: str, reports: list[pytest.TestReport], started: dict[str, int]) -> Spent:
    """Sums the reports of one test."""
    properties = [dict(report.user_properties) for report in reports]
    group = str(properties[0].get(GROUP) or "")
    outcomes = [report.outcome for report in reports if report.outcome != "passed"]
    paces_s = [float(str(each[PACE])) for each in properties if PACE in each]
    return Spent(
        test=test.removesuffix(f"@{group}"),
        outcome=outcomes[0] if outcomes else "passed",
        seconds=round(sum(report.duration for report in reports), 3),
        cpu_s=round(sum(float(str(each.get(CPU, 0))) for each in properties), 3),
        worker=str(properties[0].get(WORKER, "main")),
        group=group or None,
        started=started,
        pace_s=paces_s[0] if paces_s else None,
    )


def unit_of(item: pytest.Item) -> str:
    """Returns the tests that one process plays together: the group of a test, or the test."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else item.nodeid


def name_of(item: pytest.Item) -> str:
    """Returns the name of a test without its group, which pytest-xdist appends."""
    return item.nodeid.removesuffix(f"@{unit_of(item)}")


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by the stored lengths of their units, and keeps the order within a unit."""
    seconds, lengths_s = stored_seconds(), defaultdict[str, float](float)
    for item in items:
        lengths_s[unit_of(item)] += seconds.get(name_of(item), 0.0)
    items.sort(key=lambda item: -lengths_s[unit_of(item)])


def starts_in(path: Path) -> dict[str, dict[str, int]]:
    """Returns for each test the programs that were started for it, and their numbers."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            start = json.loads(line)
            found[(start["test"] or "").rsplit(" (", 1)[0]][start["started"]] += 1
    return {test: dict(counts) for test, counts in found.items()}


def stored_seconds() -> dict[str, float]:
    """Returns the stored lengths of the long tests."""
    return tomllib.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def read(paths: Iterable[str]) -> list[Spent]:
    """Reads what runs of pytest stored."""
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    return [Spent(**json.loads(line)) for line in lines]


def show(tests: Sequence[Spent]) -> int:
    """Prints chains, the dearest tests and files, and folders."""
    wall_s = max(_sums(tests, "worker").values(), default=0.0)
    cpu_s = sum(test.cpu_s for test in tests)
    print(f"{len(tests)} tests, {cpu_s:.0f} CPU-s, longest worker {wall_s:.0f} s")
    print("\nchains, s")
    for unit, seconds in list(_sums(tests, "unit").items())[:10]:
        print(f"{seconds:8.1f}  {unit}")
    for title, key in (("files", "file"), ("tests", "test")):
        print(f"\ndearest {title}: s, CPU-s")
        cpu = _sums(tests, key, "cpu_s")
        for name, seconds in list(_sums(tests, key).items())[:DEAREST]:
            print(f"{seconds:8.1f} {cpu[name]:8.1f}  {name}")
    print("\nfolders: CPU-s, runs, brokers")
    for folder, (cpu_s, runs, brokers) in by_folder(tests).items():
        print(f"{cpu_s:8.1f} {runs:5} {brokers:5}  {folder}")
    return 0


def _sums(tests: Sequence[Spent], key: str, value: str = "seconds") -> dict[str, float]:
    sums: Counter[str] = Counter()
    for test in tests:
        sums[getattr(test, key)] += getattr(test, value)
    return dict(sums.most_common())


def pace_of(tests: Iterable[Spent], fewest: int, otherwise: float) -> float:
    """Returns the mean pace beside tests, or another one if it was measured less often."""
    paces_s = [test.pace_s for test in tests if test.pace_s is not None]
    return mean(paces_s) if len(paces_s) >= fewest else otherwise


def by_folder(
    tests: Sequence[Spent], pace_s: float | None = None
) -> dict[str, tuple[float, int, int]]:
    """Returns CPU-seconds, runs of the program and starts of brokers of each folder. CPU-seconds
    are those at a pace, if one is given."""
    folders: dict[str, list[Spent]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: test.folder):
        folders[test.folder].append(test)
    found = {}
    for folder, own in folders.items():
        cpu_s = sum(test.cpu_s for test in own)
        if pace_s is not None:
            cpu_s *= pace_s / pace_of(own, PACES, pace_of(tests, 1, pace_s))
        runs = sum(test.started.get(PROGRAM, 0) for test in own)
        found[folder] = (cpu_s, runs, sum(test.brokers for test in own))
    return found


def check(tests: Sequence[Spent]) -> int:
    """Compares each folder with its budget. Returns 1 if one has spent more, or has none."""
    budget = tomllib.loads(BUDGET.read_text())
    pace_s = budget[MACHINE][PACE]
    slowness = pace_of(tests, 1, pace_s) / pace_s
    print(f"The machine was {slowness:.2f} times as slow as that of the budget")
    over = list(overspent(by_folder(tests, pace_s), budget))
    for words in over:
        print(f"error: {words}", file=sys.stderr)
    if over:
        print(
            "  hint: spend less, or raise tests/budget.toml and say why in the commit",
            file=sys.stderr,
        )
    return 1 if over else 0


def overspent(
    found: dict[str, tuple[float, int, int]], budget: dict[str, dict[str, float]]
) -> Iterable[str]:
    """Yields a sentence for each figure above its budget."""
    for folder, figures in found.items():
        if folder not in budget:
            yield f"{folder} has no budget"
            continue
        for name, figure in zip(("cpu_s", "runs", "brokers"), figures, strict=True):
            if figure > budget[folder][name]:
                yield f"{folder} spent {figure:.0f} {name}, allowed are {budget[folder][name]:.0f}"


def store(tests: Sequence[Spent]) -> int:
    """Writes the lengths of the long tests. Tests that were not played keep theirs."""
    found = stored_seconds() | {test.test: test.seconds for test in tests}
    long = {test: seconds for test, seconds in found.items() if seconds >= LONG_S}
    head = "# Lengths of the long tests, s, for their order. Written by tests/kit/spent.py.\n"
    rows = sorted(long.items(), key=lambda row: (-row[1], row[0]))
    DURATIONS.write_text(head + "".join(f"{json.dumps(test)} = {s:.1f}\n" for test, s in rows))
    return 0


def main(words: Sequence[str]) -> int:
    """Plays one command on stored files."""
    commands = {"show": show, "check": check, "store": store}
    if len(words) < 2 or words[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    return commands[words[0]](read(words[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
