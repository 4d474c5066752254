"""Addresses that clients connect to and from, as scenarios write them and as the plan has them. It
resolves no name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from pubstorm.contract.capabilities import (
    CAPABILITIES,
    MQTT,
    Capabilities,
)
from pubstorm.quantities import UnfitError


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

    def __str__(self) -> str:
        host = self.host_in_url
        if self.websocket is not None:
            return f"{'wss' if self.tls else 'ws'}://{host}:{self.port}{self.websocket}"
        scheme = QUIC_SCHEME if self.quic else "mqtts://" if self.tls else ""
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
        return f"{ZMQ_SCHEME}{super().__str__()}"

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
        return f"kafka://{super().__str__()}"

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


def parse_target(text: object) -> Target:
    """The address in `mqtt://HOST[:PORT]`, under TLS `mqtts://HOST[:PORT]`, over WebSocket
    `ws://HOST[:PORT][/PATH]` and `wss://`, over QUIC `quic://HOST[:PORT]`, for a NATS server
    `nats://HOST[:PORT]`, for Kafka `kafka://HOST[:PORT]`, for clients of AMQP
    `amqp://HOST[:PORT][/VHOST]`, or for a publisher of ZeroMQ `zmq://HOST:PORT`."""
    found = _URL.fullmatch(text.strip()) if isinstance(text, str) else None
    scheme = found["scheme"] if found is not None else ""
    if found is None or (not scheme.startswith(WITH_PATH) and found["path"] not in {"", "/"}):
        raise UnfitError(text, f"is {TARGET_ALLOWED}", _target_hint(text))
    if scheme == "zmq" and not found["port"]:
        raise UnfitError(text, "is zmq://HOST:PORT", "publishers of ZeroMQ have no usual port")
    port = int(found["port"] or DEFAULT_PORTS[scheme])
    if not 0 < port <= 65535:
        raise UnfitError(text, "is a port of 1 to 65535")
    host = found["address"] or found["host"]
    if found["address"]:
        _address(found["address"], text)
    if found["zone"]:
        host = _with_zone(found["address"], found["zone"], text)
    if scheme == "zmq":
        return PublisherTarget(host=host, port=port)
    if scheme in {"nats", "natss"}:
        return NatsTarget(host=host, port=port, tls=scheme in UNDER_TLS)
    if scheme == "kafka":
        return KafkaTarget(host=host, port=port)
    if scheme.startswith("amqp"):
        own = _virtual_host(found["path"], text)
        return AmqpTarget(host=host, port=port, tls=scheme in UNDER_TLS, virtual_host=own)
    path = found["path"] if found["path"].startswith("/") else f"/{found['path']}"
    websocket = path if scheme.startswith("ws") else None
    quic = scheme == "quic"
    return Target(host=host, port=port, tls=scheme in UNDER_TLS, websocket=websocket, quic=quic)


def parse_targets(value: object) -> tuple[Target, ...]:
    """The addresses in one URL or a list of them."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise UnfitError(value, f"is {TARGET_ALLOWED}, or a list of them")
        targets = tuple(parse_target(item) for item in value)
        if len({target.can.title for target in targets}) > 1:
            allowed = "are targets of one protocol: zmq://, nats://, kafka://, amqp://, or MQTT"
            raise UnfitError(value, allowed)
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
    known = _SCHEMES.get(scheme)
    if known is None:
        return (
            "this version speaks MQTT (mqtt://, under TLS mqtts://), MQTT over WebSocket (ws://, "
            "under TLS wss://), MQTT over QUIC (quic://), NATS (nats://, under TLS natss://), "
            "Kafka (kafka://), AMQP 0-9-1 (amqp://, under TLS amqps://) and ZeroMQ (zmq://)"
        )
    if "@" in rest:
        return "write username and password as keys: of the population, or of the source"
    if scheme != known:
        return f"write {known}://{rest}"
    if scheme.startswith("ws"):
        return "a path has no spaces and no #: write %20 and %23"
    return "only ws://, wss:// and amqp:// have a path" if "/" in rest.rstrip("/") else None


DEFAULT_PORT = 1883
DEFAULT_TLS_PORT = 8883
NATS_PORT = 4222
KAFKA_PORT = 9092
QUIC_PORT = 14567
"""Port of EMQX; MQTT over QUIC has no registered one."""
QUIC_SCHEME = "quic://"
DEFAULT_PORTS = {
    **{"mqtt": DEFAULT_PORT, "mqtts": DEFAULT_TLS_PORT, "ws": 80, "wss": 443},
    "quic": QUIC_PORT,
    **{"nats": NATS_PORT, "natss": NATS_PORT, "kafka": KAFKA_PORT},
    **{"amqp": 5672, "amqps": 5671},
}
UNDER_TLS = frozenset({"mqtts", "wss", "quic", "natss", "amqps"})
WITH_PATH = ("ws", "amqp")
"""Beginnings of schemes whose addresses have a path."""
ZMQ_SCHEME = "zmq://"
NATS_SCHEMES = ("nats://", "natss://")
KAFKA_SCHEME = "kafka://"
AMQP_SCHEMES = ("amqp://", "amqps://")
TARGET_ALLOWED = (
    "mqtt[s]://HOST[:PORT], ws[s]://HOST[:PORT][/PATH], quic://HOST[:PORT], "
    "nats[s]://HOST[:PORT], kafka://HOST[:PORT], amqp[s]://HOST[:PORT][/VHOST] or zmq://HOST:PORT"
)
SOURCES_MAX = 4096
SOURCES_ALLOWED = 'is "auto", or addresses and ranges such as 127.0.0.1-127.0.0.8'

_SCHEMES = {
    **{scheme: scheme for scheme in ("mqtt", "mqtts", "ws", "wss", "quic", "zmq", "nats", "natss")},
    "kafka": "kafka",
    **{scheme: scheme for scheme in ("amqp", "amqps")},
    **{"ssl": "mqtts", "tls": "mqtts", "http": "ws", "https": "wss"},
}
_URL = re.compile(
    r"(?P<scheme>mqtts?|wss?|quic|zmq|natss?|kafka|amqps?)://(?:\[(?P<address>[0-9A-Fa-f:.]+)"
    r"(?:%25(?P<zone>[A-Za-z0-9._~-]{1,15}))?\]"
    r"|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?))(?::(?P<port>\d{1,6}))?"
    r"(?P<path>(?:[/?][!-\"$-~]*)?)",
    re.ASCII,
)
