"""Keys that a run makes for its own brokers and all its clients, so that TLS is one word in the
scenario. They live as long as the run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pubstorm.errors import KeysError, TopologyError
from pubstorm.keys.authority import SUBJECT_MAX, Authority, Validity
from pubstorm.keys.clients import names_of
from pubstorm.keys.files import NewFile, write_files
from pubstorm.keys.listener import (
    CA,
    CLIENTS,
    SERVER,
    SERVER_KEY,
    certificate_settings,
    psk_settings,
)
from pubstorm.keys.psk import new_keys, psk_text
from pubstorm.plan import Plan, Population, Psk, Tls
from pubstorm.scenario.topology import Broker as BrokerSpec

VALID_DAYS = 30
"""Longer than a run."""
SERVER_NAMES = ("127.0.0.1", "localhost")
NOTE = "The keys that this run made for its brokers and clients were deleted at its end.\n"


class RunKeys:
    """The keys of a run, in a folder of their own. What a population says of itself wins: it gets
    only what it lacks."""

    def __init__(self, specs: Mapping[str, BrokerSpec], folder: Path) -> None:
        self._modes = {spec.tls for spec in specs.values()} - {"none"}
        self._folder = folder.absolute()
        self._made = not self._modes

    def make(self, *plans: Plan) -> None:
        """Makes the keys of all clients of the plans; raises TopologyError where that fails. Done
        once: brokers that outlive a run need the keys of all their runs at their start."""
        if self._made:
            return
        populations = [population for plan in plans for population in plan.populations]
        try:
            write_files([*self._psk(populations), *self._certificates(populations)])
        except KeysError as error:
            raise TopologyError(f"keys for the run: {error.message}", error.hint) from error
        self._made = True

    def settings(self, mode: str) -> Mapping[str, object]:
        """What mosquitto's configuration says of them."""
        match mode:
            case "none":
                return {}
            case "psk":
                return psk_settings(self._psk_file, as_username=False)
            case _:
                mutual = mode == "mutual"
                return certificate_settings(self._folder, require_client=mutual, as_username=False)

    def equip(self, plan: Plan) -> Plan:
        """The plan with the paths of the keys that its populations lack."""
        if not self._modes:
            return plan
        populations = tuple(self._equipped(population) for population in plan.populations)
        return plan.model_copy(update={"populations": populations})

    def discard(self) -> None:
        """Deletes them, and leaves a note that says so. May be called twice."""
        if not self._folder.exists():
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._folder.with_name("keys-deleted.txt").write_text(NOTE)

    @property
    def _psk_file(self) -> Path:
        return self._folder / "psk.txt"

    def _psk(self, populations: Sequence[Population]) -> Iterator[NewFile]:
        if "psk" in self._modes:
            ids = (each for p in populations for each in names_of(p, p.client_id))
            yield NewFile(self._psk_file, psk_text(new_keys(dict.fromkeys(ids)).items()))

    def _certificates(self, populations: Sequence[Population]) -> Iterator[NewFile]:
        if not self._modes & {"server", "mutual"}:
            return
        validity = Validity.of_days(VALID_DAYS)
        authority = Authority("pubstorm run", validity)
        server = authority.server(SERVER_NAMES, validity)
        yield NewFile(self._folder / CA, authority.credential.certificate, private=False)
        yield NewFile(self._folder / SERVER, server.certificate, private=False)
        yield NewFile(self._folder / SERVER_KEY, server.key)
        if "mutual" not in self._modes:
            return
        for stem in dict.fromkeys(each for p in populations for each in names_of(p, _stem(p))):
            client = authority.client(stem[-SUBJECT_MAX:], validity)
            folder = self._folder / CLIENTS
            yield NewFile(folder / f"{stem}.crt", client.certificate, private=False)
            yield NewFile(folder / f"{stem}.key", client.key)

    def _equipped(self, population: Population) -> Population:
        tls = population.tls or Tls()
        lacks: dict[str, object] = {}
        if "psk" in self._modes:
            if tls.psk is None and tls.certificate is None:
                psk = Psk(file=str(self._psk_file), identity=population.client_id)
                lacks["psk"] = psk
        elif tls.psk is None:
            if tls.ca is None:
                lacks["ca"] = str(self._folder / CA)
            if tls.certificate is None and "mutual" in self._modes:
                folder = str(self._folder / CLIENTS).replace("{", "{{").replace("}", "}}")
                lacks["certificate"] = f"{folder}/{_stem(population)}.crt"
                lacks["key"] = f"{folder}/{_stem(population)}.key"
        return population.model_copy(update={"tls": tls.model_copy(update=lacks)})


def _stem(population: Population) -> str:
    return f"{population.name}-{{n}}"
