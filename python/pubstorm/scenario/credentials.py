"""The proofs of a population: TLS with its authorities, certificates or keys, enhanced
authentication of MQTT 5, and headers of the request with which clients open a WebSocket. The
docstrings are the reference that users read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from pubstorm.quantities import UnfitError
from pubstorm.scenario.base import Part
from pubstorm.scenario.document import Finding
from pubstorm.scenario.fields import (
    TEMPLATE,
    ClientData,
    ClientPath,
    ClientText,
    Flag,
    PathText,
    Share,
    SomeText,
    Text,
    client_text,
    some_text,
)

VersionWord = Literal["1.2", "1.3"]
CERTIFICATE_KEYS = (
    *("certificate", "key", "ca", "verify", "server_name"),
    *("passphrase", "reread", "resume"),
)
"""Keys about certificates and sessions, which have no meaning with pre-shared keys."""
Suite = Literal[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
]
"""Cipher suites of TLS 1.3 [RFC 8446, B.4]."""
Group = Literal["X25519", "X448", "P-256", "P-384", "P-521"]
"""Groups of the key exchange, in OpenSSL's words."""
PROTOCOL_BYTES_MAX = 255
"""Longest name of a protocol [RFC 7301, 3.1]."""


def protocol_name(value: object) -> str:
    """A name of a protocol for ALPN."""
    source = some_text(value)
    if len(source.encode()) > PROTOCOL_BYTES_MAX:
        raise UnfitError(value, f"are names of 1 to {PROTOCOL_BYTES_MAX} bytes, such as mqtt")
    return source


AlpnName = Annotated[
    str,
    BeforeValidator(protocol_name),
    WithJsonSchema({"title": "name of a protocol", "type": "string", "examples": ["mqtt"]}),
]


class Psk(Part):
    """Pre-shared keys: one identity for each client."""

    file: PathText
    """File of lines `identity:key`, the key in hexadecimal; `pubstorm keys` makes one."""
    identity: ClientText | None = None
    """A client's identity. Default: its client identifier."""


class Tls(Part):
    """TLS of clients at targets whose scheme asks for it, such as `mqtts://`. Relative paths are
    from the folder of the scenario file."""

    ca: PathText | None = None
    """File of the authorities (PEM) that vouch for the broker. Default: those of the system."""
    verify: Flag = True
    """Clients verify the broker's certificate and name."""
    server_name: ClientText | None = None
    """Name that a client asks for (SNI), and that the broker's certificate must have. Default: the
    target's host."""
    certificate: ClientPath | None = None
    """A client's certificate chain (PEM), for example
    keys/clients/device-{n}.crt."""
    key: ClientPath | None = None
    """A client's private key (PEM)."""
    passphrase: ClientData | None = None
    """Passphrase of an encrypted `key`; `${env:NAME}` or `${file:PATH}` keep it out of the
    scenario."""
    reread: Flag = False
    """A client that connects again reads `certificate` and `key` again if the files have changed.
    A new pair that cannot be used leaves the old pair in use."""
    psk: Psk | None = None
    """Pre-shared keys instead of certificates."""
    min_version: VersionWord = "1.2"
    """Lowest version of TLS."""
    max_version: VersionWord = "1.3"
    """Highest version of TLS."""
    ciphers: Text | None = None
    """Cipher list of TLS 1.2, in OpenSSL's words. Default: OpenSSL's own; with pre-shared keys, all
    of theirs that exchange no Diffie-Hellman key in a finite field, which is slow."""
    suites: tuple[Suite, ...] = ()
    """Cipher suites of TLS 1.3, in order of preference. Default: OpenSSL's own."""
    groups: tuple[Group, ...] = ()
    """Groups of the key exchange, in order of preference. Default: X25519, P-256, P-384, P-521."""
    alpn: tuple[AlpnName, ...] = ()
    """Protocols that clients offer by ALPN, in order of preference, such as `mqtt`. Default: no
    ALPN."""
    resume: Share = 0.0
    """Share of the connections that offer the session of the client's last connection, such as
    50%. A client's first connection has no session to offer. Default: clients keep no session."""
    early_data: Flag = False
    """Clients that offer a session over QUIC send CONNECT with the offer, in 0-RTT. Needs `resume`,
    and targets over QUIC only."""
    key_log: PathText | None = None
    """File to which agents append the keys of all connections, for Wireshark. The file decrypts the
    traffic of the run. Default: none."""

    def rules(self) -> Iterator[Finding]:
        """Yields versions in the wrong order, and keys and certificates that are incomplete or of
        two kinds."""
        if self.min_version > self.max_version:
            message = f"found {self.min_version}, allowed is at most max_version: "
            yield ("min_version",), f"{message}{self.max_version}", None
        for one, other in (("certificate", "key"), ("key", "certificate")):
            if getattr(self, one) is not None and getattr(self, other) is None:
                yield (one,), f"found {one} without {other}, needed are both or neither", None
        for option in ("passphrase", "reread"):
            if getattr(self, option) and self.key is None and self.psk is None:
                message = f"found {option} without key, needed are certificate and key"
                yield (option,), message, f"{option} is about the clients' own keys"
        if self.early_data and not self.resume:
            message = "found early_data without resume, needed is a share of resumed sessions"
            yield ("early_data",), message, "write resume: 100% too: the session has its keys"
        if self.suites and self.max_version == "1.2":
            message = "found suites and max_version 1.2, allowed are suites with TLS 1.3"
            yield ("suites",), message, "write ciphers for TLS 1.2"
        for key in CERTIFICATE_KEYS if self.psk is not None else ():
            if key in self.model_fields_set:
                hint = HINTS_WITH_PSK.get(key, "with pre-shared keys no side shows a certificate")
                yield (key,), f"found {key} and psk, allowed is one of them", hint


HINTS_WITH_PSK = {"resume": "a handshake with a pre-shared key is as short as a resumed one"}


class Authentication(Part):
    """Enhanced authentication of MQTT 5."""

    method: SomeText
    """Name of the method. `SCRAM-SHA-256` uses `username` and `password` of the population, which
    are then not sent. Other methods need `data`."""
    data: ClientData | None = None
    """Data in CONNECT, sent once; `${env:NAME}` or `${file:PATH}` keep it out of the scenario. A
    client does not answer AUTH of such a method."""


OWN = frozenset({"upgrade", "connection", "content-length", "transfer-encoding"})
"""Headers that the clients write themselves, or that a request without a body must not have."""
OWN_PREFIX = "sec-websocket-"

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def header_name(value: object) -> str:
    """A name of HTTP (RFC 9110, 5.6.2) that the clients do not write themselves."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise UnfitError(value, "are names of headers such as Authorization")
    if value.lower() in OWN or value.lower().startswith(OWN_PREFIX):
        raise UnfitError(value, "are headers that the clients do not write themselves")
    return value


def header_value(value: object) -> str:
    """A template on one line."""
    source = client_text(value)
    if _CONTROL.search(source) is not None:
        raise UnfitError(value, "is a text on one line, without control characters")
    return source


Headers = Mapping[
    Annotated[
        str,
        BeforeValidator(header_name),
        WithJsonSchema({"title": "header name", "type": "string"}),
    ],
    Annotated[
        str,
        BeforeValidator(header_value),
        WithJsonSchema({"title": "template", "type": "string"}),
        TEMPLATE,
    ],
]
