"""TLS of a population: trusted authorities, and certificates or keys. The docstrings are the
reference that users read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import ClientPath, ClientText, Flag, PathText, Text

VersionWord = Literal["1.2", "1.3"]
CERTIFICATE_KEYS = ("certificate", "key", "ca", "verify", "server_name")
"""Keys about certificates, which have no meaning with pre-shared keys."""


class Psk(Part):
    """Pre-shared keys: one identity for each client."""

    file: PathText
    """File of lines `identity:key`, the key in hexadecimal; `pubstorm keys` makes one."""
    identity: ClientText | None = None
    """A client's identity. Default: its client identifier."""


class Tls(Part):
    """TLS of clients at targets with `mqtts://`, `wss://` and `natss://`. Relative paths are from
    the folder of the scenario file."""

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

    def rules(self) -> Iterator[Finding]:
        """Yields versions in the wrong order, and keys and certificates that are incomplete or of
        two kinds."""
        if self.min_version > self.max_version:
            message = f"found {self.min_version}, allowed is at most max_version: "
            yield ("min_version",), f"{message}{self.max_version}", None
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if getattr(self, one) is not None and getattr(self, other) is None:
                yield (one,), f"found {one} without {other}, needed are both or neither", None
        for key in CERTIFICATE_KEYS if self.psk is not None else ():
            if key in self.model_fields_set:
                hint = "with pre-shared keys no side shows a certificate"
                yield (key,), f"found {key} and psk, allowed is one of them", hint
