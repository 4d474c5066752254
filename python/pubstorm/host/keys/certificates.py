"""Certificates and private keys. Those of others are checked: readable, in force, and fitting each
other; KeysError names the problem. An authority of one's own, over the curve P-256, signs those of
brokers and clients, and of the nodes of a Ray cluster, each with a folder that Ray reads."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pubstorm.errors import KeysError
from pubstorm.host.keys.files import NewFile, read_file

DATE = "%Y-%m-%d %H:%M UTC"


def check_authorities(path: str | Path) -> None:
    """At least one authority of the file must be in force."""
    certificates = _certificates(path)
    now = datetime.now(UTC)
    if all(certificate.not_valid_after_utc < now for certificate in certificates):
        _require_in_force(path, certificates)


def check_credential(
    certificate: str | Path, key: str | Path, passphrase: str | None = None
) -> None:
    """A chain must be in force, and the key must be that of its first certificate. An encrypted key
    needs its passphrase."""
    chain = _certificates(certificate)
    _require_in_force(certificate, chain[:1])
    if _public_bytes(chain[0].public_key()) != _key_of(key, passphrase):
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


def _key_of(path: str | Path, passphrase: str | None) -> bytes:
    content = read_file(path)
    is_encrypted = b"ENCRYPTED" in content
    if is_encrypted and passphrase is None:
        hint = "write passphrase beside key, such as passphrase: ${env:KEY_PASSPHRASE}"
        raise KeysError(f"found the key {path} under a passphrase", hint)
    password = str(passphrase).encode() if is_encrypted else None
    try:
        return _public_bytes(load_pem_private_key(content, password).public_key())
    except (TypeError, ValueError, UnsupportedAlgorithm):
        if is_encrypted:
            hint = "the key may have another passphrase, or a cipher that Pubstorm does not have"
            message = f"found the key {path}, which its passphrase does not open"
            raise KeysError(message, hint) from None
        hint = "PEM begins with -----BEGIN PRIVATE KEY-----"
        raise KeysError(f"found no private key in PEM form in {path}", hint) from None


def _public_bytes(key: object) -> bytes:
    encoded = getattr(key, "public_bytes", None)
    if encoded is None:
        raise UnsupportedAlgorithm("a key without a public form")
    found: bytes = encoded(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


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


CA, CA_KEY, TOKEN = "ca.crt", "ca.key", "token"
CERTIFICATE, KEY = "node.crt", "node.key"
ENVIRONMENT = "environment"
"""Names of files."""
LOOPBACK = ("127.0.0.1", "localhost")
"""Names of each node beside its own: Ray's processes on one node use them for each other."""
TOKEN_BYTES = 32
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Further settings of Ray: no usage reports, and a dead node is given up after seconds instead of a
minute."""


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """The authority of a cluster's nodes."""

    folder: Path
    authority: Authority
    token: bytes
    is_new: bool
    """True if it is new."""

    @classmethod
    def of(cls, folder: Path, validity: CertificateDates) -> ClusterKeys:
        """The content of a folder; new keys if the folder is empty."""
        paths = [folder / name for name in (CA, CA_KEY, TOKEN)]
        there = [path for path in paths if path.exists()]
        if not there:
            authority = Authority.new("pubstorm ray-keys", validity)
            return cls(folder, authority, secrets.token_hex(TOKEN_BYTES).encode(), True)
        missing = [path.name for path in paths if path not in there]
        if missing:
            hint = "bring it back, or name another folder: then every node needs its new keys"
            raise KeysError(f"found {there[0]}, but no {' and no '.join(missing)}", hint)
        certificate, key, token = paths
        check_authorities(certificate)
        check_credential(certificate, key)
        authority = Authority.stored(Credential(read_file(certificate), read_file(key)))
        return cls(folder, authority, read_file(token), False)

    def files(
        self, nodes: Sequence[str], at: PurePosixPath, validity: CertificateDates
    ) -> list[NewFile]:
        """All files that are new: those of the cluster, and a folder for each node, whose
        environment names its files as they are called at `at`."""
        files = [*self._of_cluster()] if self.is_new else []
        for node in dict.fromkeys(nodes):
            files += self._of_node(node, at, validity)
        return files

    def folder_of(self, node: str) -> Path:
        """The folder that is to be copied to a node."""
        return self.folder / f"node-{node}"

    def _of_cluster(self) -> Iterator[NewFile]:
        yield NewFile(self.folder / CA, self.authority.credential.certificate)
        yield NewFile(self.folder / CA_KEY, self.authority.credential.key)
        yield NewFile(self.folder / TOKEN, self.token)

    def _of_node(
        self, node: str, at: PurePosixPath, validity: CertificateDates
    ) -> Iterator[NewFile]:
        _require_name(node)
        names = dict.fromkeys([node, *LOOPBACK])
        credential = self.authority.node([*names], validity)
        folder = self.folder_of(node)
        yield NewFile(folder / CA, self.authority.credential.certificate)
        yield NewFile(folder / CERTIFICATE, credential.certificate)
        yield NewFile(folder / KEY, credential.key)
        yield NewFile(folder / TOKEN, self.token)
        yield NewFile(folder / ENVIRONMENT, environment_text(at).encode())


def environment_text(at: PurePosixPath) -> str:
    """The environment of Ray on a node whose keys are in the folder `at`: for a shell and for
    systemd."""
    if not re.fullmatch(r"(/[\w.+-]+)+", str(at), re.ASCII):
        hint = "it goes into a file that shells and systemd read: no blanks and no quotes"
        raise KeysError(f"found the folder {str(at)!r}, needed is an absolute plain path", hint)
    values = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": at / TOKEN,
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": at / CERTIFICATE,
        "RAY_TLS_SERVER_KEY": at / KEY,
        "RAY_TLS_CA_CERT": at / CA,
        **SETTINGS,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _require_name(node: str) -> None:
    """A node's name is that of a folder, and part of a certificate."""
    try:
        ip_address(node)
    except ValueError:
        labels = node.split(".")
        fit = all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?", each) for each in labels)
        if not fit or labels[-1].isdigit():
            hint = "write an address or a name, as Ray calls the node: --node 10.0.0.1"
            raise KeysError(f"found the node {node!r}", hint) from None
