"""Plays a scenario for a Python program. The run has a thread of its own, so that signal handlers,
event loops and the priority of the caller stay as they are."""

from __future__ import annotations

import json
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from pubstorm.api.hooks import Check, Rows, StageFigures, with_rows
from pubstorm.api.stored import Result
from pubstorm.errors import UsageError
from pubstorm.experiment import play
from pubstorm.experiment.invocation import Invocation
from pubstorm.play.display import Live
from pubstorm.play.interruption import interrupt_thread
from pubstorm.scenario import Scenario
from pubstorm.scenario.document import yaml_of
from pubstorm.scenario.load import parse_scenario

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
