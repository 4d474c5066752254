"""The keys of a Ray cluster: an authority, a token, and for each node a folder with all that it
needs, as Ray reads it from its environment. New nodes are added to existing files."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

from pubstorm.errors import KeysError
from pubstorm.host.keys.authority import Authority, CertificateDates, Credential
from pubstorm.host.keys.certificates import check_authorities, check_credential
from pubstorm.host.keys.files import NewFile, read_file

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
