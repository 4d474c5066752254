"""What the changes of publish stages ask of the rest of a scenario: one kind of change each, within
the stage's time, and clients to join or to leave. It reads no file.
"""

from __future__ import annotations

from collections.abc import Iterator

from pubstorm.scenario.document import Path
from pubstorm.scenario.model import Scenario
from pubstorm.scenario.stages import Change, Connect, Disconnect, Publish
from pubstorm.units import write_duration

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
    there = dict.fromkeys(scenario.populations, 0)
    for n, stage in enumerate(scenario.stages):
        chosen = stage.populations or tuple(scenario.populations)
        match stage.step:
            case Connect():
                there.update((name, scenario.populations[name].clients) for name in chosen)
            case Disconnect():
                there.update((name, 0) for name in chosen)
            case Publish() as publish:
                path: Path = ("stages", n, "publish", "changes")
                numbered = sorted(enumerate(publish.changes), key=lambda entry: entry[1].at)
                for m, change in numbered:
                    yield from _check_time((*path, m), publish, change)
                    if change.population in chosen:
                        clients = scenario.populations[change.population].clients
                        yield from _check_clients((*path, m), change, there, clients)
                    else:
                        yield from _check_takes_part((*path, m), change)


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


def _check_clients(
    path: Path, change: Change, there: dict[str, int], clients: int
) -> Iterator[Finding]:
    """Follows how many clients are there."""
    name, present = change.population, there[change.population]
    if change.add is not None:
        if present + change.add > clients:
            message = (
                f"found {change.add}, allowed is up to {clients - present}: {present} of "
                f"{clients} clients are there at {write_duration(change.at)}"
            )
            hint = f"raise populations.{name}.clients to {present + change.add}"
            if present == clients:
                hint += ", or leave it out of the connect stage"
            yield (*path, "add"), message, hint
        there[name] = min(present + change.add, clients)
    elif change.remove is not None:
        if change.remove > present:
            message = (
                f"found {change.remove}, allowed is up to {present}: "
                f"no more clients are there at {write_duration(change.at)}"
            )
            yield (*path, "remove"), message, None
        there[name] = max(present - change.remove, 0)
