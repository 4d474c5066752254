"""The keys and certificates that a plan names, looked at before anything starts: each exists, can
be read, is in force, and is enough for every client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pubstorm.contract.plan import Plan, PlannedTls
from pubstorm.errors import KeysError, ScenarioProblem
from pubstorm.host.keys.clients import names_of
from pubstorm.host.keys.files import PATH_HINT
from pubstorm.host.keys.psk import read_psk

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

    for client in {0, -1}:
        check_credential(certificates[client], keys[client])


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
    "certificate": _check_certificates,
    "psk": _check_psk,
}
