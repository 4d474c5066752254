"""The interface to the places of agents: a site gives a place to each agent and to each
replacement, and takes all of them back. `local` and `ray` are sites. On another host, a plan names
the paths there, and each agent gets the files of its own clients."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedTls
from pubstorm.contract.protocol import PlannedPublication
from pubstorm.contract.template import Template
from pubstorm.errors import FleetError
from pubstorm.fleet.incarnation import Slot
from pubstorm.host.keys.clients import names_of
from pubstorm.host.preflight.needs import AgentHost


@dataclass(frozen=True)
class AgentCommand:
    """The command of an agent."""

    words: tuple[str, ...]
    """Program and arguments."""
    title: str
    """Name in messages."""
    agents: int
    """Number of agents in its hello."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of its own, beside those of this process; they may be secrets."""
    directory: Path | None = None
    """Directory that it starts in, on this host; None: that of Pubstorm."""
    incarnation: int = 0
    """Number of agents that have played its clients before."""
    hosts: str | None = None
    """Label of the hosts that it can be on; None: those of the fleet."""
    share: tuple[int, int] | None = None
    """Share of the clients that it plays; None: that of its number."""
    populations: tuple[int, ...] | None = None
    """Indices of the populations that it plays; None: all."""

    def again(self) -> AgentCommand:
        """Returns the command of a replacement, whose streams begin anew."""
        words = self.words[:-2] if self.incarnation else self.words
        number = self.incarnation + 1
        return replace(self, words=(*words, "--incarnation", str(number)), incarnation=number)


class Site(Protocol):
    """The places of the agents of a run."""

    def hosts(self, label: str | None) -> Sequence[AgentHost]:
        """Returns the hosts of a label, or those of the fleet, that it may use; known once it is
        open."""

    async def open(self) -> None:
        """Makes it ready, or raises FleetError."""

    def localised(self, plan: Plan) -> Plan:
        """Returns the plan with the paths that files have there."""

    async def place(self, commands: Sequence[AgentCommand]) -> Sequence[Slot]:
        """A place for each agent, all of them or FleetError and none."""

    async def place_programs(
        self, commands: Sequence[AgentCommand], addresses: Sequence[str]
    ) -> Sequence[Slot]:
        """Returns a place on the host with its address, another than this one, for each program
        that is no engine."""

    async def replace(self, agent: int) -> Slot:
        """Another place for an agent that is lost, or FleetError. It returns when the lost one
        surely plays no client any more."""

    async def close(self) -> None:
        """Gives everything back; nothing of it is left on any host. It can be called twice."""


FOLDER = "files"
"""Folder of the files, in the folder that each agent has to itself."""
EVERYWHERE = "/srv/pubstorm/"
"""Folder that every host has already; files below it stay where they are."""
FILES_MAX = 10_000
"""So many are sent."""


class PlanFiles:
    """The files of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan.model_copy(
            update={"populations": tuple(_moved(each) for each in plan.populations)}
        )
        """The plan with the paths that they have in an agent's folder."""
        self.shared: Mapping[str, Path] = dict(_shared(plan))
        """Files that are the same for all clients of a population, by their paths there."""
        self.read_early = tuple(self.shared)
        """Those that an agent has read when it greets; others it reads as its clients connect."""
        self._given = plan
        number = len(set(self.of(0, 1)))
        if number > FILES_MAX:
            raise FleetError(
                f"found {number} files of keys, certificates and rows, and at most {FILES_MAX} "
                "are sent to other hosts",
                f"put them below {EVERYWHERE} on this host and on all others: files there are "
                "not sent; or use pre-shared keys, which are all in one file",
            )

    def of(
        self, agent: int, agents: int, populations: Collection[int] | None = None
    ) -> Mapping[str, Path]:
        """Returns the files that one of several agents needs, by their paths there: those of all
        populations, unless it plays these only."""
        files = dict(self.shared)
        for index, population in enumerate(self._given.populations):
            if populations is None or index in populations:
                files.update(_own(population, agent, agents))
        return files


def _moved(population: PlannedPopulation) -> PlannedPopulation:
    rows, tls = population.rows, population.tls
    if rows is not None:
        rows = rows.model_copy(update={"file": _there(rows.file)})
    if tls is not None:
        paths: dict[str, object] = {
            name: _there(path)
            for name in ("ca", "certificate", "key")
            if (path := getattr(tls, name)) is not None
        }
        if tls.psk is not None:
            paths["psk"] = tls.psk.model_copy(update={"file": _there(tls.psk.file)})
        tls = tls.model_copy(update=paths)
    lifetime = population.lifetime
    if lifetime is not None and lifetime.recorded is not None:
        recorded = lifetime.recorded.model_copy(update={"file": _there(lifetime.recorded.file)})
        lifetime = lifetime.model_copy(update={"recorded": recorded})
    publications = tuple(map(_moved_publication, population.publications))
    changes = {"rows": rows, "tls": tls, "lifetime": lifetime, "publications": publications}
    return population.model_copy(update=changes)


def _moved_publication(publication: PlannedPublication) -> PlannedPublication:
    recorded = publication.recorded
    if recorded is None:
        return publication
    payload = recorded.model_copy(update={"file": _there(recorded.file)})
    return publication.model_copy(update={"payload": payload})


def _shared(plan: Plan) -> Iterator[tuple[str, Path]]:
    """Files that are the same for all clients of a population."""
    for population in plan.populations:
        tls = population.tls
        paths = [population.rows.file] if population.rows is not None else []
        paths += {each.recorded.file for each in population.publications if each.recorded}
        if population.lifetime is not None and population.lifetime.recorded is not None:
            paths.append(population.lifetime.recorded.file)
        if tls is not None:
            paths += [path for path in (tls.ca, tls.psk and tls.psk.file) if path]
            if _has_one_certificate(tls):
                paths += [Template.parse(path).text(0) for path in _templates(tls)]
        yield from ((_there(path), Path(path)) for path in paths if _is_sent(path))


def _own(population: PlannedPopulation, agent: int, agents: int) -> Iterator[tuple[str, Path]]:
    """Files that clients of an agent have to themselves."""
    tls = population.tls
    if tls is None or _has_one_certificate(tls):
        return
    for template in _templates(tls):
        names = names_of(population, template)[agent::agents]
        yield from ((_there(path), Path(path)) for path in names if _is_sent(path))


def _templates(tls: PlannedTls) -> tuple[str, ...]:
    return tuple(path for path in (tls.certificate, tls.key) if path is not None)


def _has_one_certificate(tls: PlannedTls) -> bool:
    return not any(Template.parse(path).variables for path in _templates(tls))


def _is_sent(path: str) -> bool:
    return not path.startswith(EVERYWHERE)


def _there(path: str) -> str:
    """Returns the path of a file on other hosts; of a template, the folder of its files."""
    return FOLDER + os.path.normpath(Path(path).absolute()) if _is_sent(path) else path
