"""The files that a plan names, for agents on other hosts: the plan as it is there, and which file
goes where. Each agent gets those of its own clients. It reads files and sends nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pubstorm.errors import FleetError
from pubstorm.keys.clients import names_of
from pubstorm.plan import Plan, Population, Tls
from pubstorm.template import Template

FOLDER = "files"
"""Where they are, in the folder that an agent has to itself."""
EVERYWHERE = "/srv/pubstorm/"
"""What is below it is on every host already, and stays where it is."""
FILES_MAX = 10_000
"""So many are sent."""


class PlanFiles:
    """The files of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan.model_copy(
            update={"populations": tuple(_moved(each) for each in plan.populations)}
        )
        """The plan with the paths that they have in an agent's folder."""
        self.read_early = tuple({there: None for there, _ in _shared(plan)})
        """Those that an agent has read when it greets; others it reads as its clients connect."""
        self._given = plan
        number = len(set(self.of(0, 1)))
        if number > FILES_MAX:
            raise FleetError(
                f"found {number} files of keys, certificates and rows, and at most {FILES_MAX} "
                "are sent to other hosts",
                f"put them below {EVERYWHERE} on this host and on all others: what is there is "
                "not sent; or use pre-shared keys, which are all in one file",
            )

    def of(self, agent: int, agents: int) -> Mapping[str, Path]:
        """What this agent of so many needs: paths there, and the files here."""
        files = dict(_shared(self._given))
        for population in self._given.populations:
            files.update(_own(population, agent, agents))
        return files


def _moved(population: Population) -> Population:
    rows, tls = population.rows, population.tls
    if rows is not None:
        rows = rows.model_copy(update={"file": _there(rows.file)})
    if tls is not None:
        changes: dict[str, object] = {
            name: _there(path)
            for name in ("ca", "certificate", "key")
            if (path := getattr(tls, name)) is not None
        }
        if tls.psk is not None:
            changes["psk"] = tls.psk.model_copy(update={"file": _there(tls.psk.file)})
        tls = tls.model_copy(update=changes)
    return population.model_copy(update={"rows": rows, "tls": tls})


def _shared(plan: Plan) -> Iterator[tuple[str, Path]]:
    """Files that are the same for all clients of a population."""
    for population in plan.populations:
        tls = population.tls
        paths = [population.rows.file] if population.rows is not None else []
        if tls is not None:
            paths += [path for path in (tls.ca, tls.psk and tls.psk.file) if path]
            if _has_one_certificate(tls):
                paths += [Template.parse(path).text(0) for path in _templates(tls)]
        yield from ((_there(path), Path(path)) for path in paths if _is_sent(path))


def _own(population: Population, agent: int, agents: int) -> Iterator[tuple[str, Path]]:
    """Files that clients of an agent have to themselves."""
    tls = population.tls
    if tls is None or _has_one_certificate(tls):
        return
    for template in _templates(tls):
        names = names_of(population, template)[agent::agents]
        yield from ((_there(path), Path(path)) for path in names if _is_sent(path))


def _templates(tls: Tls) -> tuple[str, ...]:
    return tuple(path for path in (tls.certificate, tls.key) if path is not None)


def _has_one_certificate(tls: Tls) -> bool:
    return not any(Template.parse(path).variables for path in _templates(tls))


def _is_sent(path: str) -> bool:
    return not path.startswith(EVERYWHERE)


def _there(path: str) -> str:
    """Where a file is on other hosts; of a template, where its files are."""
    return FOLDER + os.path.normpath(Path(path).absolute()) if _is_sent(path) else path
