"""Takes down what a run has left on this host, by the records in its run directory: processes,
network namespaces, cgroups, keys and passwords."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pubstorm.errors import StoredRunError, UsageError
from pubstorm.files import lies_in
from pubstorm.host.shares import remove_cgroup
from pubstorm.plan import compile_plan
from pubstorm.play.directory import CONTROL_FILE, RESERVE_FILE, RunDirectory, player_of
from pubstorm.report import ASKED_FILE, SCENARIO_FILE
from pubstorm.result import StaleState
from pubstorm.result.samples import START_FILE
from pubstorm.topology.bridges.network import remove_namespace
from pubstorm.topology.credentials import forget_secrets
from pubstorm.topology.started import (
    STARTED_FILE,
    Leftover,
    Started,
    end,
    is_alive,
    is_own,
    leftovers,
    may_take_down,
    read_record,
    reads_states,
)

STEPS = ("steps/*", "trials/*", "steps/*/trials/*", "runs/*", "runs/*/trials/*")
"""Folders of runs in that of a series, a search or a comparison."""
AIDS = (RESERVE_FILE, CONTROL_FILE)
"""Files that only a run in progress needs."""
RUN_GRACE_S = 30.0
"""Longest time for a run to end by itself, brokers included."""
NAMED_MAX = 3
"""Processes that are named."""


def take_down(
    path: Path, *, force: bool, log: Callable[[str], None], retained: bool = False
) -> None:
    """Takes down the leftovers of the run or experiment in a folder; `log` gets a line for each
    step. With `retained`, removes retained messages from the targets, too. Raises UsageError if the
    run has not ended, unless `force` ends it, and StoredRunError if it is played again."""
    if not any((path / file).is_file() for file in (SCENARIO_FILE, ASKED_FILE)):
        hint = "name a folder that `pubstorm run` has made"
        raise StoredRunError(f"found no run in {path}", hint)
    inner = sorted(folder for pattern in STEPS for folder in path.glob(pattern))
    runs_in = [path, *(folder for folder in inner if lies_in(folder, path))]
    folders = [folder / "topology" for folder in runs_in if (folder / "topology").is_dir()]
    folders = [folder for folder in folders if lies_in(folder, path)]
    records = {folder: read_record(folder / STARTED_FILE) for folder in folders}
    active = {
        s.pid for record in records.values() for s in record if s.kind == "run" and is_alive(s)
    }
    runs = {
        started.pid: Leftover(started.pid, started.name, partial(is_own, started, folder))
        for folder, record in records.items()
        for started in record
        if started.kind == "run" and is_own(started, folder)
    }
    if player := player_of(path):
        # Between two runs of an experiment, no record has its process.
        active.add(player)
        runs.setdefault(player, Leftover(player, "pubstorm", lambda: player_of(path) == player))
    if active and not (force and active == runs.keys()):
        pid = min(active - runs.keys() if force else active)
        text = f"the run in {path} is active: pubstorm has pid {pid}"
        kill = f"end it with Ctrl-C or kill {pid}"
        if force:
            raise UsageError(f"{text}, which is not surely that run", kill)
        raise UsageError(text, f"{kill}, or give --force")
    if runs:
        end(runs.values(), RUN_GRACE_S)
        log(f"ended the run itself (pid {', '.join(map(str, runs))})")
    # Meanwhile no player may start what is taken down.
    with RunDirectory(path):
        for folder, record in records.items():
            for words in _taken_down(folder, record):
                log(words)
        for file in (folder / aid for folder in runs_in for aid in AIDS):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
                log(f"deleted {file}")
    is_left = False
    for found in (found for folder in runs_in if retained for found in _retained(folder)):
        log(f"{found.target}: {found.text}")
        is_left = is_left or found.what == "unknown"
    if not is_left:
        log("nothing is left of this run")


def _retained(folder: Path) -> Iterator[StaleState]:
    """Removes the retained messages of a run from targets that are not its own, and yields what
    came of it."""
    if not (folder / START_FILE).is_file():
        return
    # These modules take a moment to import, and only this function uses them.
    from pubstorm.play.clean_start import remove_again
    from pubstorm.play.kept import Kept

    kept = Kept(folder)
    # The stored plan has no passwords; the scenario may refer to them.
    plan = compile_plan(kept.scenario, kept.plan.targets, run_tag=kept.plan.run_tag)
    yield from remove_again(plan, range(len(kept.scenario.target)))


def _taken_down(folder: Path, record: Sequence[Started]) -> Iterator[str]:
    if processes := leftovers(folder, record):
        end(processes)
        yield f"ended {_named(processes)}"
    for started in record:
        is_removable = started.kind == "namespace" and may_take_down(folder)
        if is_removable and remove_namespace(started.name):
            yield f"removed the network namespace {started.name}"
    for started in record:
        is_removable = started.kind == "cgroup" and may_take_down(folder)
        if is_removable and remove_cgroup(Path(started.name)):
            yield f"removed the cgroup {started.name}"
    if files := forget_secrets(folder):
        yield f"deleted keys and passwords, in {_many(files, 'file')} of {folder}"
    yield from (words for each in record if (words := _retained_words(each)) is not None)


def _retained_words(started: Started) -> str | None:
    """Returns advice to remove the bridges' states from a broker that is not the run's own. Another
    command than a run records is no advice."""
    if not reads_states(started):
        return None
    command = (*started.command, "--retained-only", "--remove-retained", "-W", "3")
    return (
        f"bridges of this run reported to {started.name} whether they are up, which it may keep; "
        f"this removes it, with the login of the bridges: {shlex.join(command)}"
    )


def _named(processes: Sequence[Leftover]) -> str:
    named = ", ".join(f"{each.name} (pid {each.pid})" for each in processes[:NAMED_MAX])
    more = f" and {len(processes) - NAMED_MAX} more" if len(processes) > NAMED_MAX else ""
    return f"{_many(len(processes), 'process')}: {named}{more}"


def _many(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
