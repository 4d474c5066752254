"""Addresses that clients connect to and from, as scenarios write them and as the plan has them. It
resolves no name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from pubstorm.contract import TARGET_BROKER, Source
from pubstorm.contract.capabilities import (
    BY_NAME,
    CAPABILITIES,
    MQTT,
    QUIC,
    SCHEMES,
    UNDER_TLS,
    Capabilities,
    forms,
)
from pubstorm.quantities import UnfitError

TARGET = "target"
"""Name of the targets of a scenario that gives them none."""


class Target(BaseModel):
    """One broker address."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    host: str
    """Host name or address."""
    port: int = Field(ge=0, le=65535)
    """TCP port; with QUIC, the port of UDP."""
    tls: bool = False
    """True if connections to it are under TLS, by each population's `tls`."""
    websocket: str | None = None
    """Path of the WebSocket, with a query if there is one; null: MQTT over TCP."""
    quic: bool = False
    """True if connections use QUIC. Its TLS has the settings of each population's `tls`."""
    ports: Mapping[str, Annotated[int, Field(ge=0, le=65535)]] = Field(default_factory=dict)
    """Ports of the same broker for clients of other protocols, by the kind of the protocol."""
    addresses: tuple[str, ...] = ()
    """Addresses of the host; empty: each agent resolves it at its start."""
    name: str = Field(default=TARGET, exclude=True)
    """Name by which a scenario calls it, alone or with others."""

    def __str__(self) -> str:
        host = self.host_in_url
        if self.websocket is not None:
            return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{self.websocket}"
        scheme = f"{QUIC}://" if self.quic else "mqtts://" if self.tls else ""
        return f"{scheme}{host}:{self.port}"

    @property
    def host_in_url(self) -> str:
        """The host as a URL has it: an address of IPv6 in brackets, with %25 before its zone
        [RFC 6874, 2]."""
        return f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host

    @property
    def reachable_at(self) -> str:
        """The address that clients of the controller connect to: the first one that is given, else
        the host."""
        return self.addresses[0] if self.addresses else self.host

    @property
    def can(self) -> Capabilities:
        """Abilities of the protocol that clients speak here; of MQTT, those of all its versions."""
        return MQTT

    @property
    def speaks_mqtt(self) -> bool:
        """True if it is the address of a listener for MQTT."""
        return self.can is MQTT

    @property
    def is_loopback(self) -> bool:
        """True if it is surely on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def ip_version(self) -> int | None:
        """4 or 6; None if the host is a name."""
        try:
            return ip_address(self.host).version
        except ValueError:
            return None


class PublisherTarget(Target):
    """The address of a ZeroMQ publisher that already runs."""

    def __str__(self) -> str:
        return f"{self.can.scheme}{super().__str__()}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["zmtp-3.1"]


class NatsTarget(Target):
    """The address of a NATS server that already runs, for clients of its own protocol."""

    def __str__(self) -> str:
        return f"{'natss' if self.tls else 'nats'}://{self.host_in_url}:{self.port}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["nats"]


class KafkaTarget(Target):
    """The address of a Kafka broker that already runs."""

    def __str__(self) -> str:
        return f"{self.can.scheme}{super().__str__()}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["kafka"]


class AmqpTarget(Target):
    """The address of a broker that already runs, for clients of AMQP."""

    virtual_host: str = Field(exclude=True)
    """Virtual host of populations without one."""

    def __str__(self) -> str:
        host = "" if self.virtual_host == "/" else f"/{quote(self.virtual_host, safe='')}"
        return f"{'amqps' if self.tls else 'amqp'}://{self.host_in_url}:{self.port}{host}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["amqp"]


class Amqp1Target(Target):
    """The address of a broker that already runs, for receivers of AMQP 1.0."""

    def __str__(self) -> str:
        return f"{'amqp1s' if self.tls else 'amqp1'}://{self.host_in_url}:{self.port}"

    @property
    def can(self) -> Capabilities:
        """Abilities of its protocol."""
        return CAPABILITIES["amqp1"]


def sources_of(targets: Iterable[Target]) -> tuple[Source, ...]:
    """Returns targets as monitors call them: by name and number, without a name `broker-0` and so
    on."""
    numbers, found = Counter[str](), list[Source]()
    for target in targets:
        group = TARGET_BROKER if target.name == TARGET else target.name
        found.append(Source.member("broker", group, numbers[group]))
        numbers[group] += 1
    return tuple(found)


def parse_target(text: object) -> Target:
    """Returns the target of an address in one of the `forms`. Raises UnfitError."""
    found = _URL.fullmatch(text.strip()) if isinstance(text, str) else None
    written = found["scheme"] if found is not None else ""
    scheme = BY_NAME.get(written)
    if found is None or scheme is None or (scheme.path is None and found["path"] not in {"", "/"}):
        raise UnfitError(text, f"is {forms()}", _target_hint(text))
    usual = scheme.port if written == scheme.name else scheme.tls_port
    if usual is None and not found["port"]:
        raise UnfitError(text, f"is {scheme.form}", f"{scheme.title} has no usual port")
    port = int(found["port"] or usual or 0)
    if not 0 < port <= 65535:
        raise UnfitError(text, "is a port of 1 to 65535")
    host = found["address"] or found["host"]
    if found["address"]:
        _address(found["address"], text)
    if found["zone"]:
        host = _with_zone(found["address"], found["zone"], text)
    tls = written in UNDER_TLS
    match scheme.name:
        case "zmq":
            return PublisherTarget(host=host, port=port)
        case "nats":
            return NatsTarget(host=host, port=port, tls=tls)
        case "kafka":
            return KafkaTarget(host=host, port=port)
        case "amqp":
            own = _virtual_host(found["path"], text)
            return AmqpTarget(host=host, port=port, tls=tls, virtual_host=own)
        case "amqp1":
            return Amqp1Target(host=host, port=port, tls=tls)
        case "ws":
            path = found["path"] if found["path"].startswith("/") else f"/{found['path']}"
            return Target(host=host, port=port, tls=tls, websocket=path)
        case _:
            return Target(host=host, port=port, tls=tls, quic=scheme.name == QUIC)


def parse_targets(value: object, name: str = TARGET) -> tuple[Target, ...]:
    """The addresses in one URL or a list of them, called by a name."""
    return tuple(target.model_copy(update={"name": name}) for target in _addresses_in(value))


def _addresses_in(value: object) -> tuple[Target, ...]:
    if isinstance(value, (list, tuple)):
        if not value:
            raise UnfitError(value, f"is {forms()}, or a list of them")
        targets = tuple(parse_target(item) for item in value)
        if len({target.can.title for target in targets}) > 1:
            titles = dict.fromkeys(scheme.can.title for scheme in SCHEMES)
            hint = "give targets of other protocols a name: target: {mqtt: ADDRESS, log: ADDRESS}"
            raise UnfitError(value, f"are targets of one protocol: {', '.join(titles)}", hint)
        if len({getattr(target, "virtual_host", "") for target in targets}) > 1:
            hint = 'write virtual_host: "vh-{n}" in a population'
            raise UnfitError(value, "are targets with one virtual host", hint)
        return targets
    return (parse_target(value),)


def parse_sources(value: object) -> tuple[str, ...] | None:
    """Source addresses in addresses and ranges; `auto` is `None`, and so is nothing at all."""
    if value is None or value == "auto":
        return None
    items = value if isinstance(value, (list, tuple)) else [value]
    addresses: list[str] = []
    for item in items:
        addresses.extend(_addresses(item))
    if len(addresses) > SOURCES_MAX:
        raise UnfitError(value, f"are at most {SOURCES_MAX} source addresses")
    return tuple(addresses)


def _addresses(item: object) -> list[str]:
    if not isinstance(item, str):
        raise UnfitError(item, SOURCES_ALLOWED)
    low, dash, high = item.partition("-")
    first = _address(low.strip(), item)
    if not dash:
        return [str(first)]
    last = _address(high.strip(), item)
    if not (isinstance(first, IPv4Address) and isinstance(last, IPv4Address)) or first > last:
        raise UnfitError(item, "is a range of IPv4 addresses, lowest first")
    if int(last) - int(first) >= SOURCES_MAX:
        raise UnfitError(item, f"is a range of at most {SOURCES_MAX} addresses")
    return [str(IPv4Address(number)) for number in range(int(first), int(last) + 1)]


def _address(text: str, shown: object) -> IPv4Address | IPv6Address:
    if "%" in text:
        raise UnfitError(shown, SOURCES_ALLOWED, "leave the zone out: sources have none")
    try:
        return ip_address(text)
    except ValueError:
        raise UnfitError(shown, SOURCES_ALLOWED) from None


def _with_zone(address: str, zone: str, shown: object) -> str:
    """Returns an address with its zone [RFC 6874, 2]. Raises UnfitError if it can have none."""
    if not ip_address(address).is_link_local:
        hint = "a zone chooses the interface of a link-local address: leave %25ZONE out"
        raise UnfitError(shown, "with a zone is an address of fe80::/10", hint)
    return f"{address}%{zone}"


def _virtual_host(path: str, shown: object) -> str:
    """Returns the virtual host in the path of an address. Raises UnfitError if it is none."""
    found = unquote(path.removeprefix("/"))
    if found not in {"", "/"} and set(found) & {"/", "?", "{", "}"}:
        raise UnfitError(shown, "is a virtual host without slashes after the port, or %2F")
    return found or "/"


def _target_hint(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    scheme, separator, rest = text.partition("://")
    if not separator:
        return f"write mqtt://{text}" if _URL.fullmatch(f"mqtt://{text}") else None
    if rest.count(":") > 1 and "[" not in rest:
        return f"write an address of IPv6 in brackets: {scheme}://[::1]:1883"
    if "%" in rest.partition("]")[0]:
        return f"write a zone after %25: {scheme}://[fe80::1%25eth0]:1883"
    if scheme == "tcp":
        return f"write mqtt://{rest} for a broker, zmq://{rest} for a publisher of ZeroMQ"
    known = _MEANT.get(scheme)
    if known is None:
        *first, last = (each.in_words for each in SCHEMES)
        return f"this version speaks {', '.join(first)} and {last}"
    if "@" in rest:
        return "write username and password as keys: of the population, or of the source"
    if scheme != known:
        return f"write {known}://{rest}"
    if scheme.startswith("ws"):
        return "a path has no spaces and no #: write %20 and %23"
    with_path = ", ".join(f"{name}://" for name, each in BY_NAME.items() if each.path is not None)
    return f"only {with_path} have a path" if "/" in rest.rstrip("/") else None


SOURCES_MAX = 4096
SOURCES_ALLOWED = 'is "auto", or addresses and ranges such as 127.0.0.1-127.0.0.8'

_MEANT = {
    **{name: name for name in BY_NAME},
    **{"ssl": "mqtts", "tls": "mqtts", "http": "ws", "https": "wss"},
}
"""The schemes, and those of other programs with the one that is meant."""
_URL = re.compile(
    rf"(?P<scheme>{'|'.join(BY_NAME)})://(?:\[(?P<address>[0-9A-Fa-f:.]+)"
    r"(?:%25(?P<zone>[A-Za-z0-9._~-]{1,15}))?\]"
    r"|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))(?::(?P<port>\d{1,6}))?"
    r"(?P<path>(?:[/?][!-\"$-~]*)?)",
    re.ASCII,
)
