"""The tables of the brokers that the run started, group by group, and of the bridges between them.
It knows no format."""

from __future__ import annotations

from collections.abc import Sequence

from pubstorm.quantity import NOTHING, count_text, span_text
from pubstorm.report.table import Column, Table
from pubstorm.result import BridgeResult, BrokerResult, Result


def brokers(result: Result) -> Table:
    """Brokers by their names, where there are several or one of them came to something."""
    groups: dict[str, list[BrokerResult]] = {}
    for broker in result.brokers:
        groups.setdefault(broker.group or broker.name, []).append(broker)
    several = len(result.brokers) > 1
    shown = several or any(broker.died or broker.restarts for broker in result.brokers)
    rows = [_broker_cells(name, members) for name, members in groups.items()] if shown else []
    texts = tuple(Column(name, right=False) for name in ("brokers", "what", "at"))
    columns = (*texts, Column("restarts"), Column("died"))
    return Table("Brokers of the run", columns, tuple(rows))


def bridges(result: Result) -> Table:
    """Bridges by their names, and how many were up when the first stage began."""
    rows = [
        (each.name, f"{each.small} → {each.main}", count_text(each.bridges), *_bridge_cells(each))
        for each in result.bridges
    ]
    texts = (Column("bridges", right=False), Column("from → to", right=False))
    columns = (*texts, *map(Column, ("count", "up at first", "after")))
    return Table("Bridges", columns, tuple(rows))


def addresses_text(addresses: Sequence[tuple[str, int]]) -> str:
    """Hosts with their ports, ports in a row as a range."""
    by_host: dict[str, list[int]] = {}
    for host, port in addresses:
        by_host.setdefault(host, []).append(port)
    return ", ".join(f"{host}:{_ports_text(sorted(ports))}" for host, ports in by_host.items())


def _broker_cells(name: str, members: Sequence[BrokerResult]) -> tuple[str, ...]:
    kinds = dict.fromkeys(f"{each.kind} {each.version}".strip() for each in members)
    many = f"{count_text(len(members))} × " if len(members) > 1 else ""
    return (
        name,
        many + ", ".join(kinds),
        addresses_text([(each.host, each.port) for each in members]),
        count_text(sum(each.restarts for each in members)),
        count_text(sum(each.died for each in members)),
    )


def _bridge_cells(bridge: BridgeResult) -> tuple[str, ...]:
    up = NOTHING if bridge.up is None else count_text(bridge.up)
    after = NOTHING if bridge.up_after_s is None else span_text(bridge.up_after_s)
    return up, after


def _ports_text(ports: Sequence[int]) -> str:
    first, last = ports[0], ports[-1]
    if len(ports) == 1:
        return str(first)
    if last - first == len(ports) - 1:
        return f"{first}-{last}"
    if len(ports) <= PORTS_MAX:
        return ", ".join(map(str, ports))
    return f"{count_text(len(ports))} ports from {first} to {last}"


PORTS_MAX = 4
"""Ports that are shown one by one."""
