"""The keys of clients: their names, from a template and a range of numbers or from a scenario.
Before anything starts, Pubstorm looks at all files of this host that a run is going to use: keys
and certificates, programs of brokers, rows and rate profiles."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pubstorm.contract.offered_load import template_of
from pubstorm.contract.plan import Plan, PlannedPopulation, PlannedTls
from pubstorm.contract.template import Template, TemplateError, VariableKind
from pubstorm.errors import KeysError, ScenarioError, ScenarioProblem, UsageError
from pubstorm.host.keys.files import PATH_HINT, PRIVATE_MODE, read_psk
from pubstorm.plan import compile_plan, planned_targets, planned_tls
from pubstorm.scenario import Scenario, load_scenario
from pubstorm.scenario.checks import check_files
from pubstorm.scenario.load import find_scenario
from pubstorm.scenario.services import RedisServer
from pubstorm.scenario.topology import Command, InstalledBroker

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The keys that a user asks for."""

    template: str | None = None
    """Template of a name."""
    count: int | None = None
    """Number of clients."""
    first: int = 0
    """Number of the first."""
    scenario: str | None = None
    """A scenario instead."""

    @property
    def is_nothing(self) -> bool:
        """True if the user asks for no keys."""
        return self.template is None and self.scenario is None and self.count is None

    def identities(self) -> tuple[Names, ...]:
        """Identities of pre-shared keys, by population; clients of a scenario may share one."""
        if self.scenario is not None:
            self._require_alone()
            chosen = [p for p in _populations(self.scenario) if not _has_certificate(p)]
            return tuple(tuple(dict.fromkeys(names_of(p, _identity(p)))) for p in chosen)
        return (self._numbered(),)

    def subjects(self) -> tuple[Names, ...]:
        """Common names of certificates, by population."""
        if self.scenario is not None:
            self._require_alone()
            chosen = [p for p in _populations(self.scenario) if not _has_psk(p)]
            return tuple(names_of(p, p.client_id) for p in chosen)
        return (self._numbered(),)

    def _numbered(self) -> Names:
        if self.template is None or self.count is None:
            raise UsageError(
                "found no clients, needed are a template with --count, or --scenario",
                "for example: 'device-{n}' --count 3000",
            )
        try:
            template = Template.parse(self.template)
        except TemplateError as error:
            raise UsageError(f"found {error}") from None
        if template.has(
            *set(VariableKind)
            - {VariableKind.NUMBER, VariableKind.REMAINDER, VariableKind.QUOTIENT}
        ):
            hint = "write {n}, and how many with --count"
            message = f"found {self.template!r}, allowed are {{n}}, {{n%K}} and {{n/K}}"
            raise UsageError(message, hint)
        return tuple(template.text(n) for n in range(self.first, self.first + self.count))

    def _require_alone(self) -> None:
        if self.template is not None or self.count is not None:
            raise UsageError("found --scenario and a template or --count, allowed is one of them")


def names_of(population: PlannedPopulation, template: str) -> Names:
    """A template's text for every client of a population, in their order."""
    compiled = template_of(population, template)
    first = population.first
    return tuple(compiled.text(n) for n in range(first, first + population.clients))


def _populations(scenario: str) -> tuple[PlannedPopulation, ...]:
    loaded = load_scenario(find_scenario(scenario))
    targets = tuple(t.model_copy(update={"tls": True}) for t in planned_targets(loaded))
    return compile_plan(loaded, targets, run_tag=0).populations


def _identity(population: PlannedPopulation) -> str:
    tls = population.tls
    return population.client_id if tls is None or tls.psk is None else tls.psk.identity


def _has_psk(population: PlannedPopulation) -> bool:
    return population.tls is not None and population.tls.psk is not None


def _has_certificate(population: PlannedPopulation) -> bool:
    return population.tls is not None and population.tls.certificate is not None


NamesOf = Callable[[str], Sequence[str]]
"""A template's text for every client."""


def key_problems(plan: Plan) -> Iterator[ScenarioProblem]:
    """The problems of the keys: at most one for each kind of each population, and one for all its
    shares if it is the same."""
    found: dict[ScenarioProblem, None] = {}
    for population in plan.populations:
        if population.tls is not None:
            place = f"populations.{population.of}.tls"
            problems = tls_problems(place, partial(names_of, population), population.tls)
            found |= dict.fromkeys(problems)
    yield from found


def tls_problems(place: str, names: NamesOf, tls: PlannedTls) -> Iterator[ScenarioProblem]:
    """The problems of the keys of some clients, with their place in the scenario."""
    for kind, check in CHECKS.items():
        try:
            check(names, tls)
        except KeysError as error:
            yield ScenarioProblem(f"{place}.{kind}", "", error.message, error.hint)


def _check_authorities(names: NamesOf, tls: PlannedTls) -> None:
    del names
    if tls.ca is not None:
        from pubstorm.host.keys.certificates import check_authorities

        check_authorities(tls.ca)


def _check_certificates(names: NamesOf, tls: PlannedTls) -> None:
    """All files must exist; those of the first and the last client are read."""
    if tls.certificate is None or tls.key is None:
        return
    certificates = names(tls.certificate)
    keys = names(tls.key)
    for paths in (certificates, keys):
        different = dict.fromkeys(paths)
        missing = [path for path in different if not os.access(path, os.R_OK)]
        if missing:
            of = f"{len(missing)} of {len(different)}"
            message = f"found {of} files missing or not readable, the first is {missing[0]}"
            raise KeysError(message, PATH_HINT)
    from pubstorm.host.keys.certificates import check_credential

    passphrases = names(tls.passphrase) if tls.passphrase is not None else None
    for client in {0, -1}:
        passphrase = None if passphrases is None else passphrases[client]
        check_credential(certificates[client], keys[client], passphrase)


def _check_server_name(names: NamesOf, tls: PlannedTls) -> None:
    if tls.server_name is not None:
        wrong = next((each for each in names(tls.server_name) if not _HOST.fullmatch(each)), None)
        if wrong is not None:
            message = f"found the name {wrong[:80]!r}, allowed are names of hosts and addresses"
            raise KeysError(message, "letters, digits, - and dots, at most 253 characters")


_HOST = re.compile(r"(?=.{1,253}\.?\Z)[\w:-]+(\.[\w-]+)*\.?", re.ASCII)


def _check_key_log(names: NamesOf, tls: PlannedTls) -> None:
    """A file that exists must be a private one."""
    del names
    if tls.key_log is None:
        return
    path = Path(tls.key_log)
    try:
        status = path.lstat()
    except FileNotFoundError as error:
        if not os.access(path.parent, os.W_OK):
            message = f"found no folder {path.parent} where a file can be written"
            raise KeysError(message, FOLDER_HINT) from error
        return
    except OSError as error:
        raise KeysError(f"cannot use {path}: {error.strerror}", FOLDER_HINT) from error
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode) or mode != PRIVATE_MODE:
        kind = "a file" if stat.S_ISREG(status.st_mode) else "no regular file"
        message = f"found {path}, {kind} with mode {mode:04o}, allowed is a new file, or mode 0600"
        raise KeysError(message, "delete the file, or name another one")


FOLDER_HINT = "a relative path is from the folder of the scenario file"


def _check_psk(names: NamesOf, tls: PlannedTls) -> None:
    if tls.psk is None:
        return
    keys = read_psk(tls.psk.file)
    identities = names(tls.psk.identity)
    missing = [identity for identity in identities if identity not in keys]
    if missing:
        of = f"{len(missing)} of {len(identities)}"
        message = f"found no key for {of} identities in {tls.psk.file}, the first is {missing[0]!r}"
        raise KeysError(message, "pubstorm keys psk --scenario FILE makes keys for all clients")


CHECKS: dict[str, Callable[[NamesOf, PlannedTls], None]] = {
    "ca": _check_authorities,
    "server_name": _check_server_name,
    "certificate": _check_certificates,
    "key_log": _check_key_log,
    "psk": _check_psk,
}


def check_host_files(scenario: Scenario, plan: Plan) -> None:
    """Raises ScenarioError with everything that is wrong."""
    problems = [*_file_problems(scenario)]
    if not problems:
        problems = [*_program_problems(scenario), *key_problems(plan), *_bridge_problems(scenario)]
    if problems:
        raise ScenarioError(problems)


def _file_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    """Files have been looked at with the scenario; a series may come to them hours later."""
    for path, message, hint in check_files(scenario):
        yield ScenarioProblem(".".join(map(str, path)), "", message, hint)


def _program_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    topology = scenario.topology
    binaries = {
        f"services.{name}": service.binary
        for name, service in topology.services.items()
        if isinstance(service, RedisServer)
    }
    brokers = topology.brokers.items()
    installed = {n: b for n, b in brokers if isinstance(b, InstalledBroker)}
    binaries |= {f"brokers.{name}": broker.binary for name, broker in installed.items()}
    for name, path in binaries.items():
        if path is not None and not (Path(path).is_file() and os.access(path, os.X_OK)):
            place = f"topology.{name}.binary"
            hint = "a relative path is from the folder of the scenario file"
            yield ScenarioProblem(
                place, "", f"found {path}, allowed is a file that can be executed", hint
            )
    commands = {f"topology.brokers.{n}": b.command for n, b in brokers if isinstance(b, Command)}
    for name, population in scenario.publishers.items():
        commands[f"populations.{name}.publisher"] = population.publisher.command
    for name, command in commands.items():
        program = command[0] if command else None
        if program is not None and "{" not in program and shutil.which(program) is None:
            place = f"{name}.command.0"
            yield ScenarioProblem(
                place, "", f"found {program}, allowed is a program of this host", None
            )


def _bridge_problems(scenario: Scenario) -> Iterator[ScenarioProblem]:
    """Keys of bridges to a target that the run does not start."""
    for name, bridge in scenario.topology.bridges.items():
        if not scenario.targets_called(bridge.to) or bridge.tls is None:
            continue
        tls = planned_tls(bridge.tls, bridge.client_id or f"{name}-{{n}}")
        count = scenario.topology.brokers[bridge.from_].count
        names = partial(_numbered, count=count)
        yield from tls_problems(f"topology.bridges.{name}.tls", names, tls)


def _numbered(template: str, count: int) -> list[str]:
    compiled = Template.parse(template)
    return [compiled.text(number) for number in range(count)]
