"""Header of the PROXY protocol on connections of observers: it states the addresses that the
connection really has. Clients state invented ones (`crates/engine/src/transport/proxy_header.rs`).
The clauses are those of https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from paho.mqtt.client import Client

ProxyVersion = Literal["v1", "v2"]
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""First bytes of version 2 [2.2]."""
VERSION_AND_COMMAND, TCP4, TCP6 = 0x21, 0x11, 0x21
"""Version 2 with the command PROXY, and TCP over IPv4 and over IPv6 [2.2]."""


def proxy_header(version: ProxyVersion, connection: socket.socket) -> bytes:
    """Returns the header for a connection over IPv4 or IPv6."""
    (source, source_port), (target, target_port) = (
        (_address(name[0]), int(name[1]))
        for name in (connection.getsockname(), connection.getpeername())
    )
    if version == "v1":
        words = f"PROXY TCP{source.version} {source} {target} {source_port} {target_port}\r\n"
        return words.encode()
    family = TCP4 if source.version == 4 else TCP6
    addresses = source.packed + target.packed + struct.pack("!HH", source_port, target_port)
    head = struct.pack("!BBH", VERSION_AND_COMMAND, family, len(addresses))
    return SIGNATURE + head + addresses


def announcing(base: type[Client], version: ProxyVersion) -> type[Client]:
    """Returns clients of paho whose connections begin with a header, before TLS and WebSocket."""

    class Announcing(base):  # type: ignore[misc, valid-type]
        def _create_socket_connection(self) -> socket.socket:
            connection: socket.socket = super()._create_socket_connection()
            try:
                connection.sendall(proxy_header(version, connection))
            except OSError:
                connection.close()
                raise
            return connection

    return Announcing


def _address(text: str) -> IPv4Address | IPv6Address:
    """Returns an address without its zone, which means nothing to another host."""
    return ip_address(text.partition("%")[0])
