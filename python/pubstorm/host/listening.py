"""Addresses that a server of Pubstorm listens on, with the token and the certificate that an
address other than loopback needs."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from pubstorm.errors import UsageError

LOOPBACK = "127.0.0.1"
BACKLOG = 1024
"""Connections that wait to be accepted."""
STALLED_MS = 60_000
"""Time after which a client that takes no data is dropped."""
KEEP_ALIVE: Mapping[int, int] = {
    socket.TCP_KEEPIDLE: 60,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 6,
}
"""A client without an answer to these probes has ended."""
TOKEN = re.compile(r"[!-~]{16,4096}")
TOKEN_BYTES_MAX = 4100
"""Bytes of a file that are read for a token and the end of its line."""
TOKEN_HINT = "a token has 16 or more characters without blanks: openssl rand -hex 32 > FILE"


@dataclass(frozen=True)
class Options:
    """Names of the options that say where and how a server listens."""

    listen: str
    token: str
    cert: str
    key: str
    makes_token: Literal["always", "outside", "never"]
    """Addresses that get a token if the user gives none: all, those other than loopback, none."""


@dataclass(frozen=True)
class Address:
    """An address of this host."""

    text: str
    """The address as it was written."""
    host: str
    """The name or address before the port, as it was written."""
    family: socket.AddressFamily
    place: tuple[Any, ...]
    """The address as sockets take it."""

    @property
    def is_loopback(self) -> bool:
        """True if only programs of this machine reach it."""
        return ip_address(str(self.place[0]).partition("%")[0]).is_loopback

    def shown(self, port: int) -> str:
        """The address with a port, as a URL has it."""
        return f"{_bracketed(str(self.place[0]))}:{port}"

    @property
    def names(self) -> frozenset[str]:
        """Names under which clients ask for a server. Elsewhere than on loopback any will do, so
        that the set is empty: only clients that were given the token have it."""
        if not self.is_loopback:
            return frozenset()
        own = (str(self.place[0]), self.host, "localhost")
        return frozenset(_bracketed(name).lower() for name in own)


def address_of(text: str, option: str, example: str) -> Address:
    """Returns the address behind [HOST]:PORT. Raises UsageError."""
    found = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\s]*)):(?P<port>[0-9]{1,5})", text)
    if found is None or int(found["port"]) > 65535:
        raise UsageError(f"found {option} {text}, allowed is [HOST]:PORT", example)
    host = found["six"] or found["host"] or LOOPBACK
    try:
        addresses = socket.getaddrinfo(host, int(found["port"]), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"found no address for {host} ({why})", "give an address of this host"
        ) from error
    family, _, _, _, place = addresses[0]
    return Address(text, host, family, place)


def token_in(path: Path) -> str:
    """Returns the token in a file. Raises UsageError."""
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", TOKEN_HINT) from error
    except UnicodeDecodeError:
        token = ""
    if not TOKEN.fullmatch(token):
        raise UsageError(f"found no token in {path}", TOKEN_HINT)
    return token


def tls_of(cert: Path | None, key: Path | None, options: Options) -> ssl.SSLContext | None:
    """Returns TLS of a server; None without a certificate. Raises UsageError."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError(f"found one of {options.cert} and {options.key}, needed are both")
    return server_tls(cert, key)


def server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """Returns TLS of a server with a certificate. Raises UsageError."""
    hint = "pubstorm keys ca DIR --name HOST makes server.crt and server.key"
    for path in (cert, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password of its own, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or "no PEM file without a password"
        text = f"{cert} and {key} are no certificate with its key ({why})"
        raise UsageError(text, hint) from error
    return context


def check_open(address: Address, options: Options, *, has_token: bool, has_tls: bool) -> None:
    """Raises UsageError if an address other than loopback lacks TLS, or a token that is not
    made."""
    if address.is_loopback:
        return
    gets_token = has_token or options.makes_token != "never"
    needed = {options.token: gets_token, f"{options.cert} and {options.key}": has_tls}
    missing = " and ".join(option for option, is_there in needed.items() if not is_there)
    if missing:
        hint = "pubstorm keys ca makes a certificate, openssl rand -hex 32 a token"
        message = f"found {options.listen} {address.text} without {missing}"
        raise UsageError(f"{message}, allowed for addresses of this machine only", hint)


def listener_at(address: Address, stalled_ms: int = STALLED_MS) -> socket.socket:
    """Returns a socket that listens. The kernel ends connections to clients that take no data for
    `stalled_ms`. Raises UsageError if the address cannot be had."""
    listener = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE.items():
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
        listener.bind(address.place)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot_listen(address, error) from error
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _cannot_listen(address: Address, error: OSError) -> UsageError:
    hints = {
        errno.EADDRINUSE: "end the program that listens there, or give another port",
        errno.EADDRNOTAVAIL: "give an address of this host",
        errno.EACCES: "give a port above 1023",
    }
    hint = hints.get(error.errno or 0)
    return UsageError(f"cannot listen on {address.text}: {error.strerror}", hint)
