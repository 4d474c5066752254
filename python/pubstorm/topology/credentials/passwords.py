"""Passwords and rights on the brokers that a run starts, and the text of their files."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pubstorm.contract.plan import PlannedPopulation
from pubstorm.contract.template import Template
from pubstorm.host.keys.clients import names_of
from pubstorm.host.keys.files import NewFile
from pubstorm.scenario.topology import Mosquitto, ScenarioTopology
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.bridge_lines import client_id, state_topic
from pubstorm.topology.observer import Login

SECRET_BYTES = 16
OBSERVER = "pubstorm-observer"
"""The user that monitors are."""


class RunPasswords:
    """The users of a run's brokers: its populations, its bridges, and one observer. Who has a user
    name or a password of its own keeps it."""

    def __init__(self, spec: ScenarioTopology, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._secrets: dict[str, str] = {}
        self.groups = frozenset(
            name for name, broker in spec.brokers.items() if broker.has_passwords
        )
        """Names of the brokers that want a password."""

    def files(self, populations: Sequence[PlannedPopulation]) -> Iterator[NewFile]:
        """Yields the files of the brokers: one of passwords, and one of rights if the scenario has
        any."""
        if not self.groups:
            return
        equipped = (self.equipped(population) for population in populations)
        users = dict(pair for population in equipped for pair in _users(population))
        observer = self.observer
        users[str(observer.username)] = str(observer.password)
        for group in sorted(self.groups):
            broker = self._spec.brokers[group]
            known = {**dict(self._bridges_to(group)), **users}
            text = adapter_of(broker.kind).users_text(known)
            yield NewFile(self._passwords_of(group), text)
            if isinstance(broker, Mosquitto) and broker.acl:
                text = acl_text(broker.acl, users, self._notified(group))
                yield NewFile(self._rights_of(group), text)

    def settings(self, group: str) -> Mapping[str, object]:
        """Returns the lines of a broker's configuration about passwords and rights."""
        if group not in self.groups:
            return {}
        broker = self._spec.brokers[group]
        has_rights = isinstance(broker, Mosquitto) and broker.acl
        rights = {"acl_file": str(self._rights_of(group))} if has_rights else {}
        return {**adapter_of(broker.kind).users_settings(str(self._passwords_of(group))), **rights}

    def equipped(self, population: PlannedPopulation) -> PlannedPopulation:
        """The population with the user name and the password that it lacks."""
        lacks: dict[str, object] = {}
        if population.username is None:
            lacks["username"] = population.of
        if population.password is None:
            lacks["password"] = self._secret(f"population {population.of}")
        return population.model_copy(update=lacks)

    @property
    def observer(self) -> Login:
        """Login of the observer."""
        return Login(OBSERVER, self._secret(OBSERVER))

    def bridge(self, name: str, number: int) -> tuple[str | None, str | None]:
        """User name and password of one bridge; None where it has or needs none."""
        bridge = self._spec.bridges[name]
        username, password = (
            None if template is None else Template.parse(template).text(number)
            for template in (bridge.username, bridge.password)
        )
        if bridge.to in self.groups:
            username = username or client_id(name, bridge, number)
            password = password or f"{self._secret(f'bridge {name}')}-{number}"
        return username, password

    def _bridges_to(self, group: str) -> Iterator[tuple[str, str]]:
        for name, bridge in self._spec.bridges.items():
            if bridge.to == group:
                for number in range(self._spec.brokers[bridge.from_].count):
                    username, password = self.bridge(name, number)
                    yield str(username), str(password)

    def _notified(self, group: str) -> Iterator[str]:
        for name, bridge in self._spec.bridges.items():
            if bridge.to == group and bridge.notifications:
                yield state_topic(name, "+")

    def _passwords_of(self, group: str) -> Path:
        return self._folder / f"{group}.passwords"

    def _rights_of(self, group: str) -> Path:
        return self._folder / f"{group}.acl"

    def _secret(self, whose: str) -> str:
        return self._secrets.setdefault(whose, secrets.token_hex(SECRET_BYTES))


def acl_text(own: Sequence[str], trusted: Iterable[str], notified: Iterable[str]) -> bytes:
    """The text of an ACL file: the scenario's own lines; `trusted` users, who may read and write
    everything; topics on which bridges may say whether they are up."""
    lines = [*own, *(f"pattern write {topic}" for topic in notified)]
    for user in trusted:
        lines += [f"user {user}", "topic readwrite #", "topic read $SYS/#"]
    return "".join(f"{line}\n" for line in lines).encode()


def _users(population: PlannedPopulation) -> Iterator[tuple[str, str]]:
    """User names and passwords of its clients, those that differ."""
    users, words = str(population.username), str(population.password)
    if not any(Template.parse(text).variables for text in (users, words)):
        population = population.model_copy(update={"clients": 1})
    yield from zip(names_of(population, users), names_of(population, words), strict=True)
