"""The tables of the brokers that the run started, and of the bridges between them."""

from __future__ import annotations

from collections.abc import Sequence

from pubstorm.quantities import count_text
from pubstorm.report.document import Table, Value, columns
from pubstorm.result import BrokerResult, Result


def brokers(result: Result) -> Table:
    """Returns the brokers by name, if there are several or one of them died or restarted."""
    groups: dict[str, list[BrokerResult]] = {}
    for broker in result.brokers:
        groups.setdefault(broker.group or broker.name, []).append(broker)
    several = len(result.brokers) > 1
    shown = several or any(broker.died or broker.restarts for broker in result.brokers)
    rows = [_broker_cells(name, members) for name, members in groups.items()] if shown else []
    heads = (*columns("word", "brokers", "what", "at"), *columns("count", "restarts", "died"))
    return Table("Brokers of the run", heads, rows)


def bridges(result: Result) -> Table:
    """Returns the bridges by name, and the number that was up when the first stage began."""
    rows = [
        (each.name, f"{each.small} → {each.main}", each.bridges, each.up, each.up_after_s)
        for each in result.bridges
    ]
    counts = columns("count", "count", "up at first")
    return Table(
        "Bridges", (*columns("word", "bridges", "from → to"), *counts, *columns("s", "after")), rows
    )


def addresses_text(addresses: Sequence[tuple[str, int]]) -> str:
    """Returns hosts with their ports, consecutive ports as a range."""
    by_host: dict[str, list[int]] = {}
    for host, port in addresses:
        by_host.setdefault(host, []).append(port)
    return ", ".join(_address_text(host, sorted(ports)) for host, ports in by_host.items())


def _broker_cells(name: str, members: Sequence[BrokerResult]) -> tuple[Value, ...]:
    kinds = dict.fromkeys(f"{each.kind} {each.version}".strip() for each in members)
    many = f"{count_text(len(members))} × " if len(members) > 1 else ""
    return (
        name,
        many + ", ".join(kinds),
        addresses_text([(each.host, each.port) for each in members]),
        sum(each.restarts for each in members),
        sum(each.died for each in members),
    )


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
