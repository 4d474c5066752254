"""Checks changes: one kind each, within the stage's time, with clients that can join or leave.
Connect stages with a part of the clients count too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubstorm.quantities import PartOf, rounded, write_duration, write_share
from pubstorm.scenario.document import Finding, Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.shares import PlannedClients, meant_by, said_of
from pubstorm.scenario.stages import EVERY, Change, Connect, Publish


def check_change_keys(path: Path, change: object) -> Iterator[Finding]:
    """Yields the problems of a change as the file has it."""
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
    """Yields the problems of values that are right by themselves."""
    planned = PlannedClients(scenario)
    for n, stage in enumerate(scenario.stages):
        chosen = planned.chosen(stage)
        if isinstance(stage.step, Connect):
            path: Path = ("stages", n, "connect", "clients")
            yield from _check_connect(path, stage.step, planned, chosen)
        planned.enter(stage)
        if not isinstance(stage.step, Publish):
            continue
        path = ("stages", n, "publish", "changes")
        for m, change in sorted(enumerate(stage.step.changes), key=lambda entry: entry[1].at):
            yield from _check_time((*path, m), stage.step, change)
            if set(meant_by(planned.shares, change.population)) <= set(chosen):
                yield from _check_clients((*path, m), change, planned)
            else:
                yield from _check_takes_part((*path, m), change)


def _check_connect(
    path: Path, connect: Connect, planned: PlannedClients, chosen: Sequence[str]
) -> Iterator[Finding]:
    """Yields the problems of the numbers of clients that a connect stage wants."""
    for given, amount in (connect.clients or {}).items():
        named = meant_by(planned.shares, given)
        where = path if given == EVERY else (*path, given)
        meant = [name for name in chosen if said_of(connect, planned.shares[name]) == given]
        if not set(named) <= set(chosen):
            message = f"found clients of population {given}, which is not in this stage"
            yield where, message, "add it to the populations of the stage"
            continue
        if isinstance(amount, int):
            yield from _check_number(where, amount, planned, meant)
        if any(planned.part_of(name, amount) < planned.least([name]) - ROUNDING for name in meant):
            message = f"found {_written(amount)}, where {planned.count(meant):,} are active already"
            hint = "a connect stage disconnects no client; a disconnect stage does"
            yield where, f"{message}, allowed is so many or more", hint


def _check_number(
    path: Path, amount: int, planned: PlannedClients, meant: Sequence[str]
) -> Iterator[Finding]:
    """Yields a number that is too large, or that does not say of which share."""
    shares = [planned.shares[name] for name in meant]
    divided = [played.name for played in shares if played.share is not None]
    if len(divided) > 1:
        yield path, f"found {amount:,}, {OF_SHARES}", _shares_hint(divided)
        return
    for played in shares:
        if amount > played.clients:
            message = f"found {amount:,}, allowed is up to {played.clients:,}"
            hint = "write a share such as 50%, or leave it out for all"
            yield path, f"{message}, the clients of {played.name}", hint
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


def _check_clients(path: Path, change: Change, planned: PlannedClients) -> Iterator[Finding]:
    """Follows the number of active clients."""
    names, key = meant_by(planned.shares, change.population), "add" if change.add else "remove"
    amount = change.add if change.add is not None else change.remove
    if amount is None:
        return
    if isinstance(amount, int) and len(names) > 1:
        yield (*path, key), f"found {amount:,}, {OF_SHARES}", _shares_hint(names)
        return
    part = max(planned.part_of(name, amount) for name in names)
    left = 1 - planned.most(names) if key == "add" else planned.least(names)
    if part > left + ROUNDING:
        yield (*path, key), *_too_many(change, amount, planned, left)
        planned.change(change)
    elif not planned.change(change):
        clients = sum(planned.shares[name].clients for name in names)
        message = f"found {_written(amount)} of {clients:,} clients, which is no client"
        yield (*path, key), f"{message}, needed is one", "change more, or play more clients"


def _too_many(
    change: Change, amount: int | PartOf, planned: PlannedClients, left: float
) -> tuple[str, str | None]:
    """Message and hint where not so many clients can join or leave; `left` is the part that can."""
    names = meant_by(planned.shares, change.population)
    present, at = planned.count(names), write_duration(change.at)
    clients = sum(planned.shares[name].clients for name in names)
    allowed = str(rounded(left * clients)) if isinstance(amount, int) else write_share(left)
    message = f"found {amount}, allowed is up to {allowed}"
    if change.add is None:
        return f"{message}: no more clients are active at {at}", None
    message += f": {present} of {clients} clients are active at {at}"
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
"""Difference at which two parts count as equal."""
