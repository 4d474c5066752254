"""An authority of one's own, and the certificates it gives to broker, clients and nodes of a
cluster: X.509 over the curve P-256. It writes no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pubstorm.errors import KeysError

SUBJECT_MAX = 64
"""Characters of a common name [RFC 5280, A.1]."""
CLOCKS_DIFFER = timedelta(hours=1)
"""Time by which the validity of a new certificate begins in the past."""


@dataclass(frozen=True, slots=True)
class CertificateDates:
    """From when to when a certificate counts."""

    begin: datetime
    end: datetime

    @classmethod
    def of_days(cls, days: int) -> CertificateDates:
        """From now on, for so many days."""
        now = datetime.now(UTC)
        return cls(now - CLOCKS_DIFFER, now + timedelta(days=days))


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Vouches for broker, clients and nodes."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._name = certificate.subject
        self._end = certificate.not_valid_after_utc
        self._authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        self.credential = _credential(certificate, key)

    @classmethod
    def new(cls, name: str, validity: CertificateDates) -> Authority:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        certificate = (
            _builder(subject, key.public_key(), validity)
            .issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def stored(cls, credential: Credential) -> Authority:
        """One that was made earlier and looked at by `check_credential`."""
        key = load_pem_private_key(credential.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise KeysError("found an authority's key of another kind than Pubstorm makes")
        return cls(x509.load_pem_x509_certificate(credential.certificate), key)

    def server(self, names: Sequence[str], validity: CertificateDates) -> Credential:
        """The certificate of a broker with these names and addresses."""
        return self._issue(names[0], [ExtendedKeyUsageOID.SERVER_AUTH], validity, names)

    def client(self, name: str, validity: CertificateDates) -> Credential:
        """The certificate of a client with this common name."""
        return self._issue(name, [ExtendedKeyUsageOID.CLIENT_AUTH], validity)

    def node(self, names: Sequence[str], validity: CertificateDates) -> Credential:
        """The certificate of a node with these names and addresses, which calls and is called."""
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(names[0], purposes, validity, names)

    def _issue(
        self,
        name: str,
        purposes: Iterable[x509.ObjectIdentifier],
        validity: CertificateDates,
        names: Sequence[str] = (),
    ) -> Credential:
        """Returns a certificate for a common name, and for the names and addresses of a server. It
        does not outlive the authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        validity = CertificateDates(validity.begin, min(validity.end, self._end))
        builder = (
            _builder(_named(name[:SUBJECT_MAX] if names else name), key.public_key(), validity)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(self._authority_key, critical=False)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        return _credential(builder.sign(self._key, SHA256()), key)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePublicKey, validity: CertificateDates
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.begin)
        .not_valid_after(validity.end)
    )


def _named(name: str) -> x509.Name:
    if not 0 < len(name) <= SUBJECT_MAX:
        raise KeysError(
            f"found the name {name[:80]!r} of {len(name)} characters for a certificate, allowed "
            f"are 1 to {SUBJECT_MAX}"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        hint = "write a name in ASCII or an address"
        raise KeysError(f"found {name!r}, which no broker or node can be called", hint) from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _credential(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Credential:
    return Credential(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
