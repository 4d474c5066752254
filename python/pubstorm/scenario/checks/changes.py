"""What changes ask of the rest of a scenario: one kind of change each, within the stage's time, and
clients to join or to leave; connect stages that bring up a part count too. It reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.scenario.divisions import meant_by
from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import EVERY, Change, Connect, Publish
from pubstorm.scenario.turnout import Turnout, said_of
from pubstorm.units import PartOf, rounded, write_duration, write_share

Finding = tuple[Path, str, str | None]


def check_change_keys(path: Path, change: object) -> Iterator[Finding]:
    """What can be said of a change as it stands in the file."""
    if not isinstance(change, dict):
        return
    kinds = [key for key in ("add", "remove", "rate") if key in change]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "neither add nor remove nor rate"
        yield path, f"found {found}, needed is one of add, remove and rate", None
    elif "over" in change and kinds == ["rate"]:
        message = "found over with rate, allowed is over with add or remove"
        hint = "a rate changes at once; write several changes for several steps"
        yield (*path, "over"), message, hint


def check_changes(scenario: Scenario) -> Iterator[Finding]:
    """What can be said once every value is right by itself."""
    turnout = Turnout(scenario)
    for n, stage in enumerate(scenario.stages):
        chosen = turnout.chosen(stage)
        if isinstance(stage.step, Connect):
            path: Path = ("stages", n, "connect", "clients")
            yield from _check_connect(path, stage.step, turnout, chosen)
        turnout.enter(stage)
        if not isinstance(stage.step, Publish):
            continue
        path = ("stages", n, "publish", "changes")
        for m, change in sorted(enumerate(stage.step.changes), key=lambda entry: entry[1].at):
            yield from _check_time((*path, m), stage.step, change)
            if set(meant_by(turnout.divisions, change.population)) <= set(chosen):
                yield from _check_clients((*path, m), change, turnout)
            else:
                yield from _check_takes_part((*path, m), change)


def _check_connect(
    path: Path, connect: Connect, turnout: Turnout, chosen: Sequence[str]
) -> Iterator[Finding]:
    """What a connect stage says of how many clients are to be there after it."""
    for given, amount in (connect.clients or {}).items():
        named = meant_by(turnout.divisions, given)
        where = path if given == EVERY else (*path, given)
        meant = [name for name in chosen if said_of(connect, turnout.divisions[name]) == given]
        if not set(named) <= set(chosen):
            message = f"found clients of population {given}, which is not in this stage"
            yield where, message, "add it to the populations of the stage"
            continue
        if isinstance(amount, int):
            yield from _check_number(where, amount, turnout, meant)
        if any(turnout.part_of(name, amount) < turnout.least([name]) - ROUNDING for name in meant):
            message = f"found {_written(amount)}, where {turnout.count(meant):,} are there already"
            hint = "a connect stage lets nobody go; a disconnect stage does"
            yield where, f"{message}, allowed is so many or more", hint


def _check_number(
    path: Path, amount: int, turnout: Turnout, meant: Sequence[str]
) -> Iterator[Finding]:
    """That a number says of whom, and that there are so many."""
    divisions = [turnout.divisions[name] for name in meant]
    divided = [division.name for division in divisions if division.share is not None]
    if len(divided) > 1:
        yield path, f"found {amount:,}, {OF_SHARES}", _shares_hint(divided)
        return
    for division in divisions:
        if amount > division.clients:
            message = f"found {amount:,}, allowed is up to {division.clients:,}"
            hint = "write a share such as 50%, or leave it out for all"
            yield path, f"{message}, the clients of {division.name}", hint
            return


def _check_time(path: Path, publish: Publish, change: Change) -> Iterator[Finding]:
    end = write_duration(publish.duration)
    if change.at >= publish.duration:
        at = write_duration(change.at)
        message = f"found a change at {at}, allowed is before the end of the stage at {end}"
        yield (*path, "at"), message, None
    elif change.at + change.over > publish.duration:
        until = write_duration(change.at + change.over)
        message = f"found a change until {until}, allowed is until the end of the stage at {end}"
        yield (*path, "over"), message, None


def _check_takes_part(path: Path, change: Change) -> Iterator[Finding]:
    message = f"found a change of population {change.population}, which is not in this stage"
    yield (*path, "population"), message, "add it to the populations of the stage"


def _check_clients(path: Path, change: Change, turnout: Turnout) -> Iterator[Finding]:
    """Follows how many clients are there."""
    names, key = meant_by(turnout.divisions, change.population), "add" if change.add else "remove"
    amount = change.add if change.add is not None else change.remove
    if amount is None:
        return
    if isinstance(amount, int) and len(names) > 1:
        yield (*path, key), f"found {amount:,}, {OF_SHARES}", _shares_hint(names)
        return
    part = max(turnout.part_of(name, amount) for name in names)
    left = 1 - turnout.most(names) if key == "add" else turnout.least(names)
    if part > left + ROUNDING:
        yield (*path, key), *_too_many(change, amount, turnout, left)
        turnout.change(change)
    elif not turnout.change(change):
        clients = sum(turnout.divisions[name].clients for name in names)
        message = f"found {_written(amount)} of {clients:,} clients, which is no client"
        yield (*path, key), f"{message}, needed is one", "change more, or play more clients"


def _too_many(
    change: Change, amount: int | PartOf, turnout: Turnout, left: float
) -> tuple[str, str | None]:
    """Message and hint where not so many clients can join or leave; `left` is the part that can."""
    names = meant_by(turnout.divisions, change.population)
    present, at = turnout.count(names), write_duration(change.at)
    clients = sum(turnout.divisions[name].clients for name in names)
    allowed = str(rounded(left * clients)) if isinstance(amount, int) else write_share(left)
    message = f"found {amount}, allowed is up to {allowed}"
    if change.add is None:
        return f"{message}: no more clients are there at {at}", None
    message += f": {present} of {clients} clients are there at {at}"
    if isinstance(amount, PartOf):
        return message, "bring up fewer with clients in the connect stage, or add less"
    name = change.population
    hint = f"raise populations.{name}.clients to {present + amount}"
    return message, hint + (", or leave it out of the connect stage" if present == clients else "")


def _shares_hint(names: Sequence[str]) -> str:
    return f"write a share in percent, or one of {', '.join(names)}"


def _written(amount: int | PartOf) -> str:
    return f"{amount:,}" if isinstance(amount, int) else str(amount)


OF_SHARES = "allowed for a population with shares is a share of it in percent"
ROUNDING = 1e-9
"""What parts may differ by that are the same."""
