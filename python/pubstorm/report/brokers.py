"""The tables of the brokers that the run started, and of the bridges between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pubstorm.quantities import count_text
from pubstorm.report.layout import Cells, RunTable, fields, names, words
from pubstorm.result import BridgeResult, BrokerResult, Result


def _groups(result: Result) -> Iterable[tuple[str, list[BrokerResult]]]:
    """Returns the brokers by name, if there are several or one of them died or restarted."""
    groups: dict[str, list[BrokerResult]] = {}
    if len(result.brokers) > 1 or any(each.died or each.restarts for each in result.brokers):
        for broker in result.brokers:
            groups.setdefault(broker.group or broker.name, []).append(broker)
    return groups.items()


def _kinds_text(members: Sequence[BrokerResult]) -> str:
    kinds = dict.fromkeys(f"{each.kind} {each.version}".strip() for each in members)
    many = f"{count_text(len(members))} × " if len(members) > 1 else ""
    return many + ", ".join(kinds)


def addresses_text(addresses: Sequence[tuple[str, int]]) -> str:
    """Returns hosts with their ports, consecutive ports as a range."""
    by_host: dict[str, list[int]] = {}
    for host, port in addresses:
        by_host.setdefault(host, []).append(port)
    return ", ".join(_address_text(host, sorted(ports)) for host, ports in by_host.items())


def _address_text(host: str, ports: Sequence[int]) -> str:
    first, last = ports[0], ports[-1]
    if len(ports) == 1:
        return f"{host}:{first}"
    if last - first == len(ports) - 1:
        return f"{host}:{first}-{last}"
    if len(ports) <= PORTS_MAX:
        return ", ".join(f"{host}:{port}" for port in ports)
    return f"{host}, {count_text(len(ports))} ports from {first} to {last}"


PORTS_MAX = 4
"""Ports that are shown one by one."""

BROKERS = RunTable[Sequence[BrokerResult]]("Brokers of the run", "broker", _groups).of(
    names("brokers"),
    Cells("what", "word", _kinds_text),
    Cells("at", "word", lambda members: addresses_text([(b.host, b.port) for b in members])),
    Cells("restarts", "count", lambda members: sum(each.restarts for each in members)),
    Cells("died", "count", lambda members: sum(each.died for each in members)),
)
BRIDGES = RunTable[BridgeResult]("Bridges", "broker", lambda result: result.bridges).of(
    words("name as bridges"),
    Cells("from → to", "word", lambda bridge: f"{bridge.small} → {bridge.main}"),
    fields("bridges as count", "up as up at first", "up_after_s as after"),
)
"""The bridges by name, and the number that was up when the first stage began."""
