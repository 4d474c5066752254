"""Settings of keys for a listener of mosquitto."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PSK_HINT = "pubstorm"
"""mosquitto takes pre-shared keys only where it has a hint to give; clients need none."""


def psk_settings(file: Path, *, as_username: bool) -> Mapping[str, object]:
    """Settings for pre-shared keys."""
    return {
        "psk_file": str(file),
        "psk_hint": PSK_HINT,
        "use_identity_as_username": as_username,
    }


def certificate_settings(
    folder: Path, *, require_client: bool, as_username: bool
) -> Mapping[str, object]:
    """Settings for the certificates in a folder that `pubstorm keys ca` made."""
    of_clients = {"require_certificate": True, "use_identity_as_username": as_username}
    return {
        "cafile": str(folder / CA),
        "certfile": str(folder / SERVER),
        "keyfile": str(folder / SERVER_KEY),
        **(of_clients if require_client else {}),
    }


CA, CA_KEY = "ca.crt", "ca.key"
SERVER, SERVER_KEY = "server.crt", "server.key"
CLIENTS = "clients"
"""Names in a folder of certificates."""
