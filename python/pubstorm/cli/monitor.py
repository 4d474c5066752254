"""`pubstorm monitor`: serves the monitors of this host to runs on other hosts."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from pubstorm.host.listening import (
    Options,
    address_of,
    cannot_listen,
    check_open,
    tls_of,
    token_in,
)
from pubstorm.host.signals import ending_signals
from pubstorm.measure.monitors.remote.server import MonitorServer
from pubstorm.output import warn

FILE = click.Path(path_type=Path)
OPTIONS = Options("--listen", "--token-file", "--cert", "--key")


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
    address = address_of(listen, "--listen", "for example --listen 127.0.0.1:9700, or [::1]:9700")
    token = None if token_file is None else token_in(token_file)
    context = tls_of(cert, key, OPTIONS)
    check_open(address, OPTIONS, has_token=token is not None, has_tls=context is not None)
    try:
        server = MonitorServer(address.place, address.family, token, context)
    except OSError as error:
        raise cannot_listen(address, error) from error
    for number in ending_signals():
        signal.signal(number, lambda *_: server.end())
    url = f"{'http' if context is None else 'https'}://{address.shown(server.server_address[1])}"
    warn(f"serving the monitors of this host at {url}, until interrupted")
    server.serve()
