"""The agents of a run in their places: how many engines, on which hosts, the programs beside them,
and what these hosts are short of. It starts none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from pubstorm.cast import Cast
from pubstorm.fleet import Fleet, FleetEvent, Slot
from pubstorm.fleet.choice import patience_of
from pubstorm.fleet.programs import UserPrograms, engine_commands, program_slots
from pubstorm.fleet.site import Site
from pubstorm.plan import Plan
from pubstorm.preflight import Host, Need, agents_needed, broker_kinds, needs
from pubstorm.preflight.cluster import agents_on, cluster_needs, host_name
from pubstorm.preview import need_in_words
from pubstorm.scenario import Scenario
from pubstorm.scenario.roles import publishers_of
from pubstorm.topology.broker import parent_death_prefix


class Staff:
    """The agents of one run, on an open site."""

    def __init__(self, scenario: Scenario, plan: Plan, site: Site) -> None:
        self._scenario = scenario
        self._plan = plan
        self._site = site
        self._slots: Sequence[Slot] = ()

    async def fleet(self, logs: Path, emit: Callable[[FleetEvent], None]) -> Fleet:
        """The fleet, every agent with a place and none started. What agents of this host log goes
        to a folder. Raises FleetError or BinaryError."""
        cast = Cast.of(self._plan, self._engines())
        self._slots = await self._site.place(engine_commands(cast.engines))
        populations = publishers_of(self._scenario).items()
        programs = {name: each.publisher.command for name, each in populations if each.publisher}
        users = UserPrograms(programs, parent_death_prefix())
        return Fleet(
            (*self._slots, *program_slots(self._plan, cast, logs, users)),
            emit,
            patience_of(self._scenario.fleet, self._plan),
            self._site.replace,
        )

    def shortages(self) -> list[str]:
        """What hosts of agents are short of, with what to do, once they have their places."""
        agents = Counter(slot.host for slot in self._slots)
        if set(agents) <= {""}:
            brokers = broker_kinds(self._scenario.topology)
            here = needs(self._plan, Host.here(), agents=len(self._slots), brokers=brokers)
            return [f"short of {_in_words(need)}" for need in here if not need.is_met]
        return [
            f"{host_name(address)} is short of {_in_words(need)}"
            for address, needed in cluster_needs(self._plan, self._site.hosts, agents).items()
            for need in needed
            if not need.is_met
        ]

    def _engines(self) -> int:
        fleet = self._scenario.fleet
        if fleet.on != "local":
            return agents_on(self._site.hosts, self._plan, fleet)
        host = Host.here()
        return fleet.agents or agents_needed(
            self._plan, descriptors=host.descriptors, cores=host.cores
        )


def _in_words(need: Need) -> str:
    return f"{need_in_words(need)}: {need.fix}"
