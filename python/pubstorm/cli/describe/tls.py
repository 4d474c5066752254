"""The TLS of clients in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pubstorm.contract.plan import PlannedTls
from pubstorm.contract.target import Target
from pubstorm.quantities import write_share
from pubstorm.scenario import Scenario


def tls_words(scenario: Scenario, tls: PlannedTls, targets: Iterable[Target]) -> str:
    """Returns the versions, the credentials of both sides, and the options of connections.
    Connections of QUIC have TLS 1.3 [RFC 9001, 4.2]."""
    has_tcp = any(target.tls and not target.quic for target in targets)
    low, high = (tls.min_version, tls.max_version) if has_tcp else ("1.3", "1.3")
    versions = f"TLS {low}" if low == high else f"TLS {low} to {high}"
    made = {broker.tls_mode for broker in scenario.topology.brokers.values()}
    return ", ".join((versions, *_credentials(made, tls), *_tls_options(tls)))


def _tls_options(tls: PlannedTls) -> Iterator[str]:
    """Yields the options that change handshakes, or that write keys."""
    if tls.server_name is not None:
        yield f"name {tls.server_name}"
    if tls.alpn:
        yield f"ALPN {' '.join(tls.alpn)}"
    if tls.resume:
        yield f"{write_share(tls.resume)} of the returns with a session{', 0-RTT' * tls.early_data}"
    if tls.reread:
        yield "changed certificates read again"
    if tls.key_log is not None:
        yield f"keys of connections written to {tls.key_log}"


def _credentials(made: Collection[str], tls: PlannedTls) -> Iterator[str]:
    """Yields the credentials of both sides; `made` are the modes for which the run makes keys."""
    if tls.psk is not None:
        yield f"pre-shared keys of {tls.psk.file}, identity {tls.psk.identity}"
        return
    if "psk" in made and tls.certificate is None:
        yield "pre-shared keys made by the run"
        return
    default = "made by the run" if {"server", "mutual"} & set(made) else "of the system"
    trusted = tls.ca or f"authorities {default}"
    yield f"the broker verified by {trusted}" if tls.verify else "the broker not verified"
    if tls.certificate is not None:
        yield f"client certificates {tls.certificate}"
    elif "mutual" in made:
        yield "client certificates made by the run"
