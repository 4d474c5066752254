"""TLS of a population: trusted authorities, and certificates or keys. The docstrings are the
reference that users read.
"""

from __future__ import annotations

from typing import Literal

from pubstorm.scenario.base import Part
from pubstorm.scenario.fields import ClientPath, ClientText, Flag, PathText, Text

VersionWord = Literal["1.2", "1.3"]


class Psk(Part):
    """Pre-shared keys: one identity for each client."""

    file: PathText
    """File of lines `identity:key`, the key in hexadecimal; `pubstorm keys` makes one."""
    identity: ClientText | None = None
    """A client's identity. Default: its client identifier."""


class Tls(Part):
    """TLS of clients at targets with `mqtts://` and `wss://`. Relative paths are from the folder of
    the scenario file."""

    ca: PathText | None = None
    """File of the authorities (PEM) that vouch for the broker. Default: those of the system."""
    verify: Flag = True
    """Clients verify the broker's certificate and name."""
    server_name: Text | None = None
    """Name that the broker's certificate must have. Default: the target's host."""
    certificate: ClientPath | None = None
    """A client's certificate chain (PEM), for example
    keys/clients/device-{n}.crt."""
    key: ClientPath | None = None
    """A client's private key (PEM)."""
    psk: Psk | None = None
    """Pre-shared keys instead of certificates."""
    min_version: VersionWord = "1.2"
    """Lowest version of TLS."""
    max_version: VersionWord = "1.3"
    """Highest version of TLS."""
    ciphers: Text | None = None
    """Cipher list of TLS 1.2, in OpenSSL's words. Default: OpenSSL's own; with pre-shared keys, all
    of theirs that exchange no Diffie-Hellman key in a finite field, which is slow."""
