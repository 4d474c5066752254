"""Credentials that a run makes for its brokers, bridges and clients, so that TLS and logins are one
word each in the scenario: keys, certificates, users, passwords and rights, as the files of each
kind have them. They live as long as the run, and are deleted for good."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedPsk
from pubstorm.contract.template import Template
from pubstorm.errors import KeysError, TopologyError
from pubstorm.files import lies_in, rewrite, text_of
from pubstorm.host.keys.clients import names_of
from pubstorm.host.keys.files import NewFile, new_keys, psk_text, write_files
from pubstorm.scenario.topology import Mosquitto, ScenarioTopology
from pubstorm.scenario.topology import ScenarioTopology as TopologySpec
from pubstorm.topology.adapters import adapter_of
from pubstorm.topology.adapters.mosquitto import (
    CA,
    CLIENTS,
    SERVER,
    SERVER_KEY,
    certificate_settings,
    psk_settings,
)
from pubstorm.topology.bridge_lines import Words, client_id, psk_words, state_topic
from pubstorm.topology.observer import Login

if TYPE_CHECKING:
    from pubstorm.host.keys.certificates import Authority

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


VALID_DAYS = 30
"""Longer than a run."""
NAME_OF_ALL = "localhost"
SERVER_NAMES = ("127.0.0.1", NAME_OF_ALL)
NOTE = "The keys and passwords that this run made were deleted at its end.\n"


class RunKeys:
    """The keys and passwords of a run, in a folder of their own. What a population or a bridge says
    of itself wins: it gets only what it lacks."""

    def __init__(self, spec: TopologySpec, folder: Path, *, names_hosts: bool = True) -> None:
        """`names_hosts`: certificates name the addresses of the brokers. They do not where brokers
        get these after the keys: in a network of their own, or on other hosts."""
        self._spec = spec
        self._names_hosts = names_hosts
        self._modes = {broker.tls_mode for broker in spec.brokers.values()} - {"none"}
        self._folder = folder.absolute()
        self._passwords = RunPasswords(spec, self._folder)
        self._psk_keys: dict[str, str] = {}
        self._authority: Authority | None = None
        self._made = not (self._modes or self._passwords.groups)

    def make(self, *plans: Plan) -> None:
        """Makes the keys of all clients of the plans; raises TopologyError where that fails. Done
        once: brokers that outlive a run need the keys of all their runs at their start."""
        if self._made:
            return
        populations = [population for plan in plans for population in plan.populations]
        logged_in = [p for plan in plans for p in plan.populations if self._logs_in(plan, p)]
        try:
            files = [*self._psk(populations), *self._certificates(populations)]
            write_files([*files, *self._passwords.files(logged_in)])
        except KeysError as error:
            raise TopologyError(f"keys for the run: {error.message}", error.hint) from error
        self._made = True

    def rotate(self) -> None:
        """Replaces the certificate and the key of the brokers; raises TopologyError. Brokers use
        the old ones until they read the files again."""
        assert self._authority is not None, "brokers with certificates have an authority"
        try:
            write_files([*self._server(self._authority)], force=True)
        except KeysError as error:
            raise TopologyError(f"the new certificate: {error.message}", error.hint) from error

    def settings(self, group: str) -> Mapping[str, object]:
        """Returns the lines of a broker's configuration about keys, passwords and rights."""
        access = self._passwords.settings(group)
        match self._spec.brokers[group].tls_mode:
            case "none":
                return access
            case "psk":
                return {**psk_settings(self._psk_file, as_username=False), **access}
            case _ if self._spec.brokers[group].serves_quic:
                stem = self._folder
                own = {"quic_certificate": str(stem / SERVER), "quic_key": str(stem / SERVER_KEY)}
                return {**own, **access}
            case mode:
                mutual = mode == "mutual"
                keys = certificate_settings(self._folder, require_client=mutual, as_username=False)
                return {**keys, **access}

    def equip(self, plan: Plan) -> Plan:
        """The plan with the paths of the keys and with the logins that its populations lack."""
        populations = tuple(
            self._passwords.equipped(keyed) if self._logs_in(plan, keyed) else keyed
            for keyed in map(self._equipped, plan.populations)
        )
        return plan.model_copy(update={"populations": populations})

    def observer(self, group: str) -> Login | None:
        """Returns the login of an observer of these brokers; None if they ask for no password."""
        asks = group in self._passwords.groups or self._spec.brokers[group].user_store is not None
        return self._passwords.observer if asks else None

    def observing(self, plan: Plan) -> Plan:
        """Returns the plan with the observer as user wherever a broker looks up its users.

        Clients of the plan may not read each other's topics there."""
        asking = {
            name for name, broker in self._spec.brokers.items() if broker.user_store is not None
        }
        observer = self._passwords.observer
        login = {"username": observer.username, "password": observer.password}
        populations = tuple(
            each.model_copy(update=login) if self._meets(plan, each, asking) else each
            for each in plan.populations
        )
        return plan.model_copy(update={"populations": populations})

    def bridge_login(self, name: str, number: int) -> tuple[str | None, str | None]:
        """User name and password of a bridge; None where it has or needs none."""
        return self._passwords.bridge(name, number)

    def bridge_tls(self, name: str, number: int) -> Words:
        """Returns the lines of mosquitto's configuration about a bridge's keys for a broker of the
        run."""
        bridge = self._spec.bridges[name]
        is_named = self._names_hosts and bridge.network is None
        anywhere = {} if is_named else {"bridge_insecure": True}
        match self._spec.brokers[bridge.to].tls_mode:
            case "none":
                return {}
            case "psk":
                identity = client_id(name, bridge, number)
                return psk_words(identity, self._psk_keys[identity])
            case "mutual":
                stem = self._folder / CLIENTS / _bridge_stem(name, number)
                own = {"bridge_certfile": f"{stem}.crt", "bridge_keyfile": f"{stem}.key"}
                return {"bridge_cafile": str(self._folder / CA), **own, **anywhere}
            case _:
                return {"bridge_cafile": str(self._folder / CA), **anywhere}

    def discard(self) -> None:
        """Deletes them, and leaves a note that says so. May be called twice."""
        if not self._folder.exists():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._folder.with_name("keys-deleted.txt").write_text(NOTE)

    def _logs_in(self, plan: Plan, population: PlannedPopulation) -> bool:
        """Returns True if clients of the population may connect to a broker that asks for a
        password."""
        return self._meets(plan, population, self._passwords.groups)

    def _meets(self, plan: Plan, population: PlannedPopulation, groups: Set[str]) -> bool:
        """Returns True if clients of the population may connect to a broker of these groups."""
        counts = [(name, broker.count) for name, broker in self._spec.brokers.items()]
        first = len(plan.targets) - sum(count for _, count in counts)
        for name, count in counts:
            is_met = population.at.first < first + count
            is_met = is_met and first < population.at.first + population.at.count
            if is_met and name in groups:
                return True
            first += count
        return False

    def _bridges_under(self, mode: str) -> Iterator[tuple[str, int]]:
        """Names and numbers of bridges to brokers under this mode of TLS."""
        brokers = self._spec.brokers
        for name, bridge in self._spec.bridges.items():
            if bridge.to in brokers and brokers[bridge.to].tls_mode == mode:
                yield from ((name, number) for number in range(brokers[bridge.from_].count))

    @property
    def _psk_file(self) -> Path:
        return self._folder / "psk.txt"

    def _psk(self, populations: Sequence[PlannedPopulation]) -> Iterator[NewFile]:
        if "psk" in self._modes:
            keyed = (p for p in populations if p.tls is not None)
            ids = [each for p in keyed for each in names_of(p, p.client_id)]
            bridges = self._spec.bridges
            ids += [client_id(name, bridges[name], n) for name, n in self._bridges_under("psk")]
            self._psk_keys = new_keys(dict.fromkeys(ids))
            yield NewFile(self._psk_file, psk_text(self._psk_keys.items()))

    def _certificates(self, populations: Sequence[PlannedPopulation]) -> Iterator[NewFile]:
        if not self._modes & {"server", "mutual"}:
            return
        from pubstorm.host.keys.certificates import SUBJECT_MAX, Authority, CertificateDates

        validity = CertificateDates.of_days(VALID_DAYS)
        self._authority = authority = Authority.new("pubstorm run", validity)
        yield NewFile(self._folder / CA, authority.credential.certificate, private=False)
        yield from self._server(authority)
        if "mutual" not in self._modes:
            return
        keyed = (p for p in populations if p.tls is not None)
        stems = [each for p in keyed for each in names_of(p, _stem(p))]
        stems += [_bridge_stem(name, n) for name, n in self._bridges_under("mutual")]
        for stem in dict.fromkeys(stems):
            client = authority.client(stem[-SUBJECT_MAX:], validity)
            folder = self._folder / CLIENTS
            yield NewFile(folder / f"{stem}.crt", client.certificate, private=False)
            yield NewFile(folder / f"{stem}.key", client.key)

    def _server(self, authority: Authority) -> Iterator[NewFile]:
        from pubstorm.host.keys.certificates import CertificateDates

        server = authority.server(SERVER_NAMES, CertificateDates.of_days(VALID_DAYS))
        yield NewFile(self._folder / SERVER, server.certificate, private=False)
        yield NewFile(self._folder / SERVER_KEY, server.key)

    def _equipped(self, population: PlannedPopulation) -> PlannedPopulation:
        tls = population.tls
        if tls is None or not self._modes:
            return population
        lacks: dict[str, object] = {}
        if "psk" in self._modes:
            if tls.psk is None and tls.certificate is None:
                psk = PlannedPsk(file=str(self._psk_file), identity=population.client_id)
                lacks["psk"] = psk
        elif tls.psk is None:
            if tls.ca is None:
                lacks["ca"] = str(self._folder / CA)
                if (tls.server_name is None and not self._names_hosts) or self._spec.networks:
                    lacks["server_name"] = NAME_OF_ALL
            if tls.certificate is None and "mutual" in self._modes:
                folder = str(self._folder / CLIENTS).replace("{", "{{").replace("}", "}}")
                lacks["certificate"] = f"{folder}/{_stem(population)}.crt"
                lacks["key"] = f"{folder}/{_stem(population)}.key"
        return population.model_copy(update={"tls": tls.model_copy(update=lacks)})


def _stem(population: PlannedPopulation) -> str:
    return f"{population.of}-{{n}}"


def _bridge_stem(name: str, number: int) -> str:
    return f"bridge-{name}-{number}"


KEYS = "keys"
"""Folder of keys and passwords, in that of the topology."""
SECRET_WORDS = ("bridge_psk", "remote_password")
"""Words before a secret in mosquitto.conf."""
DELETED = "# deleted at the end of the run"


def forget_secrets(folder: Path) -> int:
    """Deletes them, and says how many files had some. May be called twice."""
    configurations = folder.glob("*/mosquitto.conf")
    found = sum(_forget_in(path) for path in configurations if lies_in(path, folder))
    keys = folder / KEYS
    if lies_in(keys, folder) and keys.is_dir():
        found += sum(path.is_file() for path in keys.rglob("*"))
        shutil.rmtree(keys, ignore_errors=True)
    return found


def _forget_in(path: Path) -> bool:
    """Takes secrets out of a configuration; whether there were any."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = text_of(path).splitlines()
        kept = [_without_secret(line) for line in lines]
        if kept != lines:
            rewrite(path, "\n".join(kept) + "\n")
            return True
    return False


def _without_secret(line: str) -> str:
    word = line.partition(" ")[0]
    return f"{DELETED}: {word}" if word in SECRET_WORDS else line
