"""A handshake of mutual TLS between two nodes of a cluster, each with its own files."""

from __future__ import annotations

import ssl
from pathlib import Path


def handshake(server: Path, client: Path, name: str) -> None:
    """Mutual TLS between two nodes, over memory."""
    pair = [_context(server, ssl.PROTOCOL_TLS_SERVER), _context(client, ssl.PROTOCOL_TLS_CLIENT)]
    wires = [ssl.MemoryBIO(), ssl.MemoryBIO()]
    ends = [
        pair[0].wrap_bio(wires[0], wires[1], server_side=True),
        pair[1].wrap_bio(wires[1], wires[0], server_hostname=name),
    ]
    waiting = list(ends)
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting


def _context(node: Path, protocol: int) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.load_cert_chain(node / "node.crt", node / "node.key")
    made.load_verify_locations(node / "ca.crt")
    made.verify_mode = ssl.CERT_REQUIRED
    return made
