"""`pubstorm monitor`: serves the monitors of this host to runs on other hosts."""

from __future__ import annotations

import errno
import re
import signal
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from pubstorm.errors import UsageError
from pubstorm.host.signals import ending_signals
from pubstorm.measure.monitors.remote.server import MonitorServer
from pubstorm.output import warn

TOKEN = re.compile(r"[!-~]{16,4096}")
TOKEN_HINT = "a token has 16 or more characters without blanks: openssl rand -hex 32 > FILE"
FILE = click.Path(path_type=Path)


@click.command()
@click.option("--listen", required=True, metavar="HOST:PORT", help="Address to listen on.")
@click.option("--token-file", type=FILE, metavar="FILE", help="Token that clients must send.")
@click.option("--cert", type=FILE, metavar="FILE", help="Certificate chain of this host (PEM).")
@click.option("--key", type=FILE, metavar="FILE", help="Private key of the certificate (PEM).")
def monitor(listen: str, token_file: Path | None, cert: Path | None, key: Path | None) -> None:
    """Serve the monitors of this host to runs on other hosts, read-only, until interrupted.

    Pages are /host, /process?port=1883 (or pid, or name) and /profile?port=1883&for=20s. The first
    two are in Prometheus' text format. An address that is not loopback needs a token and TLS. A
    scenario reads the pages with monitors.sources.NAME.remote.
    """
    family, address = _address(listen)
    token = None if token_file is None else _token(token_file)
    context = _context(cert, key)
    if not ip_address(address[0].partition("%")[0]).is_loopback:
        missing = {"--token-file": token, "--cert and --key": context}
        options = " and ".join(option for option, value in missing.items() if value is None)
        if options:
            hint = "pubstorm keys ca makes a certificate, openssl rand -hex 32 a token"
            message = f"found --listen {listen} without {options}"
            raise UsageError(f"{message}, allowed for addresses of this machine only", hint)
    server = _listening(listen, address, family, token, context)
    for number in ending_signals():
        signal.signal(number, lambda *_: server.end())
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    url = f"{'http' if context is None else 'https'}://{shown}:{server.server_address[1]}"
    warn(f"serving the monitors of this host at {url}, until interrupted")
    server.serve()


def _address(listen: str) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Returns the family and the address of HOST:PORT."""
    found = re.fullmatch(r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:\s]+)):(?P<port>[0-9]{1,5})", listen)
    if found is None or int(found["port"]) > 65535:
        hint = "for example --listen 127.0.0.1:9700, or [::1]:9700"
        raise UsageError(f"found --listen {listen}, allowed is HOST:PORT", hint)
    host = found["six"] or found["host"]
    try:
        addresses = socket.getaddrinfo(host, int(found["port"]), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"found no address for {host} ({why})", "give an address of this host"
        ) from error
    family, _, _, _, address = addresses[0]
    return family, address


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", TOKEN_HINT) from error
    except UnicodeDecodeError:
        token = ""
    if not TOKEN.fullmatch(token):
        raise UsageError(f"found no token in {path}", TOKEN_HINT)
    return token


def _context(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Returns TLS of the server; None without a certificate."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError("found one of --cert and --key, needed are both")
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


def _listening(
    listen: str,
    address: tuple[Any, ...],
    family: socket.AddressFamily,
    token: str | None,
    context: ssl.SSLContext | None,
) -> MonitorServer:
    try:
        return MonitorServer(address, family, token, context)
    except OSError as error:
        hints = {
            errno.EADDRINUSE: "end the program that listens there, or give another port",
            errno.EADDRNOTAVAIL: "give an address of this host",
            errno.EACCES: "give a port above 1023",
        }
        hint = hints.get(error.errno or 0)
        raise UsageError(f"cannot listen on {listen}: {error.strerror}", hint) from error
