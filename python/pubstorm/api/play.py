"""Plays a scenario for a Python program, in a thread of its own: signal handlers, event loops and
the priority of the caller stay as they are. Functions of the user make rows before a run and check
between stages; Pubstorm calls none while it sends messages."""

from __future__ import annotations

import csv
import json
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pubstorm.api.stored import Result
from pubstorm.errors import UsageError
from pubstorm.experiment import play
from pubstorm.experiment.invocation import Invocation
from pubstorm.play.context import Check, PopulationFigures, StageFigures
from pubstorm.play.display import Live
from pubstorm.play.one_run import interrupt_thread
from pubstorm.scenario import Scenario
from pubstorm.scenario.document import yaml_of
from pubstorm.scenario.load import parse_scenario
from pubstorm.scenario.populations import Connecting

__all__ = ["Check", "PopulationFigures", "Rows", "StageFigures", "with_rows"]

Rows = Callable[[int], Mapping[str, object]]
"""Returns the row of a client by its number: values by column. Lists and mappings become JSON."""


def with_rows(read: Callable[..., Scenario], rows: Mapping[str, Rows], folder: Path) -> Scenario:
    """Reads a scenario, with the rows of populations from functions. Each function makes a file of
    rows in the folder, with a row for each client. `read` takes settings as in --set."""
    files = {name: folder / f"{name}.csv" for name in rows}
    settings = [
        f"populations.{name}.rows={json.dumps({'file': str(file), 'repeat': True})}"
        for name, file in files.items()
    ]
    for name, row in rows.items():
        # The number of clients is known once the scenario is read, which needs the columns.
        _write(files[name], name, [row(1)])
    loaded = read(*settings)
    for name, row in rows.items():
        _write(files[name], name, list(_made(row, loaded, name)))
    return read(*settings) if rows else loaded


def _made(row: Rows, scenario: Scenario, name: str) -> Iterator[Mapping[str, object]]:
    population = scenario.populations[name]
    first = population.first if isinstance(population, Connecting) else 0
    return (row(n) for n in range(first, first + population.clients))


def _write(file: Path, name: str, rows: list[Mapping[str, object]]) -> None:
    columns = list(rows[0])
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for row in rows:
            if list(row) != columns:
                found, allowed = ", ".join(map(str, row)), ", ".join(map(str, columns))
                raise UsageError(
                    f"found the columns {found} in a row of {name}, allowed are {allowed}",
                    "every call of the function returns the same keys",
                )
            writer.writerow([_cell(value) for value in row.values()])


def _cell(value: object) -> object:
    is_json = isinstance(value, Mapping | list | tuple)
    return json.dumps(value, separators=(",", ":")) if is_json else value


Source = str | PathLike[str] | Mapping[str, Any]
"""A file, the name of a ready scenario, its text of several lines, or its keys and values."""
TEXT = "scenario"
"""Name of a scenario that comes from no file, in messages."""


def run(
    scenario: Source,
    *,
    target: str | Sequence[str] | None = None,
    out: str | PathLike[str] | None = None,
    rows: Mapping[str, Rows] | None = None,
    check: Check | None = None,
    **overrides: object,
) -> Result:
    """Plays a scenario and returns its result, which `out` or a new folder in `runs` keeps.

    `overrides` are values as in --set. Two underscores stand for a dot:
    `populations__device__clients=100`. `target` is a broker in place of the scenario's, as in
    --target, or a list of brokers. `rows` makes the rows of populations with functions, before the
    run. `check` gets the figures of each stage that is over, and ends the run with the reason that
    it returns.

    Raises PubstormError if the scenario is wrong or the run comes to no measurement. A
    KeyboardInterrupt ends the run, keeps what was measured, and is raised then.
    """
    settings = tuple(
        f"{name.replace('__', '.')}={v if isinstance(v, str) else _json(v)}"
        for name, v in overrides.items()
    )
    targets = target if target is None or isinstance(target, str) else " ".join(target)
    asked = Invocation(_name(scenario), settings, targets, reports=False)
    folder = None if out is None else Path(out)
    with tempfile.TemporaryDirectory(prefix="pubstorm-rows-") as made, _kept_limits():

        def read(*more: str) -> Scenario:
            return _read(scenario, (*settings, *more), targets)

        loaded = with_rows(read, rows or {}, Path(made))
        if (loaded.steps or loaded.search) and check is not None:
            raise UsageError("check goes with one run, not with a sweep or a search")
        guarded = None if check is None else _Guarded(check)
        result = Result(_in_thread(lambda: play(loaded, asked, folder, _Quiet(), guarded)))
        if guarded is not None and guarded.error is not None:
            raise guarded.error
        return result


class _Guarded:
    """A check whose exception ends the run as a reason does, so that the result is kept."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self.error: Exception | None = None

    def __call__(self, stage: StageFigures) -> str | None:
        try:
            return self._check(stage)
        except Exception as error:
            self.error = error
            return f"{type(error).__name__}: {error}"


class _Quiet(Live):
    """Shows nothing: warnings are events of the result."""

    def warn(self, text: str) -> None:
        """Shows nothing."""


def _name(scenario: Source) -> str:
    return TEXT if isinstance(scenario, Mapping) or _is_text(scenario) else str(scenario)


def _is_text(scenario: Source) -> bool:
    return isinstance(scenario, str) and "\n" in scenario


def _read(scenario: Source, settings: tuple[str, ...], target: str | None) -> Scenario:
    if isinstance(scenario, Mapping):
        text = yaml_of(json.loads(_json(scenario)))
        return parse_scenario(text, TEXT, settings, target)
    if _is_text(scenario):
        return parse_scenario(str(scenario), TEXT, settings, target)
    return Invocation(str(scenario), settings, target).load()


def _json(value: object) -> str:
    def plain(part: object) -> object:
        if isinstance(part, PathLike):
            return str(part)
        if isinstance(part, Mapping):
            return dict(part)
        raise UsageError(f"found {part!r} in a scenario, allowed are texts, numbers, lists, keys")

    return json.dumps(dict(value) if isinstance(value, Mapping) else value, default=plain)


@contextmanager
def _kept_limits() -> Iterator[None]:
    """Restores the limit of open descriptors, which a run raises, once the last run is over."""
    with _counting:
        if not _running:
            _limits[:] = resource.getrlimit(resource.RLIMIT_NOFILE)
        _running.append(1)
    try:
        yield
    finally:
        with _counting:
            _running.pop()
            if not _running:
                soft, hard = _limits
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _in_thread(work: Callable[[], T]) -> T:
    """Runs a function in a thread of its own and returns what it returns. A KeyboardInterrupt ends
    what the thread plays."""
    outcome: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run_work() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run_work, name="pubstorm", daemon=True)
    thread.start()
    interrupted: KeyboardInterrupt | None = None
    is_sent = True
    while not done.is_set():
        try:
            done.wait(None if is_sent else RETRY_S)
            is_sent = is_sent or interrupt_thread(thread.ident or 0)
        except KeyboardInterrupt as error:
            interrupted, is_sent = error, interrupt_thread(thread.ident or 0)
    thread.join()
    if interrupted is not None:
        raise interrupted
    if errors:
        raise errors[0]
    return outcome[0]


T = TypeVar("T")
RETRY_S = 0.05
"""Time after which an interrupt is tried again while the run starts."""
_counting = threading.Lock()
_running: list[int] = []
_limits: list[int] = []
