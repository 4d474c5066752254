"""Checks certificates and private keys of others: readable, in force, and fitting each other.
KeysError names the problem."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from pubstorm.errors import KeysError
from pubstorm.host.keys.files import read_file

DATE = "%Y-%m-%d %H:%M UTC"


def check_authorities(path: str | Path) -> None:
    """At least one authority of the file must be in force."""
    certificates = _certificates(path)
    now = datetime.now(UTC)
    if all(certificate.not_valid_after_utc < now for certificate in certificates):
        _require_in_force(path, certificates)


def check_credential(certificate: str | Path, key: str | Path) -> None:
    """A chain must be in force, and the key must be that of its first certificate."""
    chain = _certificates(certificate)
    _require_in_force(certificate, chain[:1])
    if _public_bytes(chain[0].public_key()) != _key_of(key):
        hint = "certificate and key come in pairs: look whether one of them was made anew"
        raise KeysError(f"found the key {key}, which is not that of {certificate}", hint)


def check_issued(certificate: str | Path, authorities: str | Path) -> None:
    """One of the authorities must vouch for a chain."""
    chain, known = _certificates(certificate), _certificates(authorities)
    if not any(_vouches(authority, each) for authority in known for each in chain):
        hint = "both must come from the same authority"
        raise KeysError(f"found {certificate}, for which {authorities} does not vouch", hint)


def _vouches(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(path: str | Path) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(read_file(path))
    except ValueError:
        hint = "PEM begins with -----BEGIN CERTIFICATE-----"
        raise KeysError(f"found no certificate in PEM form in {path}", hint) from None


def _require_in_force(path: str | Path, certificates: Sequence[x509.Certificate]) -> None:
    now = datetime.now(UTC)
    for certificate in certificates:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if end < now:
            raise KeysError(f"found {path}, which expired on {end:{DATE}}", "make it anew")
        if begin > now:
            hint = "look at the clock of this machine"
            raise KeysError(f"found {path}, which is not valid before {begin:{DATE}}", hint)


def _key_of(path: str | Path) -> bytes:
    content = read_file(path)
    try:
        return _public_bytes(load_pem_private_key(content, password=None).public_key())
    except TypeError:
        hint = "take the passphrase off: openssl pkey -in KEY -out PLAIN_KEY"
        raise KeysError(f"found the key {path} under a passphrase", hint) from None
    except (ValueError, UnsupportedAlgorithm):
        hint = "PEM begins with -----BEGIN PRIVATE KEY-----"
        raise KeysError(f"found no private key in PEM form in {path}", hint) from None


def _public_bytes(key: object) -> bytes:
    encoded = getattr(key, "public_bytes", None)
    if encoded is None:
        raise UnsupportedAlgorithm("a key without a public form")
    found: bytes = encoded(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found
