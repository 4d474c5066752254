"""The cell of limits: starts the broker of a scenario, and finds its limits by trying."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from pubstorm.experiment.player import Journal, Playing
from pubstorm.play.display import Live
from pubstorm.quantities import Unit
from pubstorm.result import Estimate
from pubstorm.result.datasheet import SheetFigure
from pubstorm.result.interval import Bound
from pubstorm.result.limits import LIMITS_FILE, Limit, Limits, Probed
from pubstorm.scenario import Scenario
from pubstorm.scenario.recipes import RecipeLogin
from pubstorm.topology import Topology
from pubstorm.topology.prober import probe

PROBE_S = 20.0
"""Planned time of a probe, in seconds."""


def probing(scenario: Scenario, login: RecipeLogin | None) -> Playing:
    """Returns what probes the broker of a scenario, which has no search and no sweep."""

    async def play(folder: Path, live: Live, _topology: Topology | None) -> Probed:
        journal = Journal.create(folder, "logs", {}, live)
        async with journal.shared_brokers([scenario]) as topology:
            await topology.start(live.starting)
            targets = [(target.host, target.port) for target in scenario.target]
            host, port = [*topology.addresses, *targets][0]
            user, password = (login.username, login.password) if login else (None, None)
            probing = asyncio.create_task(probe(host, port, user, password, live.step))
            limits = await _unless(journal.interrupted, probing)
        if limits is not None:
            journal.directory.write(LIMITS_FILE, limits.model_dump_json(indent=2) + "\n")
        return Probed(limits=limits)

    return play


async def _unless(interrupted: asyncio.Event, probing: asyncio.Task[Limits]) -> Limits | None:
    """Returns the limits, or None once the user has ended the sheet."""
    ending = asyncio.create_task(interrupted.wait())
    await asyncio.wait((probing, ending), return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if probing.done():
        return probing.result()
    probing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await probing
    return None


def figures_of_limits(limits: Limits) -> Iterator[SheetFigure]:
    """Yields a figure for each limit: a number, yes or no, or nothing with the reason."""
    for limit in limits.limits:
        is_number = isinstance(limit.value, int) and not isinstance(limit.value, bool)
        name = limit.name.words
        if limit.name.unit not in {"", "bytes"}:
            name = f"{name}, {limit.name.unit}"
        yield SheetFigure(
            name=name,
            estimate=_estimate(limit) if is_number else None,
            word="" if limit.value is None or is_number else limit.text,
            better="more" if is_number else "",
            remarks=(limit.how,) if limit.value is None and limit.how else (),
        )


def _estimate(limit: Limit) -> Estimate:
    assert isinstance(limit.value, int), "only a number is estimated"
    bound: Bound = "at_least" if limit.bound == "at_least" else "exact"
    unit: Unit = "bytes" if limit.name.unit == "bytes" else ""
    value = float(limit.value)
    return Estimate(value=value, low=value, high=value, bound=bound, unit=unit)
