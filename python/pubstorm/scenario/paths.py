"""Paths in a scenario: relative ones are from the folder of the scenario file. It looks at no file;
whether one is there is asked of the host.
"""

from __future__ import annotations

from pathlib import Path

from pubstorm.scenario.model import Scenario
from pubstorm.scenario.populations import Population
from pubstorm.scenario.tls import Tls
from pubstorm.scenario.topology import Bridge, Broker, Service


def with_absolute_paths(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario, with every path of keys, certificates, rows and programs absolute."""
    populations = {
        name: _population(population, folder) for name, population in scenario.populations.items()
    }
    brokers = {n: _broker(broker, folder) for n, broker in scenario.topology.brokers.items()}
    services = {n: _service(each, folder) for n, each in scenario.topology.services.items()}
    bridges = {n: _bridge(bridge, folder) for n, bridge in scenario.topology.bridges.items()}
    started = {"brokers": brokers, "services": services, "bridges": bridges}
    topology = scenario.topology.model_copy(update=started)
    return scenario.model_copy(update={"populations": populations, "topology": topology})


def _population(population: Population, folder: Path) -> Population:
    tls, rows = population.tls, population.rows
    if rows is not None:
        rows = rows.model_copy(update={"file": _joined(str(folder), rows.file)})
    own: dict[str, object] = {"tls": None if tls is None else _tls(tls, folder), "rows": rows}
    publisher = population.publisher
    if publisher is not None:
        command = _command(publisher.command, folder)
        own["publisher"] = publisher.model_copy(update={"command": command})
    return population.model_copy(update=own)


def _bridge(bridge: Bridge, folder: Path) -> Bridge:
    if bridge.tls is None:
        return bridge
    return bridge.model_copy(update={"tls": _tls(bridge.tls, folder)})


def _tls(tls: Tls, folder: Path) -> Tls:
    in_template = str(folder).replace("{", "{{").replace("}", "}}")
    paths: dict[str, object] = {
        "ca": _joined(str(folder), tls.ca),
        "certificate": _joined(in_template, tls.certificate),
        "key": _joined(in_template, tls.key),
    }
    if tls.psk is not None:
        paths["psk"] = tls.psk.model_copy(update={"file": _joined(str(folder), tls.psk.file)})
    return tls.model_copy(update=paths)


def _broker(broker: Broker, folder: Path) -> Broker:
    binary, command = _joined(str(folder), broker.binary), _command(broker.command, folder)
    return broker.model_copy(update={"binary": binary, "command": command})


def _command(command: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The command with an absolute program, unless that is to be looked for in the PATH."""
    program, *words = command or ("",)
    if "/" in program:
        program = str(Path(str(folder).replace("{", "{{").replace("}", "}}"), program))
    return (program, *words) if command else ()


def _service(service: Service, folder: Path) -> Service:
    return service.model_copy(update={"binary": _joined(str(folder), service.binary)})


def _joined(folder: str, path: str | None) -> str | None:
    return None if path is None else str(Path(folder, path))
