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
    SomeText,
    Text,
    client_text,
)

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
    """TLS of clients at targets whose scheme asks for it, such as `mqtts://`. Relative paths are
    from the folder of the scenario file."""

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
