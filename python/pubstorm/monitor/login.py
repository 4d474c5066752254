"""Who an observer is: its login, its TLS, and a client that has both. It connects to nothing."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubstorm.monitor import MonitorError
from pubstorm.plan import Tls
from pubstorm.template import Template

if TYPE_CHECKING:
    from paho.mqtt.client import Client


@dataclass(frozen=True)
class Login:
    """Who an observer is, and whom it trusts."""

    username: str | None = None
    password: str | None = None
    tls: Tls | None = None
    """None where the target is not under TLS."""
    number: int = 0
    """Number of the client whose certificate it shows."""


ANONYMOUS = Login()


def new_client(login: Login, connect_timeout_s: float) -> Client:
    """A client with this login, which does not connect again by itself; MonitorError where its TLS
    files cannot be used."""
    # 4 MB that a run without an observer does not need.
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
    client.connect_timeout = connect_timeout_s
    if login.username is not None:
        client.username_pw_set(login.username, login.password)
    if login.tls is not None:
        client.tls_set_context(tls_context(login.tls, login.number))
    return client


def tls_context(tls: Tls, client_number: int) -> ssl.SSLContext:
    """How an observer connects under TLS: as the clients do; MonitorError where it cannot."""
    if tls.psk is not None:
        text = "an observer cannot use pre-shared keys, which Python's ssl module does not offer"
        raise MonitorError(f"{text}: name a listener without TLS under monitors.sources")
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = tls.server_name
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
        else:
            context.load_default_certs()
        if tls.ciphers is not None:
            context.set_ciphers(tls.ciphers)
        if tls.certificate is not None:
            context.load_cert_chain(*_files(tls, client_number))
    except (OSError, ssl.SSLError) as error:
        raise MonitorError(f"the observer's TLS files cannot be used: {error}") from error
    return context


class _NamedContext(ssl.SSLContext):
    """A context that expects a certificate of a given name."""

    server_name: str | None = None

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Wraps a socket as usual, with the given name instead of the host."""
        if self.server_name is not None:
            options["server_hostname"] = self.server_name
        return super().wrap_socket(*args, **options)


def _files(tls: Tls, client_number: int) -> tuple[str, str | None]:
    certificate, key = (
        None if template is None else Template.parse(template).text(client_number)
        for template in (tls.certificate, tls.key)
    )
    assert certificate is not None, "it is asked for where there is one"
    return certificate, key


_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
