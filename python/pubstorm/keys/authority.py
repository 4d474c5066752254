"""An authority of one's own, and the certificates it gives to broker and clients: X.509 over the
curve P-256. It writes no file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pubstorm.errors import KeysError

SUBJECT_MAX = 64
"""Characters of a common name [RFC 5280, A.1]."""
CLOCKS_DIFFER = timedelta(hours=1)
"""How far a new certificate begins in the past."""


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate counts."""

    begin: datetime
    end: datetime

    @classmethod
    def of_days(cls, days: int) -> Validity:
        """From now on, for so many days."""
        now = datetime.now(UTC)
        return cls(now - CLOCKS_DIFFER, now + timedelta(days=days))


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Vouches for broker and clients."""

    def __init__(self, name: str, validity: Validity) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        certificate = (
            _builder(self._name, self._key.public_key(), validity)
            .issuer_name(self._name)
            .add_extension(basic, critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(_identifier(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )
        self._authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._key.public_key()
        )
        self.credential = _credential(certificate, self._key)

    def server(self, names: Sequence[str], validity: Validity) -> Credential:
        """The certificate of a broker with these names and addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
        return self._issue(names[0][:SUBJECT_MAX], purpose, validity, [alternatives])

    def client(self, name: str, validity: Validity) -> Credential:
        """The certificate of a client with this common name."""
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, validity, [])

    def _issue(
        self,
        name: str,
        purpose: x509.ObjectIdentifier,
        validity: Validity,
        extensions: Iterable[x509.ExtensionType],
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_named(name), key.public_key(), validity)
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(self._authority_key, critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return _credential(builder.sign(self._key, SHA256()), key)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
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
        raise KeysError(f"found {name!r}, which no broker can be called", hint) from None


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


def _identifier(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _credential(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Credential:
    return Credential(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
